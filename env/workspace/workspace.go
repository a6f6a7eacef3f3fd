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
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// ErrNotEmpty means that the working directory of an environment is not empty, so that changes in
// it could not be distinguished from its earlier content.
var ErrNotEmpty = errors.New("the working directory of the environment is not empty")

// ErrGitDir means that a directory cannot be a workspace because it is in a git directory.
var ErrGitDir = errors.New("the directory is in a git directory")

// Options are options of Open. The zero value records the files that git tracks or does not ignore.
type Options struct {
	// UploadIgnored are patterns of files and directories that belong to the workspace though git
	// ignores them. They are relative to the directory; a star matches within one name, and ** any
	// directories. A matching directory includes its whole tree. New files that git ignores are never
	// part of the changes.
	UploadIgnored []string
	// SpoolDir is the directory of the host that stores file contents; the default is os.TempDir.
	SpoolDir string
	// StateDir is a directory of the host, private to the user and outside of the workspace, in which
	// Apply records the files that it leaves behind if the program is killed, so that a later Open
	// recognizes them. Apply makes it if it is missing; empty means no record.
	StateDir string
	// MaxBytes bounds the sum of the sizes of all files, in the directory and in the environment, and
	// separately that of the uploaded git directories. Zero means transfer.DefaultMaxBytes, a negative
	// number no limit.
	MaxBytes int64
	// MaxEntries bounds the number of files, symlinks and directories. Zero means
	// transfer.DefaultMaxEntries, a negative number no limit.
	MaxEntries int
}

// Workspace is the recorded state of a directory of the host. It is immutable; its methods may be
// called concurrently.
type Workspace struct {
	dir    string
	opts   Options
	before *snapshot.Snapshot
	repos  []*repository
	// emptySubmodules are the names of submodules that are uploaded as empty directories.
	emptySubmodules []string
	// excluded are the git directories that are not part of the workspace.
	excluded excludedDirs
	// modes maps files to whether they are executable, where only the index records that.
	modes    map[string]bool
	warnings []string
	rules    *ignoreRules
}

// Open records the directory dir of the host, with symlinks in its path resolved. A missing
// directory is fs.ErrNotExist, another file env.ErrNotDir, a tree beyond the limits of o
// env.ErrTreeTooLarge, and a git directory ErrGitDir. The caller closes the workspace.
func Open(ctx context.Context, dir string, o Options) (_ *Workspace, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("workspace %s: %w", dir, err)
		}
	}()
	if err := validatePatterns(o.UploadIgnored); err != nil {
		return nil, err
	}
	w, host, err := newWorkspace(dir, o)
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
		r.addModes(w.modes)
	}
	w.before, err = snapshot.Take(ctx, host, "", w.snapshotOptions(nil, include))
	if err != nil {
		return nil, err
	}
	for _, name := range w.before.Unreadable() {
		w.warn("%s cannot be read and is not uploaded", name)
	}
	return w, nil
}

// newWorkspace returns a workspace without its record, and its directory.
func newWorkspace(dir string, o Options) (*Workspace, hostDir, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		// Rules and repositories above are those of the directory itself, not of a symlink to it.
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, hostDir{}, err
	}
	if fi, err := os.Stat(abs); err != nil {
		return nil, hostDir{}, err
	} else if !fi.IsDir() {
		return nil, hostDir{}, env.ErrNotDir
	}
	if git := enclosingGitDir(abs); git != "" {
		return nil, hostDir{}, fmt.Errorf("%w, %s (name a working tree)", ErrGitDir, git)
	}
	host := hostDir{dir: abs, modes: make(map[string]bool)}
	w := &Workspace{dir: abs, opts: o, excluded: make(excludedDirs), modes: host.modes}
	return w, host, nil
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

// warn adds a line to the warnings, if they lack it.
func (w *Workspace) warn(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(w.warnings, line) {
		w.warnings = append(w.warnings, line)
	}
}

// Warnings returns one line for each part of the directory that is not uploaded, or is limited in
// the environment.
func (w *Workspace) Warnings() []string { return slices.Clone(w.warnings) }

// Files returns the number of uploaded files and symlinks, without those in a .git.
func (w *Workspace) Files() int { return w.before.Len() }

// Close removes the record. The caller closes the changes of the workspace before.
func (w *Workspace) Close() error { return w.before.Close() }

// Upload sends the workspace to the working directory of e, which must be empty or missing, else
// the error is ErrNotEmpty. The data is streamed, in bounded memory and one round trip. After an
// error the environment may have a part of the files.
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
	// A new ext4 file system has this directory.
	entries = slices.DeleteFunc(entries, func(d fs.DirEntry) bool {
		return d.Name() == "lost+found" && d.IsDir()
	})
	if len(entries) > 0 {
		return fmt.Errorf("%w: it has %q", ErrNotEmpty, entries[0].Name())
	}
	packErr, copyErr := tartree.Send(ctx, e, ".", w.pack)
	return cmp.Or(packErr, copyErr)
}

// pack writes the workspace as a tar stream to the writer.
func (w *Workspace) pack(ctx context.Context, to io.Writer) error {
	tw := tar.NewWriter(to)
	if err := w.before.Pack(ctx, tw); err != nil {
		return err
	}
	maxSize := cmp.Or(w.opts.MaxBytes, transfer.DefaultMaxBytes)
	p := &gitPacker{w: tw, now: time.Now(), buf: make([]byte, 256<<10), maxSize: max(maxSize, 0)}
	for _, name := range w.emptySubmodules {
		if err := p.header(tar.TypeDir, name+"/", 0o755, 0); err != nil {
			return err
		}
	}
	for _, r := range w.repos {
		if r.foreign != "" {
			continue
		}
		if err := p.pack(ctx, r); err != nil {
			return fmt.Errorf("git repository in %s: %w", path.Join(w.dir, r.name), err)
		}
	}
	return tw.Close()
}
