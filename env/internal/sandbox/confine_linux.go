package sandbox

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// rightsToChange are the rights to change files and directories.
const rightsToChange = rightsVersion1&^rightsToRead | unix.LANDLOCK_ACCESS_FS_REFER |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE

// Confinements returns the guarantee env.ConfinedCommands.
func Confinements() env.Guarantee {
	if _, err := landlockABI(); err != nil {
		return env.Guarantee{
			Name: env.ConfinedCommands, Strength: env.Absent, By: "Landlock is missing: " + err.Error(),
		}
	}
	return env.Guarantee{
		Name: env.ConfinedCommands, Strength: env.Enforced,
		By: "Landlock; modes, owners and times of files can be changed",
	}
}

// Confine restricts this thread, and the processes that it starts, to what c allows, and to devices
// and the directory temp. The thread must be locked, and must not be unlocked again. Names are
// absolute.
func Confine(c env.Confinement, temp string) error {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rightsToChange}
	if c.Hide != "" {
		attr.Handled_access_fs |= rightsToRead
	}
	fd, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0,
	)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	set := ruleset{fd: int(fd), access: attr.Handled_access_fs}
	defer unix.Close(set.fd) //nolint:errcheck // it has served
	var err error
	if c.Hide != "" {
		p := Plan{Hidden: []string{c.Hide}, Write: append(c.Read, c.Write...)}
		dirs, files, readErr := p.readablePaths()
		err = readErr
		for _, name := range append(dirs, files...) {
			err = errors.Join(err, set.allow(name, rightsToRead))
		}
		err = errors.Join(err, set.allow("/dev", unix.LANDLOCK_ACCESS_FS_READ_DIR))
	}
	for _, name := range devices {
		err = errors.Join(err, set.allow(name, rightsToDevices))
	}
	for _, name := range append([]string{temp, "/dev/shm"}, c.Write...) {
		err = errors.Join(err, set.allow(name, rightsToChange|rightsToRead))
	}
	if err != nil {
		return err
	}
	return set.restrict()
}
