//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// separateGroup lets the command run in a separate process group.
func separateGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// sendGroup sends a signal to the command and its descendants; those that have ended need none.
func sendGroup(cmd *exec.Cmd, s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-cmd.Process.Pid, number)
	}
}

// exitCode is the exit code of a shell for a program that a signal ended.
func exitCode(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

func status(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitCode(w.Signal())
	}
	return state.ExitCode()
}
