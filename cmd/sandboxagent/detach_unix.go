//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// detach starts a process in a new session.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
