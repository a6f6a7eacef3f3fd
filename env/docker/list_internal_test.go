package docker

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestLateStart has a container whose client reports why it did not start in time, and removes it.
func TestLateStart(t *testing.T) {
	t.Parallel()
	cfg := Config{Options: remote.Options{StartTimeout: time.Minute}}
	created := time.Now()
	labels := cfg.labels(kindSandbox, created)
	for _, tt := range []struct {
		age     time.Duration
		garbage bool
	}{{cfg.StartTimeout, false}, {cfg.StartTimeout + 10*time.Second, false}, {time.Hour, true}} {
		l := Listed{}
		l.State = container.StateCreated
		l.assess(labels, created.Add(tt.age), false)
		if l.Garbage != tt.garbage {
			t.Errorf("after %s: garbage %t: %s", tt.age, l.Garbage, l.Reason)
		}
	}
}
