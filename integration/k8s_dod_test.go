package integration_test

import (
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/images"
)

// TestDoDOnK8s proves the definition of done with all sessions in pods.
func TestDoDOnK8s(t *testing.T) {
	t.Parallel()
	sharedKube(t)
	proveElsewhere(t)
}

// openPod opens a pod and uploads dir. It is small, since many run at once.
func openPod(t testing.TB, dir string) env.Environment {
	t.Helper()
	cluster, err := k8s.Connect(t.Context(), k8s.Address{Kubeconfig: sharedKube(t).kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, cluster)
	e, err := cluster.Open(t.Context(), k8s.Config{
		Options: remote.Options{
			Helper:       remote.Helper{Binary: command(t), Args: []string{"__sandboxd"}},
			StartTimeout: 10 * time.Minute, // for room on the node
		},
		Image: images.DefaultReference, Pull: k8s.PullNever, CPUs: 0.1, Memory: 256 << 20,
		Disk: 512 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, e)
	tree, err := workspace.Open(t.Context(), dir, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, tree)
	if err := tree.Upload(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e
}
