package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// stagePrefix begins the name of the folder that new contents are written to.
const stagePrefix = ".sandboxagent-apply-"

// run makes the edits. If one fails, those before are taken back.
func (t *transaction) run(ctx context.Context) (err error) {
	stage := stagePrefix + rand.Text()[:10]
	if err := t.root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	t.stage = stage
	for _, step := range []func(context.Context) error{t.writeNew, t.takeAway, t.removeEmpty, t.place} {
		if err = step(ctx); err != nil {
			break
		}
	}
	if err != nil {
		if uerr := t.rollBack(); uerr != nil {
			return fmt.Errorf("%w; not everything could be taken back, what is missing is in %s: %w",
				err, filepath.Join(t.root.Name(), stage), uerr)
		}
	}
	if rerr := t.root.RemoveAll(stage); rerr != nil && err == nil {
		return fmt.Errorf("all changes are made, but a folder could not be removed: %w", rerr)
	}
	return err
}

// rollBack takes back what was done, last things first.
func (t *transaction) rollBack() error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (t *transaction) onFailure(undo func() error) { t.undo = append(t.undo, undo) }

// writeNew writes the contents of new files to the stage.
func (t *transaction) writeNew(ctx context.Context) error {
	for i, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now == nil || e.now.Mode.Type() == fs.ModeSymlink {
			continue
		}
		e.staged = filepath.Join(t.stage, fmt.Sprintf("new-%d", i))
		if err := t.writeFile(e); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

func (t *transaction) writeFile(e *edit) (err error) {
	content, err := t.after.Content(e.name)
	if err != nil {
		return err
	}
	f, err := t.root.OpenFile(e.staged, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666|e.now.Mode&0o111)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{content}, t.buf)
	if err == nil && n != e.now.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil || e.host == nil || !e.host.Mode().IsRegular() {
		return err
	}
	// The owner comes first: a change of it may take permissions away.
	keepOwner(f, e.host)
	mode := e.host.Mode().Perm()
	switch {
	case e.now.Mode&0o111 == 0:
		mode &^= 0o111
	case e.was.Mode&0o111 == 0:
		mode |= mode & 0o444 >> 2
	}
	return f.Chmod(mode)
}

// takeAway moves the files that go away or change to the stage, and makes sure that they are what was uploaded.
func (t *transaction) takeAway(ctx context.Context) error {
	for i, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.was == nil {
			continue
		}
		name := filepath.FromSlash(e.name)
		kept := filepath.Join(t.stage, fmt.Sprintf("old-%d", i))
		if err := t.root.Rename(name, kept); err != nil {
			return err
		}
		t.onFailure(func() error { return t.putBack(kept, name) })
		fi, err := t.root.Lstat(kept)
		if err == nil {
			err = t.matches(kept, fi, *e.was)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

// putBack moves a file from the stage to where it was, unless there is something by now.
func (t *transaction) putBack(kept, name string) error {
	if _, err := t.root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w, and %s was there", name, ErrAppeared, kept)
	}
	return t.root.Rename(kept, name)
}

// removeEmpty removes the folders that have become empty.
func (t *transaction) removeEmpty(context.Context) error {
	needed := make(map[string]bool)
	for _, e := range t.edits {
		for dir := path.Dir(e.name); e.now != nil && dir != "."; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	for _, e := range t.edits {
		if e.now != nil {
			continue
		}
		for dir := path.Dir(e.name); dir != "." && !needed[dir]; dir = path.Dir(dir) {
			names, err := readDir(t.root, filepath.FromSlash(dir))
			if err != nil || len(names) > 0 {
				break
			}
			if err := t.removeFolder(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeFolder removes an empty folder.
func (t *transaction) removeFolder(dir string) error {
	name := filepath.FromSlash(dir)
	fi, err := t.root.Lstat(name)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%q: %w", dir, ErrChanged)
	}
	if err := t.root.Remove(name); err != nil {
		return err
	}
	t.onFailure(func() error {
		if err := t.root.Mkdir(name, 0o777); err != nil {
			return err
		}
		return t.root.Chmod(name, fi.Mode().Perm())
	})
	return nil
}

// place moves what is new to where it belongs, and nothing over something else.
func (t *transaction) place(ctx context.Context) error {
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now == nil {
			continue
		}
		err := t.makeParents(e.name)
		if err == nil {
			err = t.clear(e.name)
		}
		if err == nil {
			err = t.placeOne(e)
		}
		if errors.Is(err, fs.ErrExist) {
			err = ErrAppeared
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

// makeParents makes the folders on the way to a name that are missing.
func (t *transaction) makeParents(name string) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		dir := filepath.FromSlash(name[:i])
		fi, err := t.root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			if err := t.root.Mkdir(dir, 0o777); err != nil {
				return err
			}
			t.onFailure(func() error { return t.root.Remove(dir) })
			continue
		}
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("%w, %q", ErrNotFolder, dir)
		}
	}
	return nil
}

// clear removes a folder without files, whose name a file is to get.
func (t *transaction) clear(name string) error {
	fi, err := t.root.Lstat(filepath.FromSlash(name))
	if err != nil || !fi.IsDir() {
		return nil //nolint:nilerror // What is there, if anything, is found when the file is to be placed.
	}
	names, err := readDir(t.root, filepath.FromSlash(name))
	if err != nil {
		return err
	}
	for _, base := range names {
		below := path.Join(name, base)
		if err := t.clear(below); err != nil {
			return err
		}
		if _, err := t.root.Lstat(filepath.FromSlash(below)); err == nil {
			return ErrAppeared
		}
	}
	return t.removeFolder(name)
}

// placeOne makes one file or link where there is nothing.
func (t *transaction) placeOne(e *edit) error {
	name := filepath.FromSlash(e.name)
	if e.staged == "" {
		target, err := t.target(t.after, e.name)
		if err == nil {
			err = t.root.Symlink(filepath.FromSlash(target), name)
		}
		if err == nil {
			t.onFailure(func() error { return t.root.Remove(name) })
		}
		return err
	}
	fi, err := t.root.Lstat(e.staged)
	if err != nil {
		return err
	}
	// A second name does not replace anything, which moving would. Where the file system has no second names, an empty
	// file takes the place first.
	if err := t.root.Link(e.staged, name); errors.Is(err, fs.ErrExist) {
		return err
	} else if err != nil {
		f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = t.root.Rename(e.staged, name)
		}
		if err != nil {
			return err
		}
	}
	t.onFailure(func() error {
		now, err := t.root.Lstat(name)
		if err != nil {
			return err
		}
		if !os.SameFile(fi, now) {
			return fmt.Errorf("%q: %w", e.name, ErrAppeared)
		}
		return t.root.Remove(name)
	})
	return nil
}
