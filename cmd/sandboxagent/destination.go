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

// writableFile returns the absolute name of a file that replaceFile will be able to write, with
// links resolved.
func writableFile(name string) (string, error) {
	if name == "-" {
		return "", errors.New("standard output is taken; name a file")
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

// nameBeside is a name of its own for a file in the folder of name.
func nameBeside(name string) string {
	return fmt.Sprintf(".%s.%016x", filepath.Base(name), rand.Uint64())
}

// replaceFile makes the file name hold what write gives, in one step: nobody sees half of it. A new
// file gets mode, less the umask. A device or a pipe is written to as it is.
func replaceFile(name string, mode fs.FileMode, write func(io.Writer) error) error {
	d, err := findDestination(name)
	if err != nil {
		return err
	}
	return d.replace(mode, write)
}

// destination is where a file will be written, as it was found before a command ran: what the
// command makes of the name leads nowhere else.
type destination struct {
	// name is absolute.
	name string
	// folder is the folder of name with links resolved.
	folder string
	// special is what name is, if that is a device or a pipe.
	special fs.FileInfo
	// pinned holds on to it; nil where that cannot be.
	pinned *os.File
}

// findDestination looks at name, which is absolute and no folder.
func findDestination(name string) (destination, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		d := destination{name: name, special: info, pinned: pin(name)}
		if d.pinned != nil {
			d.special, err = d.pinned.Stat()
		}
		return d, err
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(name))
	return destination{name: name, folder: folder}, err
}

// replace is replaceFile.
func (d destination) replace(mode fs.FileMode, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", d.name, err)
		}
	}()
	if d.special != nil {
		return d.writeThrough(write)
	}
	folder, err := d.open()
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // nothing is written through it
	base, own := filepath.Base(d.name), nameBeside(d.name)
	f, err := folder.OpenFile(own, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = folder.Remove(own) // the first error counts
		}
	}()
	err = write(f)
	if info, lerr := folder.Lstat(base); err == nil && lerr == nil && info.Mode().IsRegular() {
		err = f.Chmod(info.Mode().Perm())
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return folder.Rename(own, base)
}

// errMoved means that a name does not lead any more to where it led when the command began.
var errMoved = errors.New("its name leads somewhere else than before the command ran")

// open opens the folder, unless its name now leads through a link.
func (d destination) open() (*os.Root, error) {
	root, err := os.OpenRoot(d.folder)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	var now fs.FileInfo
	var resolved string
	if err == nil {
		resolved, err = filepath.EvalSymlinks(d.folder)
	}
	if err == nil {
		now, err = os.Lstat(resolved)
	}
	if err == nil && (resolved != d.folder || !os.SameFile(opened, now)) {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// writeThrough writes to a device or a pipe, unless another one has taken its place: to open that
// might wait for ever.
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
