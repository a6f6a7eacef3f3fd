package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// lock marks the placeholders of a repository as in use. A repository that cannot be locked counts
// as unused by others.
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

// locked returns the git directories that are locked.
func (p *Plan) locked() (names []string) {
	for _, f := range p.locks {
		names = append(names, f.Name())
	}
	return names
}

// remove removes a file or an empty directory of a repository, and, with onlyPlaceholder, nothing
// that has content. It acts in the directory that was locked: a command may have replaced it by
// a symlink.
func (p *Plan) remove(name string, onlyPlaceholder bool) (removed bool, err error) {
	at, base, dir := unix.AT_FDCWD, name, filepath.Dir(name)
	i := slices.IndexFunc(p.locks, func(f *os.File) bool { return f.Name() == dir })
	if i >= 0 {
		at, base = int(p.locks[i].Fd()), filepath.Base(name)
	} else if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
		return false, nil
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(at, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, nil // it does not exist
	}
	flags, kind := 0, stat.Mode&unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	case onlyPlaceholder && (kind != unix.S_IFREG || stat.Size != 0):
		return false, nil
	}
	if err := unix.Unlinkat(at, base, flags); err != nil {
		return false, &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return true, nil
}

// lastUser reports whether no other plan uses placeholders in the same repositories. None can until
// unlock.
func (p *Plan) lastUser() bool {
	for _, f := range p.locks {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return false
		}
	}
	return true
}

// unlock releases the locks.
func (p *Plan) unlock() {
	for _, f := range p.locks {
		_ = f.Close()
	}
	p.locks = nil
}
