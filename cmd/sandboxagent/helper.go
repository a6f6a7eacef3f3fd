package main

import (
	"os"
	"path/filepath"
	"runtime"
)

// helperArgument starts this program as the helper of another instance. It is not for users.
const helperArgument = "__sandboxd"

// helperName is the name of the helper, under which this program serves as one: an image may have
// it as its helper.
const helperName = "sandboxd"

// helperArgs returns the arguments of the helper, and whether the program was started as one.
func helperArgs(args []string) ([]string, bool) {
	switch {
	case len(args) > 1 && args[1] == helperArgument:
		return args[2:], true
	case len(args) > 0 && filepath.Base(args[0]) == helperName:
		return args[1:], true
	}
	return nil, false
}

// executable returns a name that starts this program, also after its file was replaced.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe", nil
		}
	}
	return os.Executable()
}
