package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// TestSubmitQueued has a queue start a batch, as Kueue does it, by the field suspend of the Job,
// take its room away while a task runs, and give it back. The task with a result does not run
// again: the model gets none of its requests.
func TestSubmitQueued(t *testing.T) {
	t.Parallel()
	h, mark, kubectl := newSubmitHost(t), newMark(), asAdmin(t)
	var mu sync.Mutex
	attempts := map[string]int{}
	counts := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(attempts)
	}
	server := serveCluster(t, func(r *llmtest.Request) llmtest.Reply {
		id := strings.TrimSpace(r.Messages[0].Text())
		if len(results(r)) > 0 {
			return llmtest.Text("done")
		}
		mu.Lock()
		defer mu.Unlock()
		attempts[id]++
		if id == "long" && attempts[id] == 1 {
			return llmtest.Use(shell("sleep 3600"))
		}
		return llmtest.Use(shell("echo " + id + " >out.txt"))
	})
	name := h.submitModel(t, server, server.Key(), mark,
		`{"id":"short","prompt":"short"}`+"\n"+`{"id":"long","prompt":"long"}`, "--queue=agents",
		"--parallel=2", "--retries=0")
	status := func(want string) func() bool {
		return func() bool {
			got := h.about(t, t.TempDir(), "batch", "status", "--env=k8s", name)
			return strings.Contains(got.stdout, want)
		}
	}
	if !status("state     queued\npassed    0 of 2 tasks\n")() {
		t.Error("the batch is not queued")
	}
	suspend := func(is bool) {
		t.Helper()
		_, err := kubectl("patch", "job", name, "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"suspend":%t}}`, is))
		if err != nil {
			t.Fatal(err)
		}
	}
	suspend(false)
	await(t, "the result of the short task and the start of the long one", func() bool {
		return counts()["long"] == 1 && status("passed    1 of 2 tasks\n")()
	})
	suspend(true)
	await(t, "the end of all agents", func() bool {
		out, err := kubectl("get", "pods", "-l", "batch.kubernetes.io/job-name="+name,
			"--field-selector=status.phase=Running", "-o", "name")
		return err == nil && out == ""
	})
	if !status("state     queued\npassed    1 of 2 tasks\n")() {
		t.Error("the batch is not queued again")
	}
	suspend(false)
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 ||
		!strings.Contains(got.stdout, "passed    2 of 2 tasks\n") {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(map[string]int{"short": 1, "long": 2}, counts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	h.remove(t, name, mark)
}

// TestSubmitQuota has two agents that use up a quota, so that no sandbox starts: one agent ends and
// starts again later, which counts as no attempt, and both tasks pass.
func TestSubmitQuota(t *testing.T) {
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	class := "room-" + strings.ToLower(mark)
	admin := daemons.Kubeconfig(t)
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		out, err := daemons.Kubectl(context.WithoutCancel(t.Context()), admin, stdin, args...)
		if err != nil {
			t.Fatal(out, err)
		}
	}
	user := mustUser(t)
	kubectl(fmt.Sprintf(`
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: %[1]s}
value: 0
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hard: {pods: "2"}
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: [%[1]s]}]
`, class, user.Namespace), "apply", "-f", "-")
	t.Cleanup(func() {
		kubectl("", "delete", "priorityclass/"+class)
		kubectl("", "delete", "-n", user.Namespace, "resourcequota/"+class)
	})
	agents, err := os.ReadFile(h.template)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h.template = filepath.Join(dir, "agents.yaml")
	ofClass := "spec:\n  priorityClassName: " + class + "\n"
	writeTree(t, dir, map[string]string{
		"agents.yaml": strings.Replace(string(agents), "spec:\n", ofClass, 1), "pods.yaml": ofClass,
	})
	name := h.submit(t, mark, "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n",
		"turns: [{calls: [{tool: shell, args: {command: echo made >made}}]}, {text: done}]\n",
		"--parallel=2", "--retries=0", "--pod-template="+filepath.Join(dir, "pods.yaml"))
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 ||
		!strings.Contains(got.stdout, "passed    2 of 2") {
		t.Errorf("%+v", got)
	}
	h.remove(t, name, mark)
}

// TestSubmitMany submits more tasks than an Indexed Job takes without limits of its own. The queue,
// of which the cluster has none, keeps them from starting.
func TestSubmitMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it sends 100,001 tasks")
	}
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	var tasks strings.Builder
	const n = 100_001
	for i := range n {
		fmt.Fprintf(&tasks, "{\"id\":\"t%d\",\"prompt\":\"x\"}\n", i)
	}
	name := h.submit(t, mark, tasks.String(), "turns: [{text: done}]\n", "--queue=none")
	got := h.about(t, t.TempDir(), "batch", "status", "--env=k8s", name)
	if !strings.Contains(got.stdout, "state     queued\npassed    0 of 100001 tasks\n") {
		t.Errorf("%+v", got)
	}
	h.remove(t, name, mark)
}

// TestSubmitStored has an agent whose task has a result when it starts, from a pod that died after
// it had stored that: it sends the model nothing. The policy that selects agents lists where they
// may connect to.
func TestSubmitStored(t *testing.T) {
	t.Parallel()
	h, mark, kubectl := newSubmitHost(t), newMark(), asAdmin(t)
	server := serveCluster(t, func(*llmtest.Request) llmtest.Reply {
		t.Error("the task ran again")
		return llmtest.Text("done")
	})
	api, err := kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	if err != nil {
		t.Fatal(err)
	}
	api = strings.TrimPrefix(api, "https://")
	host, _, _ := strings.Cut(api, ":")
	name := h.submitModel(t, server, server.Key(), mark, `{"id":"a","prompt":"x"}`,
		"--queue=agents", "--api-cidr="+host+"/32")
	uid, err := kubectl("get", "job", name, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = daemons.Kubectl(t.Context(), daemons.Kubeconfig(t), fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: %[1]s-result-0
  labels:
    app.kubernetes.io/managed-by: sandboxagent
    sandboxagent/batch: %[1]s
    sandboxagent/kind: result
  annotations:
    sandboxagent/index: "0"
    sandboxagent/summary: '{"task_id":"a","attempt":1,"status":"completed","exit_code":0}'
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: %[1]s, uid: %[2]s}]
`, name, uid), "-n", mustUser(t).Namespace, "create", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	start := `{"spec":{"suspend":false}}`
	if _, err = kubectl("patch", "job", name, "--type=merge", "-p", start); err != nil {
		t.Fatal(err)
	}
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 ||
		!strings.Contains(got.stdout, "passed    1 of 1 task") {
		t.Errorf("%+v", got)
	}
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	checkEgress(t, kubectl, name, "anywhere:53", "anywhere:53", api, address.Host)
	h.remove(t, name, mark)
}

// checkEgress checks that the policy of a batch selects its agents, and opens these addresses and
// ports only.
func checkEgress(t *testing.T, kubectl kubectl, name string, want ...string) {
	t.Helper()
	out, err := kubectl("get", "networkpolicy", name, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Spec struct {
			PodSelector struct{ MatchLabels map[string]string }
			PolicyTypes []string
			Ingress     []any
			Egress      []struct {
				Ports []struct{ Port int }
				To    []struct{ IPBlock struct{ CIDR string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &policy); err != nil {
		t.Fatal(err)
	}
	var labels []string
	for k, v := range policy.Spec.PodSelector.MatchLabels {
		labels = append(labels, k+"="+v)
	}
	selected, err := kubectl("get", "pods", "-l", strings.Join(labels, ","), "-o", "name")
	agents, aerr := kubectl("get", "pods", "-l", "batch.kubernetes.io/job-name="+name, "-o", "name")
	if err != nil || aerr != nil || agents == "" || selected != agents {
		t.Errorf("the policy selects %q of %q, %v, %v", selected, agents, err, aerr)
	}
	var opens []string
	for _, e := range policy.Spec.Egress {
		for _, p := range e.Ports {
			if len(e.To) == 0 {
				opens = append(opens, fmt.Sprintf("anywhere:%d", p.Port))
			}
			for _, to := range e.To {
				opens = append(opens, fmt.Sprintf("%s:%d", strings.TrimSuffix(to.IPBlock.CIDR, "/32"), p.Port))
			}
		}
	}
	slices.Sort(opens)
	slices.Sort(want)
	if diff := cmp.Diff(want, opens); diff != "" ||
		!slices.Equal(policy.Spec.PolicyTypes, []string{"Ingress", "Egress"}) ||
		len(policy.Spec.Ingress) > 0 {
		t.Errorf("the policy is %s, opens (-want +got):\n%s", out, diff)
	}
}
