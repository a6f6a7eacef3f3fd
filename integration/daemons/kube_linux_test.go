package daemons_test

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestKube starts a cluster, in which a pod runs and a program of the cluster is started again.
func TestKube(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: other tests use such a cluster")
	}
	if err := daemons.KubeAvailable(); err != nil {
		daemons.Missing(t, "k8s", err.Error())
	}
	d := daemons.NewDocker(t, daemons.DockerConfig{})
	k, err := daemons.StartKube(t.Context(), d, daemons.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"kube-scheduler", "kubelet"} {
		if err := k.Kill(name); err != nil {
			t.Fatal(err)
		}
		if err := k.Start(name); err != nil {
			t.Fatal(err)
		}
	}
	out, err := daemons.Kubectl(t.Context(), k.Config(), "", "run", "p", "--image="+daemons.Busybox,
		"--image-pull-policy=Never", "--restart=Never", "--attach", "--", "echo", "hello")
	if err != nil || !strings.Contains(out, "hello") {
		t.Error(out, err, k.LogTail())
	}
}
