package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// CheckAccess returns an *Error if root could not work in dir inside a sandbox, where it lacks the
// capabilities that override file modes. It returns nil for other users.
func CheckAccess(dir string) error {
	if os.Geteuid() != 0 {
		return nil // a directory that they cannot use outside either is not the sandbox's concern
	}
	for part, want := dir, uint32(0o7); ; part, want = filepath.Dir(part), 0o1 {
		var stat unix.Stat_t
		if err := unix.Stat(part, &stat); err != nil {
			return &os.PathError{Op: "stat", Path: part, Err: err}
		}
		switch granted := rootAccess(&stat)&want == want; {
		case granted && part == "/":
			return nil
		case granted:
		case stat.Uid == 0:
			// No *Error: a command could have set the mode to get no sandbox the next time.
			return fmt.Errorf(
				"the mode of %s excludes its own user, root, inside a sandbox (change it, or work "+
					"without a sandbox): %w",
				part,
				os.ErrInvalid,
			)
		default:
			return &Error{
				Err: fmt.Errorf(
					"%s belongs to user %d, and root cannot override modes inside a sandbox "+
						"(run this as that user, or without a sandbox)",
					part,
					stat.Uid,
				),
			}
		}
	}
}

// rootAccess returns the permission bits that root has without capabilities.
func rootAccess(stat *unix.Stat_t) uint32 {
	switch {
	case stat.Uid == 0:
		return stat.Mode >> 6 & 0o7
	case stat.Gid == 0:
		return stat.Mode >> 3 & 0o7
	}
	return stat.Mode & 0o7
}

// mountable returns name, or its outermost ancestor that root cannot enter without capabilities.
// Bubblewrap has none over the files of other accounts: it can mount over that ancestor, but over
// nothing below it.
func mountable(name string) string {
	if os.Geteuid() != 0 {
		return name // other users do not see its files
	}
	for i, c := range name {
		if c != '/' || i == 0 {
			continue
		}
		var stat unix.Stat_t
		if unix.Stat(name[:i], &stat) == nil && rootAccess(&stat)&0o1 == 0 {
			return name[:i]
		}
	}
	return name
}

// hideMountable replaces each element of p.Hidden that bubblewrap cannot mount over by an ancestor,
// and hides such ancestors of sockets too. It keeps an element whose ancestor contains a visible
// directory: bubblewrap then reports the directory that it cannot reach.
func (p *Plan) hideMountable(sockets []string) {
	visible := slices.Concat(p.Write, p.Read, p.ReadOnly)
	replace := func(name string) string {
		dir := mountable(name)
		if slices.ContainsFunc(visible, func(v string) bool { return Within(v, dir) }) {
			return name
		}
		return dir
	}
	hidden := slices.Clone(p.Hidden)
	for i, name := range hidden {
		if !p.belowWritable(name) {
			hidden[i] = replace(name)
		}
	}
	for _, name := range sockets {
		if dir := replace(name); dir != name && !p.isHidden(name) {
			hidden, p.socketDirs = append(hidden, dir), append(p.socketDirs, dir)
		}
	}
	slices.Sort(hidden)
	p.Hidden = slices.Compact(hidden)
}
