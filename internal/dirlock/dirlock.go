// Package dirlock lets one process at a time work in a directory.
package dirlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// Name is the name of the lock in its directory.
const Name = "lock"

// lockTime bounds the wait for a process that only looks whether another one has the lock.
const lockTime = time.Second

// ErrHeld means that another process has the lock.
var ErrHeld = errors.New("another process has the lock")

// Lock is the lock of a directory. Its end is that of Close or of the process.
type Lock struct{ file *flock.Flock }

// Acquire locks the directory dir, which exists. The error is ErrHeld if another process, or this
// one, has the lock.
func Acquire(dir string) (*Lock, error) {
	file := flock.New(filepath.Join(dir, Name), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	switch locked, err := file.TryLockContext(ctx, lockTime/20); {
	case errors.Is(err, context.DeadlineExceeded), err == nil && !locked:
		return nil, ErrHeld
	case err != nil:
		return nil, err
	}
	return &Lock{file}, nil
}

// Close ends the lock.
func (l *Lock) Close() error { return l.file.Close() }

// Held reports whether a process has the lock of the directory dir.
func Held(dir string) bool {
	name := filepath.Join(dir, Name)
	if _, err := os.Stat(name); err != nil {
		return false
	}
	file := flock.New(name, flock.SetFlag(os.O_RDONLY))
	locked, err := file.TryRLock()
	if locked {
		_ = file.Close() // it was only a look
	}
	return err == nil && !locked
}
