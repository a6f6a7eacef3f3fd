package main

import (
	"os"
	"runtime"
)

// helperArgument starts this program as the helper of another instance. It is not for users.
const helperArgument = "__sandboxd"

// isHelper reports whether the program was started as a helper.
func isHelper(args []string) bool { return len(args) > 1 && args[1] == helperArgument }

// executable returns a name that starts this program, also after its file was replaced.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe", nil
		}
	}
	return os.Executable()
}
