//go:build unix

package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock notes that the placeholders in a repository are in use. What cannot be locked is as if nobody else used it.
func (p *Plan) lock(git string) {
	f, err := os.Open(git)
	if err != nil {
		return
	}
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.locks = append(p.locks, f)
}

// last reports whether no other plan uses placeholders in the same repositories. No other one begins to until unlock.
func (p *Plan) last() bool {
	for _, f := range p.locks {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return false
		}
	}
	return true
}

// unlock ends the use of what lock has noted.
func (p *Plan) unlock() {
	for _, f := range p.locks {
		_ = f.Close()
	}
	p.locks = nil
}

// Usable returns an *Error if this process could do nothing in a folder: in a sandbox, root has no more rights than other users.
func Usable(dir string) error {
	if os.Geteuid() != 0 {
		return nil // who cannot use it without a sandbox cannot either
	}
	for part, want := dir, uint32(0o7); ; part, want = filepath.Dir(part), 0o1 {
		var stat unix.Stat_t
		if err := unix.Stat(part, &stat); err != nil {
			return &os.PathError{Op: "stat", Path: part, Err: err}
		}
		mode := uint32(stat.Mode) //nolint:unconvert // it has another size on some systems
		switch {
		case stat.Uid == 0:
			mode >>= 6
		case stat.Gid == 0:
			mode >>= 3
		}
		if mode&want != want {
			return &Error{Err: fmt.Errorf("%s belongs to user %d, and in a sandbox root has no rights there that others do not have; run this as that user, or without a sandbox", part, stat.Uid)}
		}
		if part == "/" {
			return nil
		}
	}
}
