package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// rightsToChange are the rights to change files and directories. Of these, confined commands never
// make devices.
const (
	rightsToChange = rightsVersion1&^rightsToRead | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE
	rightsToDevice = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// keptCapabilities are those that confined commands may have: for owners and modes of files.
const keptCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID

// Confinements returns the guarantee env.ConfinedCommands.
func Confinements() env.Guarantee {
	version, err := landlockABI()
	if err != nil {
		return env.Guarantee{
			Name: env.ConfinedCommands, Strength: env.Absent, By: "Landlock is missing: " + err.Error(),
		}
	}
	g := env.Guarantee{
		Name: env.ConfinedCommands, Strength: env.Enforced,
		By: fmt.Sprintf("Landlock, version %d; modes, owners, times and attributes of files can be "+
			"changed, and programs outside that act for a command are not confined", version),
	}
	// A process that is like the thread that starts a command may be traced by that command.
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || dumpable == 1 {
		g.Strength = env.BestEffort
		g.By += "; a hostile command could attach to this program, which is dumpable"
	}
	return g
}

// StartConfined calls start on a thread of its own that is restricted to what c allows, and to
// devices and the directory temp, as are the processes that start creates. Names are absolute. The
// error is that of the restriction, in which case start was not called.
func StartConfined(c env.Confinement, temp string, start func()) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			// The thread stays locked, and so ends with this goroutine.
			if err = confineThread(c, temp); err == nil {
				start()
			}
			return
		}
		// The first thread would remain, and the process would look like it. While this goroutine holds
		// it, another one gets another thread.
		defer runtime.UnlockOSThread()
		err = StartConfined(c, temp, start)
	}()
	<-done
	return err
}

// confineThread restricts this thread, and the processes that it starts.
func confineThread(c env.Confinement, temp string) error {
	version, err := landlockABI()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rightsToChange}
	if c.Hide != "" {
		attr.Handled_access_fs |= rightsToRead
	}
	if version >= scopeABI {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0,
	)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	set := ruleset{fd: int(fd), access: attr.Handled_access_fs}
	defer unix.Close(set.fd) //nolint:errcheck // it has served
	if err := set.allowConfinement(c, temp); err != nil {
		return err
	}
	if err := limitCapabilities(); err != nil {
		return err
	}
	return set.restrict()
}

// allowConfinement adds the rules of a confinement.
func (s ruleset) allowConfinement(c env.Confinement, temp string) (err error) {
	change := uint64(rightsToChange|rightsToRead) &^ rightsToDevice
	inTemp := change
	if c.Hide != "" {
		// A program outside that follows a symlink for the command would reach hidden files.
		change &^= unix.LANDLOCK_ACCESS_FS_MAKE_SYM
		p := Plan{Hidden: []string{c.Hide}, Write: slices.Concat(c.Read, c.Write)}
		dirs, files, readErr := p.readablePaths()
		err = readErr
		for _, name := range append(dirs, files...) {
			err = errors.Join(err, s.allow(name, rightsToRead))
		}
		err = errors.Join(err, s.allow("/dev", unix.LANDLOCK_ACCESS_FS_READ_DIR))
	}
	for _, name := range devices {
		err = errors.Join(err, s.allow(name, rightsToDevices))
	}
	err = errors.Join(err, s.allow(temp, inTemp))
	for _, name := range c.Write {
		err = errors.Join(err, s.allow(name, change))
	}
	return err
}

// limitCapabilities leaves this thread keptCapabilities, of those that it has.
func limitCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	held[0].Effective &= keptCapabilities
	held[0].Permitted &= keptCapabilities
	held[0].Inheritable &= keptCapabilities
	held[1] = unix.CapUserData{}
	return os.NewSyscallError("capset", unix.Capset(&header, &held[0]))
}
