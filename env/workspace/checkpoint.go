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
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"

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
	// Files is the number of changed files.
	Files int `json:"-"`
}

// savedHead lists what a checkpoint has. Names are quoted as in Go, since JSON has no names that
// are not UTF-8.
type savedHead struct {
	Checkpoint

	Changes []savedChange `json:"changes"`
}

// savedChange is a changed file with its states before and after; an empty one is a missing file.
type savedChange struct {
	Name   string     `json:"name"`
	Before savedState `json:"before,omitzero"`
	After  savedState `json:"after,omitzero"`
}

type savedState struct {
	Mode   fs.FileMode `json:"mode"`
	SHA256 string      `json:"sha256"`
}

func stateIn(s *snapshot.Snapshot, name string) savedState {
	f, ok := s.Lookup(name)
	if !ok {
		return savedState{}
	}
	return savedState{f.Mode, hex.EncodeToString(f.SHA256[:])}
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
	head := savedHead{Checkpoint: Checkpoint{Note: note}, Changes: []savedChange{}}
	var kept []string
	for _, name := range c.names {
		head.Changes = append(head.Changes, savedChange{
			strconv.Quote(name), stateIn(c.w.before, name), stateIn(c.after, name),
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

// SaveNone writes what Save writes for no changes.
func SaveNone(w io.Writer, note string) error {
	head := savedHead{Checkpoint: Checkpoint{Note: note}, Changes: []savedChange{}}
	tw, err := startCheckpoint(w, head)
	if err != nil {
		return err
	}
	return tw.Close()
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
	ctx context.Context, e env.Environment, from io.Reader,
) (Checkpoint, error) {
	c, err := w.restore(ctx, e, from)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("restore the changes of %s: %w", w.dir, err)
	}
	return c, nil
}

func (w *Workspace) restore(
	ctx context.Context, e env.Environment, from io.Reader,
) (Checkpoint, error) {
	tr := tar.NewReader(from)
	head, err := readCheckpointHead(tr)
	if err != nil {
		return Checkpoint{}, err
	}
	return head.Checkpoint, w.redo(ctx, e, head.Changes, tr)
}

// ReadCheckpoint describes what Save has written.
func ReadCheckpoint(from io.Reader) (Checkpoint, error) {
	head, err := readCheckpointHead(tar.NewReader(from))
	return head.Checkpoint, err
}

// redo makes changes; contents has the files.
func (w *Workspace) redo(
	ctx context.Context, e env.Environment, list []savedChange, contents *tar.Reader,
) error {
	todo := make(map[string]string) // names to make, with the hashes of their contents
	var gone []string
	var conflicts []Conflict
	for _, c := range list {
		now := stateIn(w.before, c.Name)
		switch {
		case now == c.After:
		case now != c.Before && c.Before == savedState{}:
			conflicts = append(conflicts, Conflict{c.Name, ErrAppeared})
		case now != c.Before:
			conflicts = append(conflicts, Conflict{c.Name, errChanged})
		case c.After == savedState{}:
			gone = append(gone, c.Name)
		default:
			todo[c.Name] = c.After.SHA256
		}
	}
	conflicts = append(conflicts, w.crossed(todo, gone)...)
	if len(conflicts) > 0 {
		slices.SortFunc(conflicts, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
		return &ConflictError{conflicts}
	}
	for _, name := range gone {
		if err := removeFile(ctx, e, name); err != nil {
			return err
		}
	}
	for name := range todo {
		if !w.before.IsDir(name) {
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
	packErr, copyErr := tartree.Send(ctx, e, ".", func(_ context.Context, to io.Writer) error {
		return copyEntries(to, contents, todo)
	})
	if packErr != nil {
		return packErr
	}
	return copyErr
}

// crossed returns the files of the workspace that are in the way: above or below a file to make.
func (w *Workspace) crossed(todo map[string]string, gone []string) (conflicts []Conflict) {
	stays := make(map[string]bool)
	for _, name := range w.before.Files() {
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
	for i := range head.Changes {
		if head.Changes[i].Name, err = unquoteName(head.Changes[i].Name); err != nil {
			return head, err
		}
	}
	head.Files = len(head.Changes)
	for i := range head.Unreadable {
		if head.Unreadable[i], err = unquoteName(head.Unreadable[i]); err != nil {
			return head, err
		}
	}
	return head, nil
}

func unquoteName(quoted string) (string, error) {
	name, err := strconv.Unquote(quoted)
	if err != nil || path.Clean("/"+name) != "/"+name || name == "" || name[0] == '/' {
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
