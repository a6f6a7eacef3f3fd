package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env"
)

// writableFile returns the absolute name, without symlinks, of a file that replaceFile can write.
func writableFile(name string) (string, error) {
	if name == "-" {
		return "", errors.New("standard output is in use; name a file")
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(name); err == nil {
		name = resolved
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case info.IsDir():
		return "", &fs.PathError{Op: "write", Path: name, Err: env.ErrIsDir}
	case !info.Mode().IsRegular():
		return name, nil
	default:
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return "", err
		}
		if err := f.Close(); err != nil {
			return "", err
		}
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(name), nameBeside(name)),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return name, errors.Join(f.Close(), os.Remove(f.Name()))
}

// nameBeside returns an unused name for a file in the directory of name.
func nameBeside(name string) string {
	return fmt.Sprintf(".%s.%016x", filepath.Base(name), rand.Uint64())
}

// replaceFile replaces the file name by the output of write atomically. A new file gets mode, less
// the umask. A device or a FIFO is written directly.
func replaceFile(name string, mode fs.FileMode, write func(io.Writer) error) error {
	d, err := findDestination(name)
	if err != nil {
		return err
	}
	return d.replace(mode, write)
}

// destination is the location of a file, recorded before a command runs, so that the command cannot
// redirect its name.
type destination struct {
	// name is absolute.
	name string
	// dir is the directory of name without symlinks.
	dir string
	// special describes name if it is a device or a FIFO.
	special fs.FileInfo
	// pinned refers to it; nil where the system has no such reference.
	pinned *os.File
}

// findDestination records name, which is absolute and not a directory.
func findDestination(name string) (destination, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		d := destination{name: name, special: info, pinned: pin(name)}
		if d.pinned != nil {
			d.special, err = d.pinned.Stat()
		}
		return d, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	return destination{name: name, dir: dir}, err
}

// replace replaces the file like replaceFile.
func (d destination) replace(mode fs.FileMode, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", d.name, err)
		}
	}()
	if d.special != nil {
		return d.writeThrough(write)
	}
	root, err := d.open()
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	base, temporary := filepath.Base(d.name), nameBeside(d.name)
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temporary) // the first error counts
		}
	}()
	err = write(f)
	if info, lerr := root.Lstat(base); err == nil && lerr == nil && info.Mode().IsRegular() {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = f.Sync() // so that a record of it on disk is true
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return root.Rename(temporary, base)
}

// errMoved reports that a name resolves to another file than before the command.
var errMoved = errors.New("its name resolves to another file than before the command")

// open opens the directory unless its name now resolves through a symlink.
func (d destination) open() (*os.Root, error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	var now fs.FileInfo
	var resolved string
	if err == nil {
		resolved, err = filepath.EvalSymlinks(d.dir)
	}
	if err == nil {
		now, err = os.Lstat(resolved)
	}
	if err == nil && (resolved != d.dir || !os.SameFile(opened, now)) {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// writeThrough writes to a device or a FIFO. It rejects another file under the same name, since
// opening it might block forever.
func (d destination) writeThrough(write func(io.Writer) error) error {
	if d.pinned != nil {
		defer d.pinned.Close() //nolint:errcheck // it was not opened
	}
	now, err := os.Stat(d.name)
	if err != nil {
		return err
	}
	if !os.SameFile(d.special, now) {
		return errMoved
	}
	f, err := os.OpenFile(d.name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
