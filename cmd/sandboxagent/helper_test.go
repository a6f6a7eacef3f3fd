package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestMissingHelper checks that the error names the remedies of this program, and no fields or
// functions of the library.
func TestMissingHelper(t *testing.T) {
	for _, arch := range []string{runtime.GOARCH, "s390x"} {
		cause := &remote.MissingHelperError{
			OS: runtime.GOOS, Arch: arch, Errs: []error{errors.New("no reason")},
		}
		text := remoteError(&sshBackend{}, fmt.Errorf("ssh: %w", cause), nil).Error()
		for part, want := range map[string]bool{
			"ssh: no helper for " + runtime.GOOS + "/" + arch + ": no reason (":     true,
			"GOARCH=" + arch + " go install " + modulePath + "/cmd/sandboxd@latest": true,
			"--helper-binary FILE": true,
			"CGO_ENABLED=0 go install " + modulePath + "/cmd/sandboxagent@latest": arch ==
				runtime.GOARCH,
			"Self":   false,
			"Binary": false,
		} {
			if strings.Contains(text, part) != want {
				t.Errorf("%q in %q: %t", part, text, !want)
			}
		}
	}
}
