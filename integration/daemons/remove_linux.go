package daemons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bridgePrefix begins the names of bridges. A number follows, which is part of the addresses in it:
// as no two devices have the same name, no two bridges have the same addresses.
const bridgePrefix = "sandboxtest"

// addBridge makes a bridge for the daemon whose directory has the given name, which becomes the
// bridge's alias.
func addBridge(name string) (string, error) {
	var last error
	for n := range 256 {
		// 198.18.0.0/15 is reserved for tests of networks.
		device, address := bridgePrefix+strconv.Itoa(n), fmt.Sprintf("198.18.%d.1/24", n)
		if _, err := net.InterfaceByName(device); err == nil {
			continue
		}
		if last = ip("link", "add", "name", device, "type", "bridge"); last != nil {
			continue
		}
		err := ip("link", "set", "dev", device, "alias", name, "up")
		if err == nil {
			err = ip("address", "add", address, "dev", device)
		}
		if err != nil {
			return "", errors.Join(err, ip("link", "delete", device))
		}
		return device, nil
	}
	return "", errors.Join(errors.New("no bridge can be made"), last)
}

// removeBridges removes the bridges of the daemon whose directory has the given name.
func removeBridges(name string) error {
	aliases, err := filepath.Glob("/sys/class/net/" + bridgePrefix + "*/ifalias")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range aliases {
		if alias, err := os.ReadFile(file); err == nil && string(bytes.TrimSpace(alias)) == name {
			errs = append(errs, ip("link", "delete", filepath.Base(filepath.Dir(file))))
		}
	}
	return errors.Join(errs...)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// sweep removes the leftovers of daemons below dir whose makers have ended, and whose directories
// have names with a prefix.
func sweep(dir, prefix string) error {
	// Other processes that start daemons do the same.
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // it was only locked
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	directories, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return err
	}
	for _, directory := range directories {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(directory), prefix), "-")
		pid, err := strconv.Atoi(number)
		if err != nil || alive(pid) {
			continue
		}
		if err := remove(directory); err != nil {
			return err
		}
	}
	return nil
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name of the program stands in parentheses and may hold any character; the state follows.
	state, found := bytes.CutPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

// remove ends the processes of the daemon whose directory is dir, removes its bridge, its control
// groups and the directory, and fails if something is left.
func remove(dir string) error {
	err := wait(context.Background(), stopTimeout, func() bool {
		pids := members(filepath.Base(dir))
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		return len(pids) == 0
	})
	if err != nil {
		err = fmt.Errorf("processes of the daemon in %s do not end: %v: %w", dir,
			members(filepath.Base(dir)), err)
	}
	errs := []error{err}
	errs = append(errs, removeBridges(filepath.Base(dir)), removeGroups(filepath.Base(dir)))
	// The last mounts vanish when the kernel has cleared the namespace away, shortly after its last
	// process ended.
	var left error
	if err := wait(context.Background(), stopTimeout,
		func() bool { left = os.RemoveAll(dir); return left == nil }); err != nil {
		errs = append(errs, left)
	}
	return errors.Join(errs...)
}

// members returns the processes in the mount namespaces that hold a mount of the daemon whose
// directory has the given name: the daemon, its containerd, their shims, and the
// processes of containers. The caller's namespace is excluded.
func members(name string) []int {
	own, _ := os.Readlink("/proc/self/ns/mnt")
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if space, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/mnt")); err != nil ||
			space == own {
			continue // it has ended, or is not the daemon's
		}
		mounts, err := os.ReadFile(filepath.Join("/proc", e.Name(), "mountinfo"))
		if err == nil && bytes.Contains(mounts, []byte(name)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeGroups removes the control groups below the one with the given name, in every hierarchy.
func removeGroups(name string) error {
	roots, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range append(roots, filepath.Join("/sys/fs/cgroup", name)) {
		var dirs []string
		_ = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, dir)
			}
			return nil // a group that is gone is no error
		})
		for _, dir := range slices.Backward(dirs) {
			err := wait(context.Background(), stopTimeout, func() bool {
				err := unix.Rmdir(dir)
				return err == nil || errors.Is(err, unix.ENOENT)
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("remove control group %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
