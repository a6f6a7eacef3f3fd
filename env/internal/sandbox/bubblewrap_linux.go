package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// bubblewraps are the paths of bubblewrap. PATH is ignored: its first directory may be in the
// workspace.
var bubblewraps = []string{
	"/usr/bin/bwrap",
	"/bin/bwrap",
	"/usr/local/bin/bwrap",
	"/run/current-system/sw/bin/bwrap",
	"/run/wrappers/bin/bwrap",
}

// privateDirs returns the directories that start empty and are private to the sandbox.
var privateDirs = sync.OnceValue(func() []string {
	return slices.DeleteFunc(
		[]string{"/tmp", "/var/tmp"}, func(name string) bool { return !isDir(name) },
	)
})

// maxSockets bounds the sockets that are hidden one by one. Bubblewrap takes 9,000 arguments.
const maxSockets = 1000

// runtimeState are the parts of /run that hold programs or settings, and no sockets.
var runtimeState = []string{
	"/run/current-system",
	"/run/booted-system",
	"/run/opengl-driver",
	"/run/wrappers",
}

// findBubblewrap returns the first trusted program among candidates.
func findBubblewrap(candidates []string) (string, error) {
	var found error
	var seen []string
	for _, name := range candidates {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			if slices.Contains(seen, real) {
				continue
			}
			seen = append(seen, real)
		}
		err := trusted(name)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			found = errors.Join(found, err)
		}
	}
	if found == nil {
		found = fmt.Errorf("the program bwrap is not installed; it is looked for in %s",
			strings.Join(parentDirs(candidates), ", "))
	}
	return "", found
}

func parentDirs(names []string) (dirs []string) {
	for _, name := range names {
		dirs = append(dirs, filepath.Dir(name))
	}
	return dirs
}

// trusted returns an error if another user than root can change the program or a directory above
// it.
func trusted(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	for part := real; ; part = filepath.Dir(part) {
		info, err := os.Lstat(part)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case part == real && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
			return fmt.Errorf("%s is not a program", real)
		case !ok || stat.Uid != 0:
			return fmt.Errorf(
				"%s is not taken: %s belongs to user %d, and not to root", name, part, stat.Uid,
			)
		case info.Mode()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s is not taken: others than root may change %s", name, part)
		case part == "/":
			return nil
		}
	}
}

// planBubblewrap completes a plan.
func planBubblewrap(p Plan) (Plan, error) {
	program, err := findBubblewrap(bubblewraps)
	if err != nil {
		return Plan{}, &Error{By: Bubblewrap, Err: err}
	}
	p.By, p.program, p.Temp = Bubblewrap, program, "/tmp"
	mounts, err := readMounts()
	if err != nil {
		return Plan{}, &Error{By: Bubblewrap, Err: err}
	}
	var known []string
	if landlock, _ := landlockABI(); !p.NoUnixSockets {
		known = sockets(mounts, landlock < socketABI)
	}
	p.hideMountable(known)
	for _, name := range known {
		if !p.socketHidden(name) {
			p.Sockets = append(p.Sockets, name)
		}
	}
	if len(p.Sockets) > maxSockets {
		return Plan{}, &Error{
			By: Bubblewrap,
			Err: fmt.Errorf(
				"%d sockets of other programs to hide, more than %d", len(p.Sockets), maxSockets,
			),
		}
	}
	if err := p.observe(mounts); err != nil {
		return Plan{}, &Error{By: Bubblewrap, Err: err}
	}
	return p, nil
}

// socketHidden reports whether the name of a socket needs no mount of its own: it is not visible
// anyway, or the policy allows it by its name or that of a writable directory.
func (p *Plan) socketHidden(name string) bool {
	within := func(dir string) bool { return Within(name, dir) }
	return p.inEmptyDir(name) || slices.Contains(p.Read, name) ||
		slices.ContainsFunc(slices.Concat([]string{"/dev", "/proc"}, p.Write), within) ||
		p.isHidden(name)
}

// arguments returns the options of bwrap. Later mounts cover earlier ones.
func (p *Plan) arguments() []string {
	args := []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
	}
	if !p.Network {
		args = append(args, "--unshare-net")
	}
	// Mount points can be created in a file system only while it is writable. Root outside is root
	// in the sandbox too, and owns the settings of the kernel.
	last := []string{"--remount-ro", "/proc"}
	bind := func(how string, names []string) {
		for _, name := range names {
			args = append(args, how, name, name)
		}
	}
	hide := func(names []string) {
		for _, name := range names {
			switch {
			case p.inEmptyDir(name) && !slices.Contains(p.homes, name), !exists(name):
			case isDir(name):
				args, last = append(args, "--tmpfs", name), append(last, "--remount-ro", name)
			default:
				args = append(args, "--ro-bind", os.DevNull, name)
			}
		}
	}
	for _, dir := range privateDirs() {
		args = append(args, "--perms", "1777", "--tmpfs", dir)
	}
	if isDir("/run") {
		args, last = append(args, "--tmpfs", "/run"), append(last, "--remount-ro", "/run")
		bind("--ro-bind", p.runtime())
	}
	if p.WorkTree != "" &&
		slices.ContainsFunc(append([]string{"/run"}, privateDirs()...),
			func(dir string) bool { return Within(p.WorkTree, dir) }) {
		bind("--ro-bind", []string{p.WorkTree})
	}
	// Inner paths come after outer ones.
	cover := func(names []string) {
		for _, name := range names {
			if slices.Contains(p.Hidden, name) {
				hide([]string{name})
			} else {
				bind("--ro-bind", []string{name})
			}
		}
	}
	covers := slices.Sorted(slices.Values(slices.Concat(p.Hidden, p.Read)))
	cover(covers)
	for _, name := range slices.Sorted(maps.Keys(p.Links)) {
		args = append(args, "--symlink", p.Links[name], name)
	}
	hide(p.Sockets)
	bind("--bind", p.Write)
	bind("--bind", p.guardedDirs())
	bind("--ro-bind", p.ReadOnly)
	bind("--bind", p.Reopened)
	for _, name := range p.Placeholders {
		if filepath.Base(name) == "hooks" {
			args, last = append(args, "--tmpfs", name), append(last, "--remount-ro", name)
		} else {
			args = append(args, "--ro-bind", os.DevNull, name)
		}
	}
	// Hidden paths stay hidden below the mounts made since.
	cover(slices.DeleteFunc(covers, func(name string) bool {
		return !p.belowWritable(name) || !slices.ContainsFunc(p.Hidden, func(hidden string) bool {
			return Within(name, hidden) && p.belowWritable(hidden)
		})
	}))
	return append(append(args, last...), "--chdir", "/", "--")
}

// inEmptyDir reports whether name is in a directory that starts empty, and in no part of it that
// stays visible.
func (p *Plan) inEmptyDir(name string) bool {
	within := func(dir string) bool { return dir != "" && Within(name, dir) }
	if p.belowWritable(name) || !within("/run") && !slices.ContainsFunc(privateDirs(), within) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(p.Read, []string{p.WorkTree}, p.runtime()), within)
}

// runtime returns the parts of /run that stay visible.
func (p *Plan) runtime() (names []string) {
	candidates := runtimeState
	if p.Network {
		// It often has the settings of the resolver.
		if conf, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
			candidates = append(candidates, conf)
		}
	}
	for _, name := range candidates {
		if Within(name, "/run") && exists(name) {
			names = append(names, name)
		}
	}
	return names
}
