//go:build unix

package local

import (
	"fmt"

	"github.com/sandboxagent/sandboxagent/env"
)

// findShell returns the first shell that stands in the commands' PATH or at its usual place.
func findShell(dir string, vars []string) (shell []string, none string) {
	for _, candidate := range []struct{ program, usual, applet string }{
		{"bash", "/bin/bash", ""},
		{"sh", "/bin/sh", ""},
		{"busybox", "/bin/busybox", "sh"},
	} {
		file, err := lookProgram(candidate.program, dir, vars)
		if err != nil {
			file, err = executable(candidate.usual, nil)
		}
		switch {
		case err != nil:
		case candidate.applet != "":
			return []string{file, candidate.applet, "-c"}, ""
		default:
			return []string{file, "-c"}, ""
		}
	}
	return nil, "neither bash nor sh nor busybox is in PATH or in /bin"
}

func guarantees(j jobs) []env.Guarantee {
	const orphans = "a supervisor would be needed: what runs when this process is killed stays"
	kill := env.Guarantee{Promise: env.KillTree, Strength: env.BestEffort, By: "process groups only: what leaves its group escapes"}
	if trackable() == nil {
		kill.By = fmt.Sprintf("session, descent and %s; what leaves its session and its parents and %s escapes", trackedBy, trackLost)
	}
	clean := kill
	clean.Promise = env.CleanClose
	crash := env.Guarantee{Promise: env.CleanCrash, Strength: env.Absent, By: orphans}
	j.seat.promise(&kill, &clean, &crash)
	return []env.Guarantee{
		kill,
		clean,
		crash,
		{
			Promise: env.AtomicWrite, Strength: env.BestEffort,
			By: "rename; a file that cannot be replaced is written in place, and Written says so",
		},
		{Promise: env.Isolation, Strength: env.Absent, By: "commands run as this user on this machine"},
	}
}
