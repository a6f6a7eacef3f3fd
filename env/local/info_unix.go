//go:build unix

package local

// findShell returns the first shell in the commands' PATH or at its usual path.
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

// replacedBy is how files are replaced.
const replacedBy = "rename; a file that cannot be replaced is written in place, and Written " +
	"reports that"
