package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestContract runs the cases of the conformance suite that depend on the sandbox.
func TestContract(t *testing.T) {
	needBubblewrap(t)
	// This program may be dynamic, and an embedded helper older than this source.
	binary := filepath.Join(t.TempDir(), "sandboxd")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/sandboxd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			e, err := open(t.Context(), "/", remote.Options{
				Vars:   []string{"PATH=" + os.Getenv("PATH")},
				Helper: remote.Helper{Binary: binary},
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		// the other cases prove the helper, which the example of env/remote has too
		Groups: []string{"exec", "kill", "life"},
		Alive:  envtest.AliveOnHost,
		Small:  testing.Short(),
	})
}

// needBubblewrap skips a test where bubblewrap cannot make a sandbox.
func needBubblewrap(t *testing.T) {
	t.Helper()
	cmd := exec.Command("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", "true")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	if strings.Contains(os.Getenv("SANDBOXAGENT_REQUIRE"), "sandbox") {
		t.Fatalf("SANDBOXAGENT_REQUIRE: bwrap: %v: %s", err, out)
	}
	t.Skipf("needs bubblewrap and user namespaces: %v: %s", err, out)
}
