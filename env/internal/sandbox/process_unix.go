//go:build unix

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deathTime bounds the wait for a process that has been killed, or whose streams have been closed.
const deathTime = 2 * time.Second

// Process is a helper that was started.
type Process struct {
	Cmd *exec.Cmd
	// Exited is closed when the process has ended; Status tells how, then.
	Exited  chan struct{}
	ExitErr error

	plan   *Plan
	tidier *tidier
}

// Start starts a program as a helper, confined by a plan if there is one, in a session of its own. Prepare completes the
// command, also with variables, of which it has none otherwise. The program is handed the files only with a plan, and Life is
// not for the caller to say.
func Start(plan *Plan, prog *Program, files Files, prepare func(*exec.Cmd), args ...string) (*Process, error) {
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
		p.Cmd, err = startRetrying(command)
		started <- err
		if err == nil {
			p.ExitErr = p.Cmd.Wait()
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

// begin starts a command in a session of its own and in the root folder, without variables if it has none. A file that was
// just written may for an instant still be open in a child that is about to be started, so that there is more than one try.
func startRetrying(command func() (*exec.Cmd, func(), error)) (*exec.Cmd, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		cmd, release, err := command()
		if err != nil {
			return nil, err
		}
		if cmd.Dir = "/"; cmd.Env == nil {
			cmd.Env = []string{}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err = cmd.Start()
		release()
		if !errors.Is(err, syscall.ETXTBSY) || pause > 100*time.Millisecond {
			return cmd, err
		}
		time.Sleep(pause)
	}
}
