package local

import (
	"fmt"

	"golang.org/x/sys/windows"
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

// replacedBy is how files are replaced.
const replacedBy = "MoveFileEx; a file that others hold open is written in place, and Written " +
	"reports that"
