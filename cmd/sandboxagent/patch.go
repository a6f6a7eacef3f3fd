package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// patchTime bounds taking the last snapshot and writing the patch, which also happens after a time-out or a signal.
const patchTime = 2 * time.Minute

// patchSettings say what becomes of the changes.
type patchSettings struct {
	// file is where the patch is written; empty means nowhere.
	file string
	// apply makes the changes in the working folder of the host.
	apply bool
}

// changes are what a command has changed.
type changes interface {
	WritePatch(ctx context.Context, w io.Writer) (env.PatchStats, error)
	Close() error
}

// patch is what becomes of the difference that a command makes to the working folder. A nil patch does nothing.
type patch struct {
	settings patchSettings
	to       destination // if a file is wanted
	// tree is what was copied into the environment; nil where that works in place, and before is how it was.
	tree   *workspace.Workspace
	before *env.Snapshot
}

// checkPatch reports as a usageError why a patch cannot be written to file, which may be empty.
func checkPatch(file string) error {
	if file == "" {
		return nil
	}
	if _, err := writableFile(file); err != nil {
		return usagef("--patch: %s", err)
	}
	return nil
}

// startPatch records how the working folder is, with settings that readPatchFlags has found good. If nothing is to become
// of the changes, it gives a nil patch.
func startPatch(ctx context.Context, settings patchSettings, w *workplace) (*patch, error) {
	if settings == (patchSettings{}) {
		return nil, nil
	}
	p := &patch{settings: settings, tree: w.tree}
	if settings.file != "" {
		file, err := writableFile(settings.file)
		if err != nil {
			return nil, usagef("--patch: %s", err)
		}
		if p.to, err = findDestination(file); err != nil {
			return nil, usagef("--patch: %s", err)
		}
	}
	if p.tree != nil {
		return p, nil
	}
	before, err := env.TakeSnapshot(ctx, w.plain, "", env.SnapshotOptions{})
	if err != nil {
		return nil, fmt.Errorf("--patch: %w", err)
	}
	p.before = before
	return p, nil
}

// finish finds out what has changed, writes the patch, and makes the changes on the host if they are to be made and the
// command was done. It has a time of its own, since the context of the command may be over. It returns the name of the
// patch's file.
func (p *patch) finish(ctx context.Context, e env.Environment, done bool) (file string, err error) {
	if p == nil {
		return "", nil
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTime)
	defer cancel()
	found, err := p.changes(ctx, e)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.flag(), err)
	}
	defer found.Close() //nolint:errcheck // it was only read
	write := func(w io.Writer) error {
		_, err := found.WritePatch(ctx, w)
		return err
	}
	if p.settings.file != "" {
		if err := p.to.replace(0o666, write); err != nil {
			return "", fmt.Errorf("--patch: %w", err)
		}
		file = p.to.name
	}
	if !p.settings.apply {
		return file, nil
	}
	tree, ok := found.(*workspace.Changes)
	if !ok {
		return file, errors.New("--apply: there is nothing to apply to")
	}
	if tree.Empty() {
		return file, nil
	}
	if done {
		if _, err = tree.Apply(ctx); err == nil {
			return file, nil
		}
		err = fmt.Errorf("--apply: %w", err)
	}
	if file == "" { // what was done is not to be lost
		var kerr error
		if file, kerr = keepPatch(write); kerr != nil {
			return "", errors.Join(err, kerr)
		}
	}
	if err != nil {
		return file, fmt.Errorf("%w; the patch is in %s", err, file)
	}
	return file, nil
}

// changes compares the working folder with how it was.
func (p *patch) changes(ctx context.Context, e env.Environment) (changes, error) {
	if p.tree != nil {
		return p.tree.Changes(ctx, e)
	}
	after, err := env.TakeSnapshot(ctx, e, "", env.SnapshotOptions{Base: p.before})
	if err != nil {
		return nil, err
	}
	return &difference{before: p.before, after: after}, nil
}

// flag is the flag that a failure is about.
func (p *patch) flag() string {
	if p.settings.file == "" {
		return "--apply"
	}
	return "--patch"
}

// difference is the changes between two snapshots.
type difference struct{ before, after *env.Snapshot }

func (d *difference) WritePatch(ctx context.Context, w io.Writer) (env.PatchStats, error) {
	return env.WritePatch(ctx, w, d.before, d.after)
}

func (d *difference) Close() error { return d.after.Close() }

func (p *patch) close() {
	if p != nil && p.before != nil {
		_ = p.before.Close() // it was only read
	}
}

// keepPatch writes a patch for which no file was named to the state folder, or else to the one for temporary files.
func keepPatch(write func(io.Writer) error) (string, error) {
	dir, err := stateDir()
	if err == nil && dir != "" {
		dir = filepath.Join(dir, "patches")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = ""
	}
	f, err := os.CreateTemp(dir, time.Now().Format("20060102-150405-*.patch"))
	if err != nil {
		return "", fmt.Errorf("the patch cannot be kept: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return "", fmt.Errorf("the patch cannot be kept: %w", err)
	}
	return f.Name(), nil
}

// writableFile returns the absolute name of a file that replaceFile will be able to write, with links resolved.
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
	f, err := os.OpenFile(filepath.Join(filepath.Dir(name), nameBeside(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return name, errors.Join(f.Close(), os.Remove(f.Name()))
}

// nameBeside is a name of its own for a file in the folder of name.
func nameBeside(name string) string {
	return fmt.Sprintf(".%s.%016x", filepath.Base(name), rand.Uint64())
}

// replaceFile makes the file name hold what write gives, in one step: nobody sees half of it. A new file gets mode, less the
// umask. A device or a pipe is written to as it is.
func replaceFile(name string, mode fs.FileMode, write func(io.Writer) error) error {
	d, err := findDestination(name)
	if err != nil {
		return err
	}
	return d.replace(mode, write)
}

// destination is where a file will be written, as it was found before a command ran: what the command makes of the name
// leads nowhere else.
type destination struct {
	// name is absolute.
	name string
	// folder is the folder of name with links resolved.
	folder string
	// special is what name is, if that is a device or a pipe.
	special fs.FileInfo
}

// findDestination looks at name, which is absolute and no folder.
func findDestination(name string) (destination, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return destination{name: name, special: info}, nil
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

// writeThrough writes to a device or a pipe, unless another one has taken its place: to open that might wait for ever.
func (d destination) writeThrough(write func(io.Writer) error) error {
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
