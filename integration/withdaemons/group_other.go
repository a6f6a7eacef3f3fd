//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// separateGroup leaves the command in this program's group: a console sends its signals to both.
func separateGroup(*exec.Cmd) {}

func sendGroup(*exec.Cmd, os.Signal) {}

func exitCode(os.Signal) int { return 1 }

func status(state *os.ProcessState) int { return state.ExitCode() }
