package workspace

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// checkpointHead is the name of the first file of a checkpoint, a savedHead as JSON.
const checkpointHead = ".sandboxagent-checkpoint.json"

// maxCheckpointHead bounds that file, in bytes.
const maxCheckpointHead = 256 << 20

// Checkpoint describes changes that Save has written.
type Checkpoint struct {
	// Note is that of Save.
	Note string `json:"note"`
	// Unreadable are the names that may have changed but could not be read; their changes are missing.
	Unreadable []string `json:"unreadable,omitempty"`
	// Changes are sorted by name.
	Changes []Change `json:"-"`
}

// Change is a changed file or symlink with its states before and after.
type Change struct {
	Name          string
	Before, After State
}

// State is that of a file or symlink in a snapshot; the zero State is that of a missing one.
type State struct {
	Mode   fs.FileMode `json:"mode"`
	SHA256 string      `json:"sha256"`
	// Private means that only the owner of the file has permissions.
	Private bool `json:"private,omitempty"`
}

// same reports whether two states are equal for git, which knows no other permission than that to
// execute.
func (s State) same(other State) bool {
	return s.Mode == other.Mode && s.SHA256 == other.SHA256
}

// Differences returns the changes between two snapshots, sorted by name.
func Differences(before, after *snapshot.Snapshot) []Change {
	var list []Change
	for _, name := range snapshot.Differences(before, after) {
		list = append(list, Change{name, StateIn(before, name), StateIn(after, name)})
	}
	return list
}

// savedHead lists what a checkpoint has. Names are quoted as in Go, since JSON has no names that
// are not UTF-8.
type savedHead struct {
	Checkpoint

	Saved []savedChange `json:"changes"`
}

// savedChange is a changed file with its states before and after; an empty one is a missing file.
type savedChange struct {
	Name   string `json:"name"`
	Before State  `json:"before,omitzero"`
	After  State  `json:"after,omitzero"`
}

// StateIn returns the state of a file in a snapshot.
func StateIn(s *snapshot.Snapshot, name string) State {
	f, ok := s.Lookup(name)
	if !ok {
		return State{}
	}
	return State{f.Mode, hex.EncodeToString(f.SHA256[:]), f.Private}
}

// Save writes the changes to w, for Restore: a tar stream of the changed files, after a list with
// the states before and after. Files that are Unreadable are left out. The note goes with it.
func (c *Changes) Save(ctx context.Context, w io.Writer, note string) error {
	if err := c.save(ctx, w, note); err != nil {
		return fmt.Errorf("save the changes of %s: %w", c.w.dir, err)
	}
	return nil
}

func (c *Changes) save(ctx context.Context, w io.Writer, note string) error {
	head := savedHead{Checkpoint: Checkpoint{Note: note}, Saved: []savedChange{}}
	var kept []string
	for _, name := range c.names {
		head.Saved = append(head.Saved, savedChange{
			strconv.Quote(name), StateIn(c.w.before, name), StateIn(c.after, name),
		})
		if _, ok := c.after.Lookup(name); ok {
			kept = append(kept, name)
		}
	}
	for _, name := range c.Unreadable() {
		head.Unreadable = append(head.Unreadable, strconv.Quote(name))
	}
	tw, err := startCheckpoint(w, head)
	if err != nil {
		return err
	}
	if err := c.after.PackFiles(ctx, tw, kept); err != nil {
		return err
	}
	return tw.Close()
}

// SaveChanges writes a list of changes as Save does, with the present time as that of the files.
// Open returns the content of a file, or the
// target of a symlink, with that SHA-256.
func SaveChanges(
	w io.Writer, note string, list []Change, open func(sha256 string) (*os.File, error),
) error {
	head := savedHead{Checkpoint: Checkpoint{Note: note}, Saved: []savedChange{}}
	for _, c := range list {
		head.Saved = append(head.Saved, savedChange{strconv.Quote(c.Name), c.Before, c.After})
	}
	tw, err := startCheckpoint(w, head)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.After == (State{}) {
			continue
		}
		if err := saveFile(tw, c, open); err != nil {
			return fmt.Errorf("save the change of %s: %w", c.Name, err)
		}
	}
	return tw.Close()
}

func saveFile(
	tw *tar.Writer, c Change, open func(sha256 string) (*os.File, error),
) error {
	f, err := open(c.After.SHA256)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: c.Name, Mode: int64(c.After.Mode.Perm()), Size: info.Size(),
		ModTime: time.Now(), Format: tar.FormatPAX,
	}
	if c.After.Private {
		h.Mode &^= 0o077
	}
	if c.After.Mode.Type() == fs.ModeSymlink {
		target, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(target), 0
		return tw.WriteHeader(h)
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

func startCheckpoint(w io.Writer, head savedHead) (*tar.Writer, error) {
	data, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	tw := tar.NewWriter(w)
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: checkpointHead, Mode: 0o600, Size: int64(len(data)),
		Format: tar.FormatPAX,
	}
	if err := tw.WriteHeader(h); err != nil {
		return nil, err
	}
	_, err = tw.Write(data)
	return tw, err
}

// Restore makes the changes that Save has written in the working directory of e, to which the
// workspace was uploaded. A file of the workspace must have the state before the change, or after
// it, for instance because it was applied; otherwise the error is a *ConflictError with all such
// names, and nothing is changed.
func (w *Workspace) Restore(
	ctx context.Context, e env.Environment, from io.ReadSeeker,
) (Checkpoint, error) {
	c, err := Restore(ctx, e, w.before, from)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("restore the changes of %s: %w", w.dir, err)
	}
	return c, nil
}

// Restore is Workspace.Restore for the working directory of e, of which now is a snapshot. A file
// keeps its permissions, but for the right to execute. A Restore that was interrupted can be
// repeated.
func Restore(
	ctx context.Context, e env.Environment, now *snapshot.Snapshot, from io.ReadSeeker,
) (Checkpoint, error) {
	head, err := readCheckpointHead(tar.NewReader(from))
	if err != nil {
		return Checkpoint{}, err
	}
	r := restorer{env: e, now: now, from: from}
	return head.Checkpoint, r.restore(ctx, head.Changes)
}

// Check returns the error of Restore about files that others have changed.
func Check(now *snapshot.Snapshot, list []Change) error {
	r := restorer{now: now}
	_, err := r.plan(list)
	return err
}

// ReadCheckpoint describes what Save has written.
func ReadCheckpoint(from io.Reader) (Checkpoint, error) {
	head, err := readCheckpointHead(tar.NewReader(from))
	return head.Checkpoint, err
}

// restorer makes changes in a working directory whose state is now.
type restorer struct {
	env  env.Environment
	now  *snapshot.Snapshot
	from io.ReadSeeker
}

// steps are what a Restore does.
type steps struct {
	todo  map[string]string // names to make, with the hashes of their contents
	edits map[string]Change // existing files that get another content
	gone  []string
}

func (r *restorer) restore(ctx context.Context, list []Change) error {
	s, err := r.plan(list)
	if err != nil {
		return err
	}
	if err := r.edit(ctx, s.edits); err != nil {
		return err
	}
	return r.makeAndRemove(ctx, s.todo, s.gone)
}

// plan returns the steps for a list of changes, or a *ConflictError.
func (r *restorer) plan(list []Change) (steps, error) {
	todo, edits := make(map[string]string), make(map[string]Change)
	var gone []string
	var conflicts []Conflict
	for _, c := range list {
		now := StateIn(r.now, c.Name)
		switch {
		case now.same(c.After):
		case !now.same(c.Before) && c.Before == State{}:
			conflicts = append(conflicts, Conflict{c.Name, ErrAppeared})
		case !now.same(c.Before):
			conflicts = append(conflicts, Conflict{c.Name, errChanged})
		case c.After == State{}:
			gone = append(gone, c.Name)
		case now != State{} && now.Mode.IsRegular() && c.After.Mode.IsRegular():
			edits[c.Name] = Change{c.Name, now, c.After}
		default:
			todo[c.Name] = c.After.SHA256
		}
	}
	gone = append(gone, r.leftovers(slices.Concat(slices.Collect(maps.Keys(todo)),
		slices.Collect(maps.Keys(edits))))...)
	conflicts = append(conflicts, r.crossed(todo, gone)...)
	if len(conflicts) > 0 {
		slices.SortFunc(conflicts, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
		return steps{}, &ConflictError{conflicts}
	}
	return steps{todo, edits, gone}, nil
}

// leftovers returns the temporary files beside the files to make or to change: those of a Restore
// that was killed.
func (r *restorer) leftovers(changing []string) (names []string) {
	dirs := make(map[string]bool)
	for _, name := range changing {
		dirs[path.Dir(name)] = true
	}
	for _, name := range r.now.Files() {
		if dirs[path.Dir(name)] && strings.HasPrefix(path.Base(name), tartree.TempPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// contents returns a reader of the files.
func (r *restorer) contents() (*tar.Reader, error) {
	if _, err := r.from.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	tr := tar.NewReader(r.from)
	_, err := tr.Next() // the list of changes
	return tr, err
}

// edit gives files other contents and permissions.
func (r *restorer) edit(ctx context.Context, edits map[string]Change) error {
	tr, err := r.contents()
	if err != nil {
		return err
	}
	done := 0
	for done < len(edits) {
		h, err := tr.Next()
		if err != nil {
			return fmt.Errorf("the checkpoint is damaged: %w", err)
		}
		c, ok := edits[h.Name]
		if !ok {
			continue
		}
		opts := env.WriteOptions{IfSHA256: c.Before.SHA256}
		if c.Before.Mode != c.After.Mode {
			info, err := r.env.Stat(ctx, c.Name)
			if err != nil {
				return err
			}
			opts.Mode = info.Mode().Perm() &^ 0o111
			if c.After.Mode&0o100 != 0 {
				opts.Mode |= opts.Mode & 0o444 >> 2
			}
		}
		content := &checkedReader{from: tr, hash: sha256.New(), want: c.After.SHA256}
		if _, err := r.env.WriteFile(ctx, c.Name, content, opts); err != nil {
			return err
		}
		done++
	}
	return nil
}

// checkedReader ends with an error if what it has read has not the wanted hash.
type checkedReader struct {
	from io.Reader
	hash hash.Hash
	want string
}

func (r *checkedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.hash.Write(p[:n]) // a hash never fails
	if errors.Is(err, io.EOF) && hex.EncodeToString(r.hash.Sum(nil)) != r.want {
		err = errors.New("the checkpoint is damaged: a content has another hash")
	}
	return n, err
}

func (r *restorer) makeAndRemove(
	ctx context.Context, todo map[string]string, gone []string,
) error {
	e := r.env
	for _, name := range gone {
		if err := removeFile(ctx, e, name); err != nil {
			return err
		}
	}
	for name := range todo {
		if !r.now.IsDir(name) {
			continue
		}
		err := e.Remove(ctx, name, env.RemoveOptions{Recursive: true}) // it has no files any more
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(todo) == 0 {
		return nil
	}
	contents, err := r.contents()
	if err != nil {
		return err
	}
	packErr, copyErr := tartree.Send(ctx, e, ".", func(_ context.Context, to io.Writer) error {
		return copyEntries(to, contents, todo)
	})
	if packErr != nil {
		return packErr
	}
	return copyErr
}

// crossed returns the files of the workspace that are in the way: above or below a file to make.
func (r *restorer) crossed(todo map[string]string, gone []string) (conflicts []Conflict) {
	stays := make(map[string]bool)
	for _, name := range r.now.Files() {
		stays[name] = true
	}
	for _, name := range gone {
		delete(stays, name)
	}
	for name := range stays {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, made := todo[dir]; made {
				conflicts = append(conflicts, Conflict{name, ErrAppeared})
			}
		}
	}
	for name := range todo {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if stays[dir] {
				conflicts = append(conflicts, Conflict{dir, errChanged})
			}
		}
	}
	return conflicts
}

func readCheckpointHead(tr *tar.Reader) (head savedHead, err error) {
	h, err := tr.Next()
	switch {
	case err != nil:
		return head, fmt.Errorf("the checkpoint is damaged: %w", err)
	case h.Name != checkpointHead || h.Size > maxCheckpointHead:
		return head, fmt.Errorf("the checkpoint is damaged: it starts with %q", h.Name)
	}
	data, err := io.ReadAll(tr)
	if err == nil {
		err = json.Unmarshal(data, &head)
	}
	if err != nil {
		return head, fmt.Errorf("the checkpoint is damaged: %w", err)
	}
	for _, c := range head.Saved {
		name, err := unquoteName(c.Name)
		if err != nil {
			return head, err
		}
		head.Changes = append(head.Changes, Change{name, c.Before, c.After})
	}
	for i := range head.Unreadable {
		if head.Unreadable[i], err = unquoteName(head.Unreadable[i]); err != nil {
			return head, err
		}
	}
	return head, nil
}

func unquoteName(quoted string) (string, error) {
	name, err := strconv.Unquote(quoted)
	git := slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.EqualFold(part, ".git")
	})
	if err != nil || path.Clean("/"+name) != "/"+name || name == "" || name[0] == '/' || git ||
		runtime.GOOS == "windows" && strings.Contains(name, "\\") {
		return "", fmt.Errorf("the checkpoint is damaged: it has the name %s", quoted)
	}
	return name, nil
}

// copyEntries copies the entries of a tar stream with those names, whose contents have the hashes.
func copyEntries(to io.Writer, from *tar.Reader, hashes map[string]string) error {
	tw := tar.NewWriter(to)
	copied := make(map[string]bool)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the checkpoint is damaged: %w", err)
		}
		want, ok := hashes[h.Name]
		if !ok || copied[h.Name] {
			continue
		}
		copied[h.Name] = true
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		hash := sha256.New()
		if h.Typeflag == tar.TypeSymlink {
			_, _ = io.WriteString(hash, h.Linkname) // a hash never fails
		}
		if _, err := io.Copy(io.MultiWriter(tw, hash), from); err != nil {
			return err
		}
		if hex.EncodeToString(hash.Sum(nil)) != want {
			return fmt.Errorf("the checkpoint is damaged: the content of %q", h.Name)
		}
	}
	if len(copied) != len(hashes) {
		return fmt.Errorf("the checkpoint is damaged: it has %d of %d files", len(copied), len(hashes))
	}
	return tw.Close()
}

// removeFile removes a file, and directories that are empty then.
func removeFile(ctx context.Context, e env.Environment, name string) error {
	if err := e.Remove(ctx, name, env.RemoveOptions{}); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if e.Remove(ctx, dir, env.RemoveOptions{}) != nil { // it has other files
			break
		}
	}
	return nil
}
