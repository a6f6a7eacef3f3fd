package sandboxd

import (
	"errors"
	"os"
	"runtime"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// helperArgument is the first argument of a program that serves as the helper.
const helperArgument = "__sandboxd"

// Main serves as the helper and exits, if this process was started as the helper that Self returns.
// Otherwise it does nothing. It is the first statement of main, or of TestMain: each helper
// executes the statements before it too.
func Main() {
	if startedAsHelper() {
		os.Exit(Run(os.Args[2:]))
	}
}

// startedAsHelper reports whether this process was started as the helper that Self returns.
func startedAsHelper() bool { return len(os.Args) > 1 && os.Args[1] == helperArgument }

// Self returns the running program, which calls Main, as the helper. On this machine any program
// serves. In a container or on a remote host it does if it is static, which "CGO_ENABLED=0 go
// build" makes it, and for the same platform; remote.Helper has the alternatives.
//
// A helper whose program does not call Main exits here: otherwise it would start helpers, and those
// too, without end.
func Self() remote.Helper {
	if startedAsHelper() {
		os.Exit(usage(errors.New("this program is no helper (call sandboxd.Main() first in main)")))
	}
	h := remote.Helper{Program: helper.RunningProgram, Args: []string{helperArgument}}
	if _, err := os.Stat(h.Program); runtime.GOOS != "linux" || err != nil {
		h.Program, _ = os.Executable() // without one, the other helpers are left
	}
	return h
}
