//go:build unix

package ssh

import (
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// tooOpen returns the mode of a key file of this user, and whether other users can access it.
// Files of other owners are not judged.
func tooOpen(file string) (fs.FileMode, bool) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	return mode, ok && int(stat.Uid) == os.Getuid() && mode&0o077 != 0
}

// shellCommand returns a command that a shell runs in a new session: it has no terminal,
// and killTree ends it with its descendants.
func shellCommand(line string) (*exec.Cmd, error) {
	return isolate(exec.Command("/bin/sh", "-c", line)), nil
}

// isolate makes a command the leader of a session.
func isolate(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// killTree kills a command that was isolated and the processes of its group.
func killTree(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
