package workspace

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// ErrNotEmpty means that the working directory of an environment holds something already, so that
// what was changed in it could not be told from what was there.
var ErrNotEmpty = errors.New("the working directory of the environment is not empty")

// ErrGitFolder means that a folder cannot be a workspace because git keeps a repository in it.
var ErrGitFolder = errors.New("the folder is in a folder of git")

// Options are options of Open. The zero value takes what git tracks and does not ignore.
type Options struct {
	// UploadIgnored are patterns of files and folders that belong to the workspace though git ignores
	// them. They are relative to the folder; a star matches within one name, and ** any folders. Of a
	// folder that matches everything belongs to it. New files that git ignores are no part of the
	// changes all the same.
	UploadIgnored []string
	// SpoolDir is the folder of the host where contents are stored; empty means os.TempDir.
	SpoolDir string
	// MaxBytes bounds the sum of the sizes of all files, of the folder and of what comes back, and
	// apart from that of what of git goes along. Zero means transfer.DefaultMaxBytes, a negative
	// number no limit.
	MaxBytes int64
	// MaxEntries bounds the number of files, links and folders. Zero means transfer.DefaultMaxEntries,
	// a negative number no limit.
	MaxEntries int
}

// Workspace is the recorded state of a folder of the host. It does not change; its methods may be
// called concurrently.
type Workspace struct {
	dir    string
	opts   Options
	before *snapshot.Snapshot
	repos  []*repository
	// hollow are folders of submodules that go along empty.
	hollow []string
	// hidden are folders that are no part of the workspace.
	hidden hidden
	// modes tells of files whether they are executable where the host does not.
	modes map[string]bool
	notes []string
	rules *ignoreRules
}

// Open records the folder dir of the host. A missing folder is fs.ErrNotExist, something else
// env.ErrNotDir, more than o allows env.ErrTreeTooLarge, a folder of git ErrGitFolder. Links in dir
// are resolved now. The caller closes the workspace.
func Open(ctx context.Context, dir string, o Options) (_ *Workspace, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("workspace %s: %w", dir, err)
		}
	}()
	if err := checkPatterns(o.UploadIgnored); err != nil {
		return nil, err
	}
	w, host, err := find(dir, o)
	if err != nil {
		return nil, err
	}
	if err := w.findRepositories(ctx, host); err != nil {
		return nil, err
	}
	include, err := w.findIgnored(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, r := range w.repos {
		include = append(include, r.tracked()...)
		r.executables(w.modes)
	}
	w.before, err = snapshot.Take(ctx, host, "", w.snapshotOptions(nil, include))
	if err != nil {
		return nil, err
	}
	for _, name := range w.before.Unreadable() {
		w.note("%s cannot be read and does not go along", name)
	}
	return w, nil
}

// find finds the folder of a workspace.
func find(dir string, o Options) (*Workspace, hostFolder, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		// Rules and repositories above are those of the folder itself, not of a link to it.
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, hostFolder{}, err
	}
	if fi, err := os.Stat(abs); err != nil {
		return nil, hostFolder{}, err
	} else if !fi.IsDir() {
		return nil, hostFolder{}, env.ErrNotDir
	}
	if git := insideGitFolder(abs); git != "" {
		return nil, hostFolder{}, fmt.Errorf("%w, %s; name a working tree", ErrGitFolder, git)
	}
	host := hostFolder{dir: abs, modes: make(map[string]bool)}
	return &Workspace{dir: abs, opts: o, hidden: make(hidden), modes: host.modes}, host, nil
}

func (w *Workspace) snapshotOptions(base *snapshot.Snapshot, include []string) snapshot.Options {
	o := snapshot.Options{
		Base: base, Include: include, Omit: w.omits, SpoolDir: w.opts.SpoolDir, MaxBytes: w.opts.MaxBytes,
		MaxEntries: w.opts.MaxEntries,
	}
	if w.rules.needed {
		o.Exclude = w.rules.excluded
	}
	return o
}

// note adds a line to the notes, once.
func (w *Workspace) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(w.notes, line) {
		w.notes = append(w.notes, line)
	}
}

// Notes says, a line each, what does not go along or works with limits in the environment.
func (w *Workspace) Notes() []string { return slices.Clone(w.notes) }

// Files returns how many files and links go along, without those in a .git.
func (w *Workspace) Files() int { return w.before.Len() }

// Close removes what was recorded. Changes of the workspace have to be closed before.
func (w *Workspace) Close() error { return w.before.Close() }

// Upload sends the workspace to the working directory of e, which must be empty or missing, else it
// is ErrNotEmpty. The data is streamed, in bounded memory and one round trip, however many files
// there are. After an error a part of the files may be there.
func (w *Workspace) Upload(ctx context.Context, e env.Environment) error {
	if err := w.upload(ctx, e); err != nil {
		return fmt.Errorf("upload %s: %w", w.dir, err)
	}
	return nil
}

func (w *Workspace) upload(ctx context.Context, e env.Environment) error {
	entries, err := e.ReadDir(ctx, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A new file system has a folder of its own for what a repair finds.
	entries = slices.DeleteFunc(entries, func(d fs.DirEntry) bool {
		return d.Name() == "lost+found" &&
			d.IsDir()
	})
	if len(entries) > 0 {
		return fmt.Errorf("%w: there is %q", ErrNotEmpty, entries[0].Name())
	}
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := w.pack(ctx, pw)
		pw.CloseWithError(err)
		packed <- err
	}()
	copyErr := e.CopyIn(ctx, ".", pr)
	pr.CloseWithError(errReaderDone)
	// A failure to pack reaches CopyIn too, which may wrap it in its own words. That CopyIn ended
	// first is no failure of the packer.
	if err := <-packed; err != nil && !errors.Is(err, errReaderDone) {
		return err
	}
	return copyErr
}

// errReaderDone ends the packer when the environment reads no more.
var errReaderDone = errors.New("the environment stopped reading")

// pack writes the workspace as a tar stream.
func (w *Workspace) pack(ctx context.Context, to io.Writer) error {
	tw := tar.NewWriter(to)
	if err := w.before.Pack(ctx, tw); err != nil {
		return err
	}
	maxSize := cmp.Or(w.opts.MaxBytes, transfer.DefaultMaxBytes)
	p := &gitPacker{w: tw, now: time.Now(), buf: make([]byte, 256<<10), maxSize: max(maxSize, 0)}
	for _, name := range w.hollow {
		if err := p.header(tar.TypeDir, name+"/", 0o755, 0); err != nil {
			return err
		}
	}
	for _, r := range w.repos {
		if err := p.pack(ctx, r); err != nil {
			return fmt.Errorf("the git repository in %s: %w", path.Join(w.dir, r.name), err)
		}
	}
	return tw.Close()
}
