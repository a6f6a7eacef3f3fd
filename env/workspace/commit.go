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
	"syscall"

	"github.com/sandboxagent/sandboxagent/env"
)

// run makes the edits. If one fails, it undoes those before.
func (t *transaction) run(ctx context.Context) (err error) {
	stage := stagePrefix + rand.Text()[:10]
	if err := t.root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	t.stage = stage
	t.writeRecord()
	err = t.makeStage()
	for _, step := range []func(context.Context) error{
		t.writeNew, t.replace, t.removeOld, t.removeEmptyDirs, t.createRest,
	} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		if uerr := t.rollBack(); uerr != nil {
			return fmt.Errorf("%w; some changes could not be undone, the missing files are in %s: %w",
				err, filepath.Join(t.root.Name(), stage), uerr)
		}
	}
	if rerr := t.removeStage(); rerr != nil && err == nil {
		return fmt.Errorf("all changes are made, but not cleaned up: %w", rerr)
	}
	return err
}

// rollBack undoes the steps made, the last one first.
func (t *transaction) rollBack() error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (t *transaction) onFailure(undo func() error) { t.undo = append(t.undo, undo) }

// writeNew writes the new files to the stage.
func (t *transaction) writeNew(ctx context.Context) error {
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now == nil {
			continue
		}
		if err := t.writeOne(e); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

func (t *transaction) writeOne(e *edit) (err error) {
	dir := changedName
	if e.was == nil {
		dir = addedName
	}
	if e.staged, err = t.stagePath(dir, e.name); err != nil {
		return err
	}
	if e.now.Mode.Type() != fs.ModeSymlink {
		return t.writeFile(e)
	}
	target, err := t.target(e.name)
	if err != nil {
		return err
	}
	return t.root.Symlink(filepath.FromSlash(target), e.staged)
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
	// First the owner: changing it may clear permissions.
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

// replace makes the edits that no other edit blocks: it replaces changed files one after the other,
// so that at most one of them is missing at any time, and creates new files at free names.
func (t *transaction) replace(ctx context.Context) error {
	removed := make(map[string]bool)
	for _, e := range t.edits {
		removed[e.name] = e.now == nil
	}
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now == nil {
			continue
		}
		if e.was == nil {
			_, err := t.root.Lstat(filepath.FromSlash(e.name))
			if !errors.Is(err, fs.ErrNotExist) || belowRemoved(e.name, removed) {
				continue
			}
		} else if err := t.removeOne(e); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
		if err := t.placeOne(e); err != nil {
			return err
		}
	}
	return nil
}

// removeOld moves removed files to the stage.
func (t *transaction) removeOld(ctx context.Context) error {
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now != nil {
			continue
		}
		if err := t.removeOne(e); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

// errOtherDevice means that a file cannot be renamed to the stage.
var errOtherDevice = errors.New("it is on another file system than the directory (write a patch " +
	"and use git apply)")

// removeOne moves a file to the stage, and then compares it with the uploaded one.
func (t *transaction) removeOne(e *edit) (err error) {
	if e.kept, err = t.stagePath(removedName, e.name); err != nil {
		return err
	}
	name := filepath.FromSlash(e.name)
	if err := t.root.Rename(name, e.kept); errors.Is(err, syscall.EXDEV) {
		return errOtherDevice
	} else if err != nil {
		return err
	}
	t.onFailure(func() error { return t.restore(e.kept, name) })
	fi, err := t.root.Lstat(e.kept)
	if err == nil {
		err = t.matches(e.name, e.kept, fi, *e.was)
	}
	return err
}

// restore moves a file from the stage back to its name, unless the name is in use.
func (t *transaction) restore(kept, name string) error {
	if _, err := t.root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore %s from %s: %w", name, kept, ErrAppeared)
	}
	return t.root.Rename(kept, name)
}

// removeEmptyDirs removes the directories that have become empty.
func (t *transaction) removeEmptyDirs(context.Context) error {
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
			if err := t.removeDir(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeDir removes an empty directory.
func (t *transaction) removeDir(dir string) error {
	name := filepath.FromSlash(dir)
	fi, err := t.root.Lstat(name)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%q: %w", dir, errChanged)
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

// createRest creates the new files that replace did not.
func (t *transaction) createRest(ctx context.Context) error {
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.now == nil || e.placed {
			continue
		}
		if err := t.clear(e.name); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
		if err := t.placeOne(e); err != nil {
			return err
		}
	}
	return nil
}

// makeParents makes the missing parent directories of name.
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
			return fmt.Errorf("%q: %w", dir, env.ErrNotDir)
		}
	}
	return nil
}

// clear removes the directory name, for a file of that name, with its empty subdirectories.
func (t *transaction) clear(name string) error {
	fi, err := t.root.Lstat(filepath.FromSlash(name))
	if err != nil || !fi.IsDir() {
		return nil //nolint:nilerror // Placing the file reports another file of that name.
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
	return t.removeDir(name)
}

// placeOne moves one file or symlink to its name, and makes its parents. It replaces nothing.
func (t *transaction) placeOne(e *edit) error {
	err := t.makeParents(e.name)
	if err == nil && e.now.Mode.Type() == fs.ModeSymlink {
		err = t.placeSymlink(e)
	} else if err == nil {
		err = t.placeFile(e)
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrAppeared
	}
	if err != nil {
		return fmt.Errorf("%q: %w", e.name, err)
	}
	e.placed = true
	return nil
}

func (t *transaction) placeSymlink(e *edit) error {
	name := filepath.FromSlash(e.name)
	target, err := t.root.Readlink(e.staged)
	if err == nil {
		err = t.root.Symlink(target, name)
	}
	if err == nil {
		t.onFailure(func() error { return t.root.Remove(name) })
	}
	return err
}

// placeFile hard-links the staged file to its name, since a rename could replace another file. On a
// file system without hard links it makes an empty file first and renames over it; on another file
// system it copies.
func (t *transaction) placeFile(e *edit) error {
	name := filepath.FromSlash(e.name)
	fi, err := t.root.Lstat(e.staged)
	if err != nil {
		return err
	}
	if err := t.root.Link(e.staged, name); err == nil {
		t.onFailure(func() error { return t.removePlaced(name, fi) })
		return nil
	} else if errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // The error of the first Close is returned.
	empty, err := f.Stat()
	if err != nil {
		return errors.Join(err, t.root.Remove(name))
	}
	t.onFailure(func() error { return t.removePlaced(name, fi, empty) })
	if err := t.root.Rename(e.staged, name); !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := t.copyTo(f, e.staged); err != nil {
		return err
	}
	if e.host != nil {
		keepOwner(f, e.host)
	}
	if err := f.Chmod(fi.Mode().Perm()); err != nil {
		return err
	}
	return f.Close()
}

// copyTo copies a file of the stage to the writer.
func (t *transaction) copyTo(to io.Writer, staged string) error {
	from, err := t.root.Open(staged)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, t.buf)
	return err
}

// removePlaced removes a placed file, unless another one has replaced it.
func (t *transaction) removePlaced(name string, placed ...fs.FileInfo) error {
	now, err := t.root.Lstat(name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(placed, func(fi fs.FileInfo) bool { return os.SameFile(fi, now) }) {
		return fmt.Errorf("%q: %w", name, ErrAppeared)
	}
	return t.root.Remove(name)
}
