package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Mechanisms returns those that this system may have, the stronger one first.
func Mechanisms() []Mechanism { return []Mechanism{Bubblewrap, Landlock} }

// Available returns why a mechanism cannot be had on this machine, as far as can be told without starting anything.
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

// New returns what a policy means on this machine for a mechanism. The error is an *Error if the mechanism cannot be had or
// cannot enforce the policy, and tells of a mistake in the policy otherwise. The variables that getenv knows, and the home
// folders, tell where secrets are kept. The caller calls Tidy in the end.
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

// Outdated reports whether something that is to be hidden has gone since the plan was made, so that there is nothing to put
// an empty mount over: another plan may work.
func (p *Plan) Outdated() bool {
	return slices.ContainsFunc(p.Sockets, func(name string) bool { return !exists(name) })
}

// Command returns the command that starts an open program with args. The program calls Received before it does anything
// else. With bubblewrap it ends with the thread that starts it, so that thread should stay. The caller calls release when the
// command has been started, or will not be.
func (p *Plan) Command(program *os.File, handed Files, args ...string) (cmd *exec.Cmd, release func(), err error) {
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

// file returns the plan as a file without a name.
func (p *Plan) file() (*os.File, error) {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return p.fill(os.NewFile(uintptr(fd), "plan"))
}

// realName returns a name without links.
func realName(name string) (string, error) { return filepath.EvalSymlinks(name) }
