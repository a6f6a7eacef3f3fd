package k8s_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestNetworkEnforced takes the network away from a pod, as a plugin does that enforces policies.
func TestNetworkEnforced(t *testing.T) {
	t.Parallel()
	if daemons.OtherKube() {
		t.Skip("the node of another cluster may be another machine")
	}
	cluster := connect(t)
	c := config(t, k8s.Config{RequireNoNetwork: true})
	c.Session = strings.ToLower(fmt.Sprintf("cut-%x", rand.Uint64()))
	name := "sandboxagent-" + c.Session
	type opened struct {
		e   *k8s.Environment
		err error
	}
	done := make(chan opened, 1)
	go func() {
		e, err := cluster.Open(context.WithoutCancel(t.Context()), c)
		done <- opened{e, err}
	}()
	t.Cleanup(func() { kubectl(t, "", "delete", "pod", name, "--ignore-not-found", "--wait=false") })
	uid := ""
	poll(t, "the pod exists", func() bool {
		uid = kubectl(t, "", "get", "pod", name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
		return uid != ""
	})
	poll(t, "the pod has lost its network", func() bool { return cutNetwork(t, uid) })
	o := await(t, done, "the environment does not open")
	if o.err != nil {
		t.Fatal(o.err)
	}
	if got := o.e.Info().Strength(env.NoNetwork); got != env.Enforced {
		t.Errorf("the network is %s", got)
	}
	const owner = "jsonpath={.metadata.ownerReferences[0].uid}"
	if got := kubectl(t, "", "get", "networkpolicy", name, "-o", owner); got != uid {
		t.Errorf("the policy belongs to %q, want %s", got, uid)
	}
	const spec = "jsonpath={.spec.policyTypes} {.spec.ingress}{.spec.egress}{.spec.podSelector}"
	denied := `["Ingress","Egress"] {"matchLabels":{"sandboxagent/session":"` + c.Session + `"}}`
	if got := kubectl(t, "", "get", "networkpolicy", name, "-o", spec); got != denied {
		t.Errorf("the policy is %s, want %s", got, denied)
	}
	selected := kubectl(t, "", "get", "pods", "-l", "sandboxagent/session="+c.Session, "-o", "name")
	if strings.TrimSpace(selected) != "pod/"+name {
		t.Errorf("the policy selects %q", selected)
	}
	if err := o.e.Close(); err != nil {
		t.Error(err)
	}
	poll(t, "the policy is gone", func() bool {
		return kubectl(t, "", "get", "networkpolicy", name, "--ignore-not-found", "-o", "name") == ""
	})
}

// cutNetwork takes the network away from a pod of this machine. It returns false if none of the
// pod's programs runs yet: a runtime's own processes begin in the namespace of the node.
func cutNetwork(t *testing.T, uid string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(strings.ReplaceAll(string(groups), "_", "-"), uid) {
			continue // it has ended, or is another's
		}
		process := filepath.Dir(file)
		program, err := os.ReadFile(process + "/cmdline")
		if err != nil || !strings.HasPrefix(string(program), "sh\x00-c\x00set -e\n") &&
			!strings.Contains(string(program), "/sandboxd\x00") {
			continue
		}
		namespace, err := os.Open(process + "/ns/net")
		if err != nil {
			continue
		}
		defer namespace.Close() //nolint:errcheck // it was only read
		own, err := os.Stat("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		if its, err := namespace.Stat(); err != nil || os.SameFile(own, its) {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "nsenter", "--net=/proc/self/fd/3", "ip", "link", "set",
			"eth0", "down")
		cmd.ExtraFiles = []*os.File{namespace}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%v: %s", err, out)
			continue
		}
		return true
	}
	return false
}

// TestOtherPolicy has a policy of the namespace that allows a pod some traffic.
func TestOtherPolicy(t *testing.T) {
	t.Parallel()
	kubectl(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: lets-out}
spec: {podSelector: {matchLabels: {net: open}}, policyTypes: [Egress], egress: [{}]}
`, "apply", "-f", "-")
	e := open(t, connect(t), k8s.Config{Labels: map[string]string{"net": "open"}})
	last := e.Info().Guarantees[len(e.Info().Guarantees)-1]
	if last.Name != env.NoNetwork || last.Strength != env.BestEffort ||
		!strings.Contains(last.By, "the policy lets-out of the namespace") {
		t.Errorf("%+v", e.Info().Guarantees)
	}
}
