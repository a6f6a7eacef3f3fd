package integration_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// submitHost is a cluster to which the program submits batches, with the objects of docs/batch.md.
type submitHost struct {
	kubeHost
	// template is the file for --agent-template.
	template string
	// vars are more variables of the submitting program.
	vars []string
}

// applying lets one test at a time prepare the shared cluster.
var applying sync.Mutex

// newSubmitHost prepares the shared cluster.
func newSubmitHost(t *testing.T) submitHost {
	t.Helper()
	admin := daemons.Kubeconfig(t) // or skips
	page, err := os.ReadFile("../docs/batch.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := regexp.MustCompile("(?s)```yaml\n(apiVersion: v1\nkind: ServiceAccount[^`]*)```").
		FindSubmatch(page)
	if objects == nil {
		t.Fatal("docs/batch.md has no objects for a cluster")
	}
	user := mustUser(t)
	kubectl := func(stdin string, args ...string) string {
		out, err := daemons.Kubectl(t.Context(), admin, stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	applying.Lock() // two that create the same object at once fail
	defer applying.Unlock()
	kubectl(string(objects[1]), "apply", "-n", user.Namespace, "-f", "-")
	kubectl(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: submit}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sandboxagent-submit}
subjects: [{kind: ServiceAccount, name: user}]
`, "apply", "-n", user.Namespace, "-f", "-")
	// In the cluster of the tests the service kubernetes has no address.
	server := kubectl("", "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	host, port, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"agents.yaml": fmt.Sprintf(`
spec:
  containers:
  - name: agent
    env:
    - {name: KUBERNETES_SERVICE_HOST, value: %q}
    - {name: KUBERNETES_SERVICE_PORT, value: %q}
`, host, port)})
	return submitHost{kubeHost{user.Config}, filepath.Join(dir, "agents.yaml"), nil}
}

// submit submits a batch, and returns its name. The submitting process has ended, and its
// directory is gone.
func (h submitHost) submit(t *testing.T, mark, tasks, script string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"tasks.jsonl": tasks, "model.yaml": script})
	cmd := h.command(t, dir, mark, append([]string{
		"batch", "submit", "--model=script:model.yaml", "--agent-image=" + daemons.Agent,
		"--agent-template=" + h.template, "--image=" + daemons.Debian,
		"--helper-image=" + daemons.Helper, "tasks.jsonl",
	}, flags...)...)
	cmd.Env = append(cmd.Env, h.vars...)
	got := finish(t, cmd)
	name := strings.TrimSpace(got.stdout)
	if got.code != 0 || name == "" {
		t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return name
}

// about runs a command about a submitted batch in a directory.
func (h submitHost) about(t *testing.T, dir string, args ...string) ran {
	t.Helper()
	return finish(t, h.aboutCommand(t, dir, args...))
}

func (h submitHost) aboutCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := h.command(t, dir, newMark(), args...)
	kept := cmd.Env[:0]
	for _, v := range cmd.Env { // only the cluster
		if !strings.HasPrefix(v, "SANDBOXAGENT_") {
			kept = append(kept, v)
		}
	}
	cmd.Env = append(kept, "SANDBOXAGENT_STATE_DIR="+t.TempDir())
	return cmd
}

// left lists the objects of a batch.
func (h submitHost) left(t *testing.T, name string) string {
	t.Helper()
	out, err := daemons.Kubectl(t.Context(), daemons.Kubeconfig(t), "", "get",
		"jobs,pods,configmaps,secrets,networkpolicies", "-A", "-l", "sandboxagent/batch="+name, "-o",
		"name")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// remove removes a batch, and waits until all its objects, and its sandboxes, are gone.
func (h submitHost) remove(t *testing.T, name, mark string) {
	t.Helper()
	if got := h.about(t, t.TempDir(), "batch", "cancel", "--remove", name); got.code != 0 {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	await(t, "the end of all objects", func() bool { return h.left(t, name) == "" })
	h.awaitNone(t, mark)
}

// canaryScript is a model that looks for the key of agents in the sandbox. The probe must find
// what it looks for where that is: its own variable.
const canaryScript = `turns:
  - calls:
      - tool: shell
        args:
          timeout_ms: 600000
          command: |
            cat in.txt
            export OWN=canary-of-the-""sandbox
            look() {
              cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'
              env
              grep -rhIs "$1" / --exclude-dir=proc --exclude-dir=sys 2>/dev/null
            }
            # The patterns do not match the arguments of the programs that have them.
            look "[c]anary-of-the-""sandbox" | grep -c "[c]anary-of-the-""sandbox" >own.txt
            look "[c]anary-of-the-""agent" | grep "[c]anary-of-the-""agent" >found.txt
            ls /var/run/secrets/kubernetes.io/serviceaccount >>found.txt 2>/dev/null
  - text: done
`

// TestSubmit has a batch whose agents run in the cluster while agents and sandboxes are deleted,
// and the node is drained. The submitting process is gone. Each task has one result.
func TestSubmit(t *testing.T) {
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	n := scaled(40, 6)
	secret := "key-" + mark
	kubectl := asAdmin(t)
	if _, err := kubectl("create", "secret", "generic", secret,
		"--from-literal=AGENT_KEY=canary-of-the-agent"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kubectl("delete", "secret", secret) })
	archive := oneFileArchive(t)
	var tasks strings.Builder
	for i := range n {
		fmt.Fprintf(&tasks, `{"id":"t%d","prompt":"look","archive":%q,"labels":{"n":"%d"}}`+"\n", i,
			archive, i)
	}
	name := h.submit(t, mark, tasks.String(), canaryScript, "--parallel=8", "--model-secret="+secret,
		"--retries=5")
	disturbed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { disturbed <- h.disturb(ctx, kubectl, name, mark, secret) }()
	got := h.about(t, t.TempDir(), "batch", "wait", name)
	if got.code != 0 {
		logs, _ := kubectl("logs", "-l", "sandboxagent/batch="+name, "--tail=20")
		t.Errorf("exit code %d: %s%s\n%s", got.code, got.stdout, got.stderr, logs)
	}
	cancel()
	if err := <-disturbed; err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	for range 2 { // the second changes nothing
		got := h.about(t, dir, "batch", "collect", "--out=r", "--junit=junit.xml", "--json", name)
		var totals struct{ Passed int }
		if err := json.Unmarshal([]byte(got.stdout), &totals); err != nil || got.code != 0 ||
			totals.Passed != n {
			t.Errorf("exit code %d, %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
	}
	report, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if want := fmt.Sprintf(`tests="%d" failures="0" errors="0" skipped="0"`, n); err != nil ||
		!bytes.Contains(report, []byte(want)) {
		t.Errorf("%v, the report is %s", err, report)
	}
	records := batchRecords(t, filepath.Join(dir, "r"))
	if len(records) != n {
		t.Errorf("%d results of %d tasks", len(records), n)
	}
	for id, r := range records {
		checkCanary(t, id, r)
	}
	if given, err := batch.Tasks(filepath.Join(dir, "r")); err != nil || given[0].Archive != archive {
		t.Errorf("the tasks are %+v, %v", given, err)
	}
	got = h.about(t, dir, "batch", "logs", name, "t0")
	if got.code != 0 || !strings.Contains(got.stdout, "shell") {
		t.Errorf("logs: %+v", got)
	}
	got = h.about(t, dir, "batch", "status", "--env=k8s", name)
	if want := "passed    " + strconv.Itoa(n) + " of "; got.code != 0 ||
		!strings.Contains(got.stdout, "state     ended\n"+want) {
		t.Errorf("status: %+v", got)
	}
	h.remove(t, name, mark)
	got = h.about(t, dir, "batch", "status", "--env=k8s", name)
	if got.code != 2 || !strings.Contains(got.stderr, "none of that name") {
		t.Errorf("status of a removed batch: %+v", got)
	}
}

// checkCanary checks the result of a task of canaryScript.
func checkCanary(t *testing.T, id string, r *batch.Record) {
	t.Helper()
	patch, err := os.ReadFile(r.Patch)
	if err != nil || !r.Passed() || r.Labels["n"] == "" || !bytes.Contains(patch, []byte("/own.txt")) {
		t.Errorf("%s: %+v, %v, %s", id, r, err, patch)
	}
	own := regexp.MustCompile(`(?m)^\+([0-9]+)$`).FindSubmatch(patch)
	if own == nil || string(own[1]) == "0" {
		t.Errorf("%s: the probe does not find its own variable: %s", id, patch)
	}
	if !bytes.Contains(patch, []byte("/found.txt")) || bytes.Count(patch, []byte("\n@@ ")) != 1 {
		t.Errorf("%s: the sandbox has the key or a token of the agent: %s", id, patch)
	}
	if _, err := os.Stat(r.Journal); err != nil {
		t.Errorf("%s: %v", id, err)
	}
}

// kubectl runs kubectl.
type kubectl func(args ...string) (string, error)

// asAdmin runs kubectl as the administrator in the namespace of the user.
func asAdmin(t *testing.T) kubectl {
	admin, namespace := daemons.Kubeconfig(t), mustUser(t).Namespace
	return func(args ...string) (string, error) {
		return daemons.Kubectl(context.WithoutCancel(t.Context()), admin, "",
			append([]string{"-n", namespace}, args...)...)
	}
}

// pick waits for a pod with a label that runs.
func (k kubectl) pick(ctx context.Context, label string) (string, error) {
	for ctx.Err() == nil {
		out, _ := k("get", "pods", "-l", label, "--field-selector=status.phase=Running", "-o", "name")
		if list := strings.Fields(out); len(list) > 0 {
			return list[0], nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return "", fmt.Errorf("the batch ended before a pod of %s was found", label)
}

// sandboxesOf selects the pods with a mark that are no agents.
func sandboxesOf(mark string) string {
	return markLabel + "=" + mark + ",sandboxagent/session,!sandboxagent/batch"
}

// drain evicts the pods with a label from the node, and returns what kubectl prints.
func (k kubectl) drain(label string) (string, error) {
	node, err := k("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return "", err
	}
	out, err := k("drain", node, "--pod-selector="+label, "--force", "--delete-emptydir-data",
		"--ignore-daemonsets", "--timeout=2m")
	_, uncordoned := k("uncordon", node)
	return out, errors.Join(err, uncordoned)
}

// disturb deletes an agent, which has the secret, and a sandbox, and in long tests drains the node
// of both.
func (h submitHost) disturb(
	ctx context.Context, kubectl kubectl, name, mark, secret string,
) error {
	agents := "sandboxagent/batch=" + name
	agent, err := kubectl.pick(ctx, agents)
	if err != nil {
		return err
	}
	has, err := kubectl("get", agent, "-o",
		"jsonpath={.spec.containers[?(@.name=='agent')].envFrom[*].secretRef.name}")
	if err != nil || !strings.Contains(has, secret) {
		return fmt.Errorf("the agent has the secrets %q, %w", has, err)
	}
	for _, label := range []string{agents, sandboxesOf(mark)} {
		for deleted := ""; deleted == ""; { // a pod may have ended since it was picked
			pod, err := kubectl.pick(ctx, label)
			if err != nil {
				return err
			}
			deleted, err = kubectl("delete", pod, "--grace-period=0", "--force", "--wait=false",
				"--ignore-not-found")
			if err != nil {
				return err
			}
		}
	}
	if testing.Short() {
		return nil
	}
	if _, err := kubectl.pick(ctx, agents); err != nil {
		return err
	}
	_, err = kubectl.drain(markLabel + "=" + mark)
	return err
}

// TestSubmitDrained drains the node of agents that may not be repeated: what the cluster has ended
// does not count.
func TestSubmitDrained(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: no other pod starts while the node is drained")
	}
	h, mark := newSubmitHost(t), newMark()
	run := asAdmin(t)
	name := h.submit(t, mark, `{"id":"a","prompt":"x"}`+"\n"+`{"id":"b","prompt":"x"}`, `turns:
  - calls: [{tool: shell, args: {command: sleep 5}}]
  - text: done
`, "--parallel=2", "--retries=0")
	agents := "sandboxagent/batch=" + name
	if _, err := run.pick(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if out, err := run.drain(agents); err != nil || !strings.Contains(out, "evicting pod ") &&
		!strings.Contains(out, " evicted") {
		t.Errorf("%v: %s", err, out)
	}
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 ||
		!strings.Contains(got.stdout, "passed    2 of 2") {
		t.Errorf("%+v", got)
	}
	h.remove(t, name, mark)
}

// mustUser returns the user of the cluster who submits batches.
func mustUser(t *testing.T) *daemons.KubeUser {
	t.Helper()
	user, err := submitUser()
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// TestSubmitFails has tasks that fail, of which the first can end the batch, an agent that cannot
// start, and one that ends its batch as if the model refused its key.
func TestSubmitFails(t *testing.T) {
	t.Parallel()
	h := newSubmitHost(t)
	const failing = `turns:
  - calls: [{tool: exit, args: {code: 1, reason: cannot be done}}]
`
	t.Run("task", func(t *testing.T) {
		t.Parallel()
		mark := newMark()
		name := h.submit(t, mark, `{"id":"a","prompt":"x"}`, failing, "--max-replans=0")
		if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 1 ||
			!strings.Contains(got.stdout, "failed    1 (1 task failed)") {
			t.Errorf("%+v", got)
		}
		h.remove(t, name, mark)
	})
	t.Run("fail fast", func(t *testing.T) {
		t.Parallel()
		mark := newMark()
		name := h.submit(t, mark, `{"id":"a","prompt":"x"}`+"\n"+`{"id":"b","prompt":"x"}`, failing,
			"--max-replans=0", "--parallel=1", "--fail-fast")
		if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 1 ||
			!strings.Contains(got.stdout, "failed    1 (1 task failed)") ||
			!strings.Contains(got.stdout, "left      1: MaxFailedIndexesExceeded") {
			t.Errorf("%+v", got)
		}
		h.remove(t, name, mark)
	})
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		mark := newMark()
		name := h.submit(t, mark, `{"id":"a","prompt":"x"}`, failing, "--retries=0",
			"--agent-image="+daemons.Empty) // whose program does not know what to do
		dir := t.TempDir()
		if got := h.about(t, dir, "batch", "wait", name); got.code != 1 {
			t.Errorf("%+v", got)
		}
		got := h.about(t, dir, "batch", "collect", name)
		r := batchRecords(t, filepath.Join(dir, name+".results"))["a"]
		if got.code != 1 || r == nil || r.ExitCode != 6 ||
			!strings.Contains(r.Error, "the pods of its agent have failed: ") {
			t.Errorf("%+v, %+v", got, r)
		}
		h.remove(t, name, mark)
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		mark, stop := newMark(), filepath.Join(t.TempDir(), "stop.yaml")
		template, err := os.ReadFile(h.template)
		if err == nil {
			err = os.WriteFile(stop, append(template,
				`    command: [sh, -c, "echo the key is refused >&2; exit 3"]`+"\n"...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.submit(t, mark, `{"id":"a","prompt":"x"}`, failing, "--agent-template="+stop,
			"--agent-image="+daemons.Debian)
		if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 1 ||
			!strings.Contains(got.stdout, "left      1: task a: exit code 3: the key is refused") {
			t.Errorf("%+v", got)
		}
		h.remove(t, name, mark)
	})
}

// TestSubmitCanceled has a batch whose task runs: it is listed, "wait" has a time limit, and "logs"
// follows the task until the batch is canceled. Then the task has no result.
func TestSubmitCanceled(t *testing.T) {
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	name := h.submit(t, mark, `{"id":"a","prompt":"x"}`, `turns:
  - calls: [{tool: shell, args: {command: echo begun}}]
  - calls: [{tool: shell, args: {command: sleep 3600, timeout_ms: 3600000}}]
`)
	if _, err := asAdmin(t).pick(t.Context(), sandboxesOf(mark)); err != nil {
		t.Fatal(err)
	}
	if got := h.about(t, t.TempDir(), "batch", "wait", "--timeout=1s", name); got.code != 124 ||
		!strings.Contains(got.stderr, name+" runs still (--timeout)") {
		t.Errorf("%+v", got)
	}
	if got := h.about(t, t.TempDir(), "batch", "status", "--env=k8s"); got.code != 0 ||
		!regexp.MustCompile(`(?m)^`+name+` .*running`).MatchString(got.stdout) {
		t.Errorf("%+v", got)
	}
	logs, output := h.aboutCommand(t, t.TempDir(), "batch", "logs", "--follow", name, "a"),
		new(lockedBuffer)
	logs.Stdout, logs.Stderr = output, output
	logs.WaitDelay = 10 * time.Second
	if err := logs.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the log of the first command", func() bool {
		return strings.Contains(output.String(), "echo begun")
	})
	if got := h.about(t, t.TempDir(), "batch", "cancel", name); got.code != 0 {
		t.Errorf("%+v", got)
	}
	_ = logs.Wait() // it ends; a node may cut the log of a pod that it deletes
	got := h.about(t, t.TempDir(), "batch", "wait", name)
	if got.code != 1 || !strings.Contains(got.stdout, "DeadlineExceeded") {
		t.Errorf("%+v", got)
	}
	dir := t.TempDir()
	got = h.about(t, dir, "batch", "collect", "--out=r", name)
	if records := batchRecords(t, filepath.Join(dir, "r")); got.code != 1 || len(records) != 0 ||
		!strings.Contains(got.stdout, "left      1") {
		t.Errorf("%+v, %v", got, records)
	}
	h.remove(t, name, mark)
}

// TestSubmitFiles has tasks that take several objects of the cluster, with a directory that does,
// and one whose directory is on a volume of the agents.
func TestSubmitFiles(t *testing.T) {
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	agents, err := os.ReadFile(h.template)
	if err != nil {
		t.Fatal(err)
	}
	dir, large := t.TempDir(), make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large) // it never fails
	h.template = filepath.Join(dir, "agents.yaml")
	writeTree(t, dir, map[string]string{"big/in.bin": string(large), "agents.yaml": string(agents) +
		fmt.Sprintf(`    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
  - name: fill
    image: %s
    command: [sh, -c, "mkdir /data/repo && printf volume >/data/repo/in.bin"]
    volumeMounts: [{name: data, mountPath: /data}]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, daemons.Debian)})
	var tasks strings.Builder
	want := map[string]string{}
	for i := range 3 {
		id, from, content := fmt.Sprintf("t%d", i), filepath.Join(dir, "big"), large
		if i == 2 {
			from, content = "/data/repo", []byte("volume")
		}
		fmt.Fprintf(&tasks, `{"id":%q,"prompt":%q,"workdir":%q}`+"\n", id,
			strings.Repeat(id+" ", 20_000), from)
		want[id] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	name := h.submit(t, mark, tasks.String(), `turns:
  - calls: [{tool: shell, args: {command: sha256sum <in.bin >sum.txt}}]
  - text: done
`, "--parallel=3")
	inputs, err := asAdmin(t)("get", "configmaps", "-l", "sandboxagent/batch="+name+
		",sandboxagent/kind in (input,piece)", "-o", "name")
	if n := len(strings.Fields(inputs)); err != nil || n < 3+2 {
		t.Errorf("%v: the tasks and the directory have these objects: %s", err, inputs)
	}
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := h.about(t, dir, "batch", "collect", "--out=r", name); got.code != 0 {
		t.Errorf("%+v", got)
	}
	for id, r := range batchRecords(t, filepath.Join(dir, "r")) {
		patch, err := os.ReadFile(r.Patch)
		if err != nil || !bytes.Contains(patch, []byte("\n+"+want[id])) {
			t.Errorf("%s: %v, %s", id, err, patch)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("no result of %v", want)
	}
	given, err := batch.Tasks(filepath.Join(dir, "r"))
	if err != nil || len(given) != 3 || !strings.HasPrefix(given[1].Prompt, "t1 t1 ") {
		t.Errorf("the tasks are not those of the file: %v", err)
	}
	h.remove(t, name, mark)
}

// serveCluster serves a model on the network of the cluster.
func serveCluster(t *testing.T, brain llmtest.Brain) *llmtest.Server {
	t.Helper()
	if daemons.OtherKube() {
		t.Skip("the pods of this cluster may not reach this machine")
	}
	address, err := asAdmin(t)("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer // which finds the address of this machine in the network of the cluster
	c, err := dialer.DialContext(t.Context(), "udp", strings.TrimPrefix(address, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is sent
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp",
		net.JoinHostPort(c.LocalAddr().(*net.UDPAddr).IP.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := llmtest.Serve(l, brain)
	t.Cleanup(server.Close)
	return server
}

// submitModel submits a batch for a model, with a Secret that has the key.
func (h submitHost) submitModel(
	t *testing.T, server *llmtest.Server, key, mark, tasks string, flags ...string,
) string {
	t.Helper()
	kubectl, secret := asAdmin(t), "key-"+mark
	_, err := kubectl("create", "secret", "generic", secret,
		"--from-literal=SANDBOXAGENT_API_KEY="+key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kubectl("delete", "secret", secret) })
	return h.submit(t, mark, tasks, "", append([]string{
		"--model=openai-compatible/m", "--base-url=" + server.URL(), "--model-secret=" + secret,
	}, flags...)...)
}

// TestSubmitModel has agents that use a model on the network with a key of a Secret. It fails once,
// and what that attempt has used counts. A key that the model refuses ends the batch.
func TestSubmitModel(t *testing.T) {
	t.Parallel()
	h := newSubmitHost(t)
	careful, fails := llmtest.Careful(1), 1
	server := serveCluster(t, func(r *llmtest.Request) llmtest.Reply {
		reply := careful(r)
		if len(reply.Calls) == 0 && fails > 0 {
			fails--
			reply.Fault = llmtest.Fault{Status: http.StatusInternalServerError}
		}
		return reply
	})
	submit := func(key, mark, tasks string) string {
		return h.submitModel(t, server, key, mark, tasks, "--max-retries=0", "--retry-for=0s",
			"--retries=1")
	}
	good, bad := newMark(), newMark()
	name := submit(server.Key(), good, `{"id":"a","prompt":"x"}`+"\n"+`{"id":"b","prompt":"x"}`)
	dir := t.TempDir()
	if got := h.about(t, dir, "batch", "wait", name); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := h.about(t, dir, "batch", "collect", name); got.code != 0 {
		t.Errorf("%+v", got)
	}
	for _, id := range []string{"a", "b"} {
		r := batchRecords(t, filepath.Join(dir, name+".results"))[id]
		if r == nil || !r.Passed() || r.Usage.Total() == 0 {
			t.Errorf("%s: %+v", id, r)
		} else if patch, err := os.ReadFile(r.Patch); err != nil || !bytes.Contains(patch, []byte("+0")) {
			t.Errorf("%s: %v, %s", id, err, patch)
		}
	}
	var failed []*batch.Record
	for r, err := range batch.Attempts(filepath.Join(dir, name+".results")) {
		if err != nil {
			t.Fatal(err)
		}
		failed = append(failed, r)
	}
	if len(failed) != 1 || failed[0].Status != "model_error" || failed[0].Usage.Total() == 0 {
		t.Errorf("the attempts without a result are %+v", failed)
	}
	if v := server.TakeViolations(); len(v) > 0 {
		t.Error(v)
	}
	h.remove(t, name, good)
	name = submit("wrong", bad, `{"id":"a","prompt":"x"}`)
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 1 ||
		!strings.Contains(got.stdout, "left      1: task a: exit code 3: ") ||
		!strings.Contains(got.stdout, "401") {
		t.Errorf("%+v", got)
	}
	h.remove(t, name, bad)
}

// TestSubmitPaused has a model whose server wants a longer pause than a request may wait. The task
// starts again after it, which does not count as another attempt. The agents have the key of the
// submitting machine.
func TestSubmitPaused(t *testing.T) {
	t.Parallel()
	h, mark := newSubmitHost(t), newMark()
	careful, pauses := llmtest.Careful(1), 1
	server := serveCluster(t, func(r *llmtest.Request) llmtest.Reply {
		reply := careful(r)
		if pauses > 0 {
			pauses--
			reply.Fault = llmtest.Fault{
				Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"2"}},
			}
		}
		return reply
	})
	h.vars = []string{"SANDBOXAGENT_API_KEY=" + server.Key()}
	name := h.submit(t, mark, `{"id":"a","prompt":"x"}`, "", "--model=openai-compatible/m",
		"--base-url="+server.URL(), "--max-retry-wait=1s", "--retries=0")
	if got := h.about(t, t.TempDir(), "batch", "wait", name); got.code != 0 ||
		!strings.Contains(got.stdout, "passed    1 of 1") {
		t.Errorf("%+v", got)
	}
	h.remove(t, name, mark)
}
