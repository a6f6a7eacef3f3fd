package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// tidier is a process that removes the remains of a sandbox if both this process and the helper are
// killed.
type tidier struct {
	cmd   *exec.Cmd
	life  *os.File // held by this process and the helper; its end of file means that both have ended
	ended chan struct{}
}

// startTidier starts prog as the tidier of a plan, or returns nil if the plan leaves nothing.
func startTidier(plan *Plan, prog *Program) (t *tidier, err error) {
	if plan == nil || !plan.Leaves() {
		return nil, nil
	}
	end, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = end.Close() }()
	cmd, err := startRetrying(func() (*exec.Cmd, func(), error) {
		cmd := exec.Command(prog.Path, prog.Argv("tidy")...)
		cmd.Args[0] = "sandboxd"
		cmd.Stdin, cmd.ExtraFiles = end, plan.Locks()
		return cmd, func() {}, nil
	})
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	t = &tidier{cmd: cmd, life: life, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		_ = cmd.Wait() // nothing could handle an error
	}()
	if err := plan.Entrust(life); err != nil {
		t.dismiss()
		return nil, err
	}
	return t, nil
}

// dismiss ends the tidier without removing anything.
func (t *tidier) dismiss() {
	if t == nil {
		return
	}
	_ = errors.Join(Dismiss(t.life), t.life.Close()) // it may be dead
	timer := time.AfterFunc(deathTime, func() { _ = t.cmd.Process.Kill() })
	defer timer.Stop()
	<-t.ended
}
