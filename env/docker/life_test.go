package docker_test

import (
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
)

// TestOutOfMemory lets a command use more memory than there is. The next one runs.
func TestOutOfMemory(t *testing.T) {
	e := connect(t)
	box := open(t, e, docker.Config{Memory: 96 << 20})
	for range 3 {
		res, err := box.Exec(t.Context(), env.Command{Argv: []string{"/bin/sh", "-c", `exec perl -e '$x = "x" x 1_000_000_000'`}})
		if err != nil || !res.OutOfMemory || res.ExitCode != 137 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := box.Exec(t.Context(), env.Command{Argv: []string{"/bin/true"}}); err != nil || res.ExitCode != 0 || res.OutOfMemory {
			t.Errorf("the next one: %+v, %v", res, err)
		}
	}
	res, err := box.Exec(t.Context(), env.Command{Argv: []string{"/bin/sh", "-c", `kill -9 $$`}})
	if err != nil || res.OutOfMemory || res.Signal != "SIGKILL" {
		t.Errorf("killed by somebody else: %+v, %v", res, err)
	}
}
