package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tidier is a process that removes the remains of a sandbox if both this process and the helper are
// killed.
type tidier struct {
	cmd *exec.Cmd
	// life is held by this process, bubblewrap and the helper; its end of file means that all have
	// ended. alive is held by this process only.
	life, alive *os.File
	ended       chan struct{}
}

// startTidier starts prog as the tidier of a plan, or returns nil if the plan leaves nothing.
func startTidier(plan *Plan, prog *Program) (t *tidier, err error) {
	if plan == nil || !plan.Leaves() && plan.By != Bubblewrap {
		return nil, nil
	}
	end, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = end.Close() }()
	death, alive, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	defer func() { _ = death.Close() }()
	cmd, err := startRetrying(func() (*exec.Cmd, func(), error) {
		cmd := exec.Command(prog.Path, prog.Argv("tidy")...)
		cmd.Args[0] = "sandboxd"
		cmd.Stdin, cmd.ExtraFiles = end, append([]*os.File{death}, plan.Locks()...)
		return cmd, func() {}, nil
	})
	if err != nil {
		return nil, errors.Join(err, life.Close(), alive.Close())
	}
	t = &tidier{cmd: cmd, life: life, alive: alive, ended: make(chan struct{})}
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
	_ = errors.Join(Dismiss(t.life), t.life.Close(), t.alive.Close()) // it may be dead
	timer := time.AfterFunc(deathTime, func() { _ = t.cmd.Process.Kill() })
	defer timer.Stop()
	<-t.ended
}

// killOrphans kills the processes of bubblewrap that hold life. Bubblewrap 0.8 starts a process,
// which waits for a word of it before it asks to be killed with it (main in bubblewrap.c), so
// one that is killed in between leaves a process that waits forever.
func killOrphans(life *os.File) {
	info, err := life.Stat()
	if err != nil {
		return
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	pipe := fmt.Sprintf("pipe:[%d]", stat.Ino)
	holds := func(pid string) bool {
		// Others may hold it for the moment between their start and that of their program.
		if exe, _ := os.Readlink("/proc/" + pid + "/exe"); filepath.Base(exe) != "bwrap" {
			return false
		}
		dir := "/proc/" + pid + "/fd/"
		fds, _ := os.ReadDir(dir) // it may have ended
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			to, _ := os.Readlink(dir + fd.Name())
			return to == pipe
		})
	}
	for _, pid := range processes() {
		number, err := strconv.Atoi(pid)
		if err != nil || !holds(pid) {
			continue
		}
		fd, err := unix.PidfdOpen(number, 0)
		if err != nil {
			continue
		}
		if holds(pid) { // the number has not been used again
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}

// killOrphans kills the processes that an ended process of bubblewrap has left.
func (t *tidier) killOrphans() {
	if t != nil {
		killOrphans(t.life)
	}
}
