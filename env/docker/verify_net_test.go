package docker_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/docker"
)

// TestVerifyNetwork verifies containers on a bridge, which was asked for, and which was not.
// Nothing is sent there.
func TestVerifyNetwork(t *testing.T) {
	t.Parallel()
	e, h := connect(t), host(t)
	asked := open(t, e, docker.Config{Network: docker.NetworkFull})
	if bad := broken(t, asked, h); len(bad) > 0 {
		t.Error(bad)
	}
	box, err := e.OpenWeaker(t.Context(), config(t, docker.Config{}),
		onHost(func(h *hostConfig) { h.NetworkMode = "bridge" }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	want := []string{"network-routes", "metadata-service", "name-service"}
	if diff := cmp.Diff(want, broken(t, box, h)); diff != "" {
		t.Errorf("broken (-want +got):\n%s", diff)
	}
}
