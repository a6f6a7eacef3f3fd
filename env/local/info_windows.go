package local

import (
	"fmt"

	"golang.org/x/sys/windows"

	"github.com/sandboxagent/sandboxagent/env"
)

// findShell returns the command interpreter.
func findShell(dir string, vars []string) (shell []string, none string) {
	if file, ok := lookupVar(vars, "COMSPEC"); ok {
		return []string{file, "/c"}, ""
	}
	file, err := lookProgram("cmd.exe", dir, vars)
	if err != nil {
		return nil, "cmd.exe is neither named by COMSPEC nor in PATH"
	}
	return []string{file, "/c"}, ""
}

// osVersion returns the version of Windows.
func osVersion() string {
	v := windows.RtlGetVersion()
	return fmt.Sprintf("Windows %d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
}

func guarantees(jobs) []env.Guarantee {
	return []env.Guarantee{
		{Promise: env.KillTree, Strength: env.BestEffort, By: "a job object; what another service starts for the command is outside"},
		{Promise: env.CleanClose, Strength: env.BestEffort, By: "a job object; what another service starts for a command is outside"},
		{Promise: env.CleanCrash, Strength: env.BestEffort, By: "a job object that the system closes with this process"},
		{
			Promise: env.AtomicWrite, Strength: env.BestEffort,
			By: "MoveFileEx; a file that others hold open is written in place, and Written says so",
		},
		{Promise: env.Isolation, Strength: env.Absent, By: "commands run as this user on this machine"},
	}
}
