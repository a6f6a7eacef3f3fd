//go:build unix

package launch

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

// deathTime bounds the wait for a process that has been killed, or whose streams have been closed.
const deathTime = 2 * time.Second

// Process is a helper that was started.
type Process struct {
	Cmd *exec.Cmd
	// Exited is closed when the process has ended; Status tells how, then.
	Exited chan struct{}
	Status error

	plan   *confine.Plan
	tidier *tidier
}

// Start starts a program as a helper, confined by a plan if there is one, in a session of its own. Prepare completes the
// command, also with variables, of which it has none otherwise. The program is handed the files only with a plan, and Life is
// not for the caller to say.
func Start(plan *confine.Plan, prog *Program, files confine.Handed, prepare func(*exec.Cmd), args ...string) (*Process, error) {
	if plan != nil {
		if err := prog.Open(); err != nil {
			return nil, err
		}
	}
	tidier, err := startTidier(plan, prog)
	if err != nil {
		return nil, prog.failed(err)
	}
	if tidier != nil {
		files.Life = tidier.life
	}
	p := &Process{Exited: make(chan struct{}), plan: plan, tidier: tidier}
	command := func() (cmd *exec.Cmd, release func(), err error) {
		if plan == nil {
			cmd, release = exec.Command(prog.Path, prog.Argv(args...)...), func() {}
			cmd.Args[0] = "sandboxd"
		} else if cmd, release, err = plan.Command(prog.File, files, prog.Argv(args...)...); err != nil {
			return nil, nil, err
		}
		prepare(cmd)
		cmd.WaitDelay = deathTime
		return cmd, release, nil
	}
	started := make(chan error)
	go func() {
		// What is confined ends with the thread that started it.
		runtime.LockOSThread()
		var err error
		p.Cmd, err = begin(command)
		started <- err
		if err == nil {
			p.Status = p.Cmd.Wait()
			close(p.Exited)
		}
	}()
	if err := <-started; err != nil {
		tidier.dismiss()
		return nil, prog.failed(err)
	}
	return p, nil
}

// Tidy removes what the sandbox of a process that has ended leaves.
func (p *Process) Tidy() (err error) {
	if p.plan != nil {
		err = p.plan.Tidy()
	}
	p.tidier.dismiss()
	return err
}

// Kill kills the process, and waits until it is dead.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may just have ended
	<-p.Exited
}

// SocketPair returns two ends of a stream. Ours can be waited for with others.
func SocketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "helper")
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(pair[0]), theirs.Close())
	}
	return os.NewFile(uintptr(pair[0]), "helper"), theirs, nil
}
