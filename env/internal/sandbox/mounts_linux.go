package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func mountOf(m *mountinfo.Info) Mount {
	return Mount{Point: m.Mountpoint, Major: m.Major, Minor: m.Minor, Root: m.Root}
}

// observe records the state of the machine that the plan depends on, from outside the sandbox.
func (p *Plan) observe(mounts mountTable) error {
	p.Observed = Observed{Files: make(map[string]File), Namespaces: make(map[string]string)}
	for _, name := range slices.Concat(p.Write, p.guardedDirs(), p.ReadOnly) {
		file, err := identify(name)
		if err != nil {
			return err
		}
		p.Observed.Files[name] = file
	}
	for _, m := range mounts {
		if p.mayChange(m.Mountpoint) {
			p.Observed.Mounts = append(p.Observed.Mounts, mountOf(m))
		}
	}
	for _, kind := range []string{"user", "mnt", "pid", "ipc", "uts", "net"} {
		if kind == "net" && p.Network {
			continue
		}
		var err error
		if p.Observed.Namespaces[kind], err = os.Readlink("/proc/self/ns/" + kind); err != nil {
			return err
		}
	}
	return nil
}

// mayChange reports whether name is writable by the plan.
func (p *Plan) mayChange(name string) bool {
	return slices.ContainsFunc(p.Write, func(w string) bool { return Within(name, w) })
}

// identify returns the file that a name refers to. It does not follow a symlink.
func identify(name string) (File, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(name, &stat); err != nil {
		return File{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return File{Device: stat.Dev, Inode: stat.Ino}, nil
}

// verifyObserved compares this side of the sandbox with p.Observed.
func (p *Plan) verifyObserved() error {
	for kind, outside := range p.Observed.Namespaces {
		inner, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		if inner == outside {
			return fmt.Errorf("no %s namespace: the process has that of the host", kind)
		}
	}
	for name, outside := range p.Observed.Files {
		if p.isHidden(name) {
			continue
		}
		switch file, err := identify(name); {
		case err != nil:
			return err
		case file != outside:
			return fmt.Errorf("%s has become something else while the sandbox was made", name)
		}
	}
	return p.verifyMounts()
}

// verifyMounts returns an error if a mount is writable that the plan does not have.
func (p *Plan) verifyMounts() error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	planned := slices.Concat(p.guardedDirs(), p.Write, p.Reopened)
	for _, m := range mounts {
		switch point := m.Mountpoint; {
		case slices.Contains(strings.Split(m.Options, ","), "ro"):
		case m.FSType == "tmpfs" && slices.Contains(privateDirs(), point), Within(point, "/dev"):
		case slices.Contains(planned, point) && p.mayChange(point),
			slices.Contains(p.Observed.Mounts, mountOf(m)):
		case !writable(point): // for it is covered, or not for this user
		default:
			return fmt.Errorf("%s can be changed, which was not planned", point)
		}
	}
	return nil
}

// writable reports whether name can be reached and is not mounted read-only.
func writable(name string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(name, &stat) == nil && stat.Flags&unix.ST_RDONLY == 0
}
