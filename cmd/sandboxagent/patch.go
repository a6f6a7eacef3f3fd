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
)

// patchTime bounds taking the last snapshot and writing the patch, which also happens after a time-out or a signal.
const patchTime = 2 * time.Minute

// patch is the --patch of a command: the difference that the command makes to the working folder. A nil patch does
// nothing.
type patch struct {
	file   string
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

// startPatch takes the first snapshot, for a file that checkPatch has found good. An empty file gives a nil patch.
func startPatch(ctx context.Context, file string, e env.Environment) (*patch, error) {
	if file == "" {
		return nil, nil
	}
	file, err := writableFile(file)
	if err != nil {
		return nil, usagef("--patch: %s", err)
	}
	before, err := env.TakeSnapshot(ctx, e, "", env.SnapshotOptions{})
	if err != nil {
		return nil, fmt.Errorf("--patch: %w", err)
	}
	return &patch{file: file, before: before}, nil
}

// finish takes the last snapshot and writes the patch. It has a time of its own, since the context of the command may be
// over. It returns the name of the file.
func (p *patch) finish(ctx context.Context, e env.Environment) (string, error) {
	if p == nil {
		return "", nil
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTime)
	defer cancel()
	after, err := env.TakeSnapshot(ctx, e, "", env.SnapshotOptions{Base: p.before})
	if err != nil {
		return "", fmt.Errorf("--patch: %w", err)
	}
	defer after.Close() //nolint:errcheck // it was only read
	err = replaceFile(p.file, 0o666, func(w io.Writer) error {
		_, err := env.WritePatch(ctx, w, p.before, after)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("--patch: %w", err)
	}
	return p.file, nil
}

func (p *patch) close() {
	if p != nil {
		_ = p.before.Close() // it was only read
	}
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
	f, err := createBeside(name, 0o600)
	if err != nil {
		return "", err
	}
	return name, errors.Join(f.Close(), os.Remove(f.Name()))
}

// createBeside makes a new file with a name of its own in the folder of name.
func createBeside(name string, mode fs.FileMode) (*os.File, error) {
	own := fmt.Sprintf(".%s.%016x", filepath.Base(name), rand.Uint64())
	f, err := os.OpenFile(filepath.Join(filepath.Dir(name), own), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return f, nil
}

// replaceFile makes the file name hold what write gives, in one step: nobody sees half of it. A new file gets mode, less the
// umask. A device or a pipe is written to as it is.
func replaceFile(name string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	info, statErr := os.Stat(name)
	if statErr == nil && !info.Mode().IsRegular() {
		return writeThrough(name, write)
	}
	f, err := createBeside(name, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error counts
		}
	}()
	err = write(f)
	if err == nil && statErr == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func writeThrough(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
