package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Versions of Landlock's interface.
const (
	// leastABI is the first version that restricts truncation.
	leastABI = 3
	// scopeABI restricts signals and abstract sockets.
	scopeABI = 6
	// socketABI restricts connections to the unix sockets of others.
	socketABI = 9
)

// devices are the devices that programs expect.
var devices = []string{
	"/dev/null",
	"/dev/zero",
	"/dev/full",
	"/dev/random",
	"/dev/urandom",
	"/dev/tty",
	"/dev/ptmx",
	"/dev/pts",
}

// landlockABI returns the version of the kernel's interface, or why it has none.
func landlockABI() (int, error) {
	version, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION,
	)
	switch {
	case errno == unix.ENOSYS:
		return 0, errors.New("the kernel has none, or a filter of system calls hides it")
	case errno == unix.EOPNOTSUPP:
		return 0, errors.New("it is switched off; the kernel's parameter lsm= must name landlock")
	case errno == unix.EPERM:
		return 0, fmt.Errorf(
			"a filter of system calls, such as that of a container, refuses it: %w", errno,
		)
	case errno != 0:
		return 0, os.NewSyscallError("landlock_create_ruleset", errno)
	case version < leastABI:
		return 0, fmt.Errorf(
			"the kernel has version %d, which does not restrict truncation; version %d is "+
				"needed (Linux 6.2)",
			version,
			leastABI,
		)
	}
	return int(version), nil
}

// planLandlock completes a plan. Landlock can hide or protect nothing below a writable path.
func planLandlock(p Plan) (Plan, error) {
	if _, err := landlockABI(); err != nil {
		return Plan{}, &Error{By: Landlock, Err: err}
	}
	for _, name := range p.Hidden {
		if p.belowWritable(name) && exists(name) {
			p.Exposed = append(p.Exposed, name)
		}
	}
	if p.readOnlyInWritable {
		return Plan{}, &Error{
			By: Landlock,
			Err: errors.New(
				"the program that starts the sandbox is in a writable directory, where it cannot be protected",
			),
		}
	}
	p.By = Landlock
	return p, nil
}

// Access rights by the version that introduced them.
const (
	rightsToExecute = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	rightsToFiles   = rightsToExecute | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	rightsToDevices = rightsToFiles | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsToRead   = rightsToExecute | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsVersion1 = 1<<13 - 1
	scopes         = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	networkRights  = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
)

// rulesetAttr returns the operations that a version can restrict, without the network if network is
// set, and the rights of a writable directory.
func rulesetAttr(version int, network bool) (attr unix.LandlockRulesetAttr, change uint64) {
	change = rightsVersion1 | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	attr.Handled_access_fs = change
	if version >= 4 && !network {
		attr.Handled_access_net = networkRights
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= scopeABI {
		attr.Scoped = scopes
	}
	if version >= socketABI {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return attr, change
}

// ruleset is a set of rules under construction.
type ruleset struct {
	fd     int
	access uint64 // the restricted operations
}

// restrict applies Landlock to this thread and its descendants: they can read all but hidden
// files and change writable ones. Other threads are left out: each would get a separate domain, and
// could not signal processes that another has started.
func (p *Plan) restrict() error {
	version, err := landlockABI()
	if err != nil {
		return err
	}
	parentDirs, files, err := p.readablePaths()
	if err != nil {
		return err
	}
	attr, change := rulesetAttr(version, p.Network || p.By == Bubblewrap)
	fd, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0,
	)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	set := ruleset{fd: int(fd), access: attr.Handled_access_fs}
	defer unix.Close(set.fd) //nolint:errcheck // it has served
	for _, name := range parentDirs {
		err = errors.Join(err, set.allow(name, rightsToRead))
	}
	for _, name := range files {
		err = errors.Join(err, set.allow(name, rightsToRead))
	}
	// This program is executed again. As an unnamed file it needs no rule.
	self := set.allow("/proc/self/exe",
		rightsToExecute)
	if !errors.Is(self, unix.EBADFD) {
		err = errors.Join(err, self)
	}
	writable := append(slices.Clone(p.Write), p.Temp)
	if p.By == Bubblewrap {
		writable = append(append(writable, privateDirs()...), "/dev")
		// Hidden paths have empty mounts over them.
		err = errors.Join(err, set.allow("/", unix.LANDLOCK_ACCESS_FS_READ_DIR),
			set.allow("/dev", unix.LANDLOCK_ACCESS_FS_IOCTL_DEV))
	} else {
		for _, name := range devices {
			err = errors.Join(err, set.allow(name, rightsToDevices))
		}
		err = errors.Join(err, set.allow("/dev", unix.LANDLOCK_ACCESS_FS_READ_DIR))
	}
	for _, name := range writable {
		err = errors.Join(err, set.allow(name, change))
	}
	if err != nil {
		return err
	}
	return set.restrict()
}

// restrict applies the rules to this thread.
func (s ruleset) restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.fd), 0,
		0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// allow grants rights to name and everything below it. A missing name is ignored.
func (s ruleset) allow(name string, rights uint64) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // it has served
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsToDevices
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & s.access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(
		unix.SYS_LANDLOCK_ADD_RULE,
		uintptr(s.fd),
		unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)),
		0,
		0,
		0,
	)
	if errno != 0 {
		return &os.PathError{Op: "landlock_add_rule", Path: name, Err: errno}
	}
	return nil
}

// readablePaths returns directories and files that together are the file system without the hidden
// paths and their ancestors: a right to a directory covers everything below it. Of directories that
// cannot be listed it returns the known entries.
func (p *Plan) readablePaths() (dirs, files []string, err error) {
	var visit func(dir string) error
	visit = func(dir string) error {
		if dir == "/dev" && !slices.Contains(p.Read, dir) {
			return nil // it has disks, which root can read
		}
		leads := slices.ContainsFunc(p.Hidden, func(h string) bool { return h != dir && Within(h, dir) })
		switch {
		case p.isHidden(dir):
			return nil
		case !leads && dir != "/":
			dirs = append(dirs, dir)
			return nil
		}
		entries, err := p.children(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir():
				if err := visit(name); err != nil {
					return err
				}
			case e.Type() != os.ModeSymlink && !slices.Contains(p.Hidden, name):
				files = append(files, name)
			}
		}
		return nil
	}
	err = visit("/")
	for _, name := range p.Read {
		if isDir(name) {
			err = errors.Join(err, visit(name))
		} else {
			files = append(files, name)
		}
	}
	for _, name := range p.Write {
		if isDir(name) {
			dirs = append(dirs, name)
		} else {
			files = append(files, name)
		}
	}
	return dirs, files, err
}

// children returns the entries of dir. Of one that cannot be listed, but may be entered, it returns
// the entries with known names: system directories, and ancestors of hidden paths.
func (p *Plan) children(dir string) (entries []os.DirEntry, err error) {
	entries, err = os.ReadDir(dir)
	if !errors.Is(err, os.ErrPermission) {
		return entries, err
	}
	var names []string
	for _, name := range slices.Concat(p.Hidden, systemDirs, kernelDirs) {
		if name == dir || !Within(name, dir) {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"), "/")
		if slices.Contains(names, first) {
			continue
		}
		names = append(names, first)
		// Some are missing, or not for this user.
		if info, err := os.Lstat(filepath.Join(dir, first)); err == nil {
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
	}
	return entries, nil
}
