package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"
)

// Mechanisms returns the mechanisms of this system, the stronger one first.
func Mechanisms() []Mechanism { return []Mechanism{Bubblewrap, Landlock} }

// Available returns an *Error if a mechanism cannot work on this machine, without starting
// anything.
func Available(by Mechanism) error {
	var err error
	switch by {
	case Bubblewrap:
		_, err = findBubblewrap(bubblewraps)
	case Landlock:
		_, err = landlockABI()
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return &Error{By: by, Err: err}
	}
	return nil
}

// New returns the plan of a policy for a mechanism. The error is an *Error if the mechanism is
// unavailable or cannot enforce the policy, and is about the policy otherwise. homes and getenv
// locate secrets. The caller calls Tidy.
func New(p Policy, by Mechanism, homes []string, getenv func(string) string) (Plan, error) {
	plan, err := resolvePolicy(p, homes, getenv)
	if err != nil {
		return Plan{}, err
	}
	complete, err := plan, error(&Error{By: by, Err: errors.ErrUnsupported})
	switch by {
	case Bubblewrap:
		complete, err = planBubblewrap(plan)
	case Landlock:
		complete, err = planLandlock(plan)
	}
	if err != nil {
		plan.unlock()
		return Plan{}, err
	}
	return complete, nil
}

// Outdated reports whether a path to hide or to show has been removed since, so that its mount
// fails: a new plan may work.
func (p *Plan) Outdated() bool {
	return slices.ContainsFunc(
		slices.Concat(p.Sockets, p.socketDirs, p.Read), func(name string) bool { return !exists(name) },
	)
}

// Command returns the command that starts an open program with args. The program calls ReceivePlan
// and Enter first. With bubblewrap it ends with the thread that starts it, which the caller
// therefore locks. The caller calls release after the start, or without one.
func (p *Plan) Command(
	program *os.File,
	handed Files,
	args ...string,
) (cmd *exec.Cmd, release func(), err error) {
	plan, err := p.file()
	if err != nil {
		return nil, nil, err
	}
	files, release, err := handed.files(program, plan)
	if err != nil {
		return nil, nil, err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", programFile)
	argv := append([]string{path}, args...)
	if p.By == Bubblewrap {
		path = p.program
		argv = append(append([]string{path}, p.arguments()...), argv...)
	}
	cmd = &exec.Cmd{Path: path, Args: argv, ExtraFiles: files}
	return cmd, release, nil
}

// file returns the plan as an unnamed file.
func (p *Plan) file() (*os.File, error) {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return p.fill(os.NewFile(uintptr(fd), "plan"))
}
