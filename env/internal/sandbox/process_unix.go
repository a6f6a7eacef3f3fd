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

// deathTime bounds the wait for a process that was killed, or whose streams were closed.
const deathTime = 2 * time.Second

// Process is a started helper.
type Process struct {
	Cmd *exec.Cmd
	// Exited is closed when the process has ended; ExitErr is valid then.
	Exited  chan struct{}
	ExitErr error

	plan   *Plan
	tidier *tidier
}

// Start starts prog as a helper in a new session, in a sandbox if plan is not nil. prepare
// completes the command; its environment is empty by default. files is used with a plan only, and
// Start sets files.Life.
func Start(
	plan *Plan,
	prog *Program,
	files Files,
	prepare func(*exec.Cmd),
	args ...string,
) (*Process, error) {
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
		// A sandbox ends with the thread that started it.
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

// Tidy removes the remains of the sandbox of an ended process.
func (p *Process) Tidy() (err error) {
	if state := p.Cmd.ProcessState; state != nil && state.ExitCode() < 0 { // a signal has ended it
		p.tidier.killOrphans()
	}
	if p.plan != nil {
		err = p.plan.Tidy()
	}
	p.tidier.dismiss()
	return err
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may just have ended
	<-p.Exited
}

// SocketPair returns two ends of a stream. The local one is non-blocking.
func SocketPair() (local, remote *os.File, err error) {
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
	remote = os.NewFile(uintptr(pair[1]), "helper")
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, errors.Join(
			os.NewSyscallError("fcntl", err), unix.Close(pair[0]), remote.Close(),
		)
	}
	return os.NewFile(uintptr(pair[0]), "helper"), remote, nil
}

// startRetrying starts a command in a new session and in the root directory. It retries
// ETXTBSY: a program file that was just written may briefly be open in another child.
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
