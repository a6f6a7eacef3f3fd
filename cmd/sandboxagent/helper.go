package main

import (
	"os"
	"runtime"
)

// helperArgument makes this program the helper of another one of its kind. Users have no use for
// it.
const helperArgument = "__sandboxd"

// isHelper reports whether the program was started as a helper.
func isHelper(args []string) bool { return len(args) > 1 && args[1] == helperArgument }

// executable returns a name of this program by which it can be started, also if its file has been
// replaced meanwhile.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe", nil
		}
	}
	return os.Executable()
}
