//go:build unix

package remote_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestContract runs the conformance suite over the example.
func TestContract(t *testing.T) {
	// An embedded helper may be older than this source.
	binary := filepath.Join(t.TempDir(), "sandboxd")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/sandboxd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			e, err := openUnder(t.Context(), []string{"env"}, t.TempDir(), remote.Options{
				Vars:   []string{"PATH=" + os.Getenv("PATH")},
				Helper: remote.Helper{Binary: binary},
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		Alive: envtest.AliveOnHost,
		Small: testing.Short(),
	})
}
