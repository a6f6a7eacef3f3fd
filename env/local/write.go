package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// tempPrefix is the prefix of the names of temporary files, which replace their targets.
	tempPrefix = ".sandboxagent-tmp-"
	// maxLinks is the most symlinks in a row to follow.
	maxLinks = 40
	// modeBits are the bits of a mode that can be set.
	modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

// WriteFile implements env.Environment. The package comment lists the properties that a replaced
// file keeps.
func (e *Environment) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	path, err := e.startOp(ctx, "write", name)
	if err != nil {
		return env.Written{}, err
	}
	defer e.work.Done()
	ctx, cancel := e.bind(ctx)
	defer cancel()
	w := writing{e: e, opts: opts}
	written, err := w.write(ctx, path, r)
	var source *sourceError
	switch {
	case err == nil:
		return written, nil
	case errors.As(err, &source):
		return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: source.err}
	default:
		return written, pathError("write", name, err)
	}
}

// writing is one write of a file.
type writing struct {
	e      *Environment
	opts   env.WriteOptions
	target string // the file itself, with all symlinks followed
}

func (w *writing) write(ctx context.Context, path string, r io.Reader) (env.Written, error) {
	if err := w.check(path); err != nil {
		return env.Written{}, err
	}
	dir, _ := filepath.Split(w.target)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return env.Written{}, err
	}
	old, err := w.inspect()
	if err != nil {
		return env.Written{}, err
	}
	source := newSource(ctx, w.e, r)
	defer source.release()
	temp, err := createTemp(dir, old == nil && w.opts.Mode == 0)
	if err != nil {
		if old == nil || !inPlaceHelps(err) {
			return env.Written{}, err
		}
		return w.spool(source)
	}
	size, err := source.copyTo(temp)
	if err != nil {
		return env.Written{}, both(err, discard(temp))
	}
	written, err := w.commit(temp)
	written.Size = size
	return written, err
}

// check validates the options and finds the target.
func (w *writing) check(path string) error {
	o := &w.opts
	if o.Mode&^modeBits != 0 {
		return fmt.Errorf("mode %v: %w", o.Mode, fs.ErrInvalid)
	}
	if o.IfSHA256 != "" {
		sum, err := hex.DecodeString(o.IfSHA256)
		if err != nil || len(sum) != 32 || o.MustNotExist {
			return fmt.Errorf("condition %q: %w", o.IfSHA256, fs.ErrInvalid)
		}
	}
	target, err := resolve(path)
	if err != nil {
		return err
	}
	if o.MustNotExist {
		if _, err := os.Lstat(path); err == nil {
			return fs.ErrExist // a dangling symlink exists, too
		}
	}
	w.target = target
	return nil
}

// resolve follows symlinks in the last element of a name, which need not exist. The last element of
// the result is not a symlink; its directories may be.
func resolve(path string) (string, error) {
	for range maxLinks {
		dir, base := filepath.Split(path)
		if base == "" || base == "." || base == ".." {
			return "", env.ErrIsDir
		}
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Mode().Type() != fs.ModeSymlink) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if path = link; !filepath.IsAbs(link) {
			path = join(strings.TrimSuffix(dir, string(filepath.Separator)), link)
		}
	}
	return "", errLoop
}

// inspect returns the current target, or nil if it does not exist. A file without write permission
// is not replaced either.
func (w *writing) inspect() (fs.FileInfo, error) {
	info, err := os.Lstat(w.target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := notRegular(info.Mode()); err != nil {
		return nil, err
	}
	return info, mayWrite(w.target, info)
}

// createTemp creates a temporary file in dir. An ordinary one gets the default mode of new files;
// others are private until applyMetadata sets their mode.
func createTemp(dir string, ordinary bool) (*os.File, error) {
	mode := fs.FileMode(0o600)
	if ordinary {
		mode = 0o666
	}
	for {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		// The name is not cleaned, since dir may contain symlinks.
		name := join(dir, tempPrefix+hex.EncodeToString(id[:]))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// discard closes and removes a temporary file.
func discard(f *os.File) error {
	_ = f.Close()
	if err := os.Remove(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// commit renames the temporary file to the target, if the conditions hold. It closes the temporary
// file, and removes it on an error.
func (w *writing) commit(temp *os.File) (written env.Written, err error) {
	unlock := w.e.commits.lock(w.target)
	defer unlock()
	renamed := false
	defer func() {
		if !renamed {
			err = both(err, discard(temp))
		}
	}()
	old, err := w.verify()
	if err != nil {
		return env.Written{}, err
	}
	if err := w.applyMetadata(temp, old); err != nil {
		return env.Written{}, err
	}
	if err := temp.Close(); err != nil { // some file systems report only now that they are full
		return env.Written{}, err
	}
	if w.opts.MustNotExist {
		if renamed, err = renameNew(temp.Name(), w.target); err != nil {
			return env.Written{}, err
		}
		return env.Written{Created: true}, nil
	}
	err = os.Rename(temp.Name(), w.target)
	if err == nil {
		renamed = true
		return env.Written{Created: old == nil}, nil
	}
	if old == nil || !inPlaceHelps(err) {
		return env.Written{}, err
	}
	content, err := os.Open(temp.Name())
	if err != nil {
		return env.Written{}, err
	}
	defer func() { _ = content.Close() }()
	return w.overwrite(content)
}

// verify checks the conditions against the current target, which it returns.
func (w *writing) verify() (fs.FileInfo, error) {
	old, err := w.inspect()
	if err != nil || w.opts.IfSHA256 == "" {
		return old, err
	}
	if old == nil {
		return nil, fs.ErrNotExist
	}
	sum, err := fileSHA256(w.target)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(sum, w.opts.IfSHA256) {
		return nil, env.ErrChanged
	}
	return old, nil
}

// spool is a write where no temporary file can be created beside the target: the content is stored
// elsewhere first, so that a failing reader does not damage the target.
func (w *writing) spool(source *source) (written env.Written, err error) {
	var spool spool
	defer func() { err = both(err, spool.discard()) }()
	size, err := source.copyTo(&spool)
	if err != nil {
		return env.Written{}, err
	}
	content, err := spool.content()
	if err != nil {
		return env.Written{}, err
	}
	unlock := w.e.commits.lock(w.target)
	defer unlock()
	old, err := w.verify()
	if err != nil {
		return env.Written{}, err
	}
	if old == nil {
		return env.Written{}, fs.ErrNotExist // it was removed, and none can be created beside it
	}
	written, err = w.overwrite(content)
	written.Size = size
	return written, err
}

// overwrite writes content over the target.
func (w *writing) overwrite(content io.Reader) (env.Written, error) {
	f, err := openRegular(w.target, os.O_WRONLY)
	if err != nil {
		return env.Written{}, err
	}
	size, err := io.Copy(f, content)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil && w.opts.Mode != 0 {
		err = f.Chmod(w.opts.Mode)
	}
	if err = both(err, f.Close()); err != nil {
		err = systemError(err)
		return env.Written{InPlace: true}, &condition{
			is: err, err: fmt.Errorf("written in place, so that the file may hold a part: %w", err),
		}
	}
	return env.Written{InPlace: true}, nil
}
