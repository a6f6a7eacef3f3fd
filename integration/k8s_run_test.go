package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// kubeHost is a cluster in which the program makes pods.
type kubeHost struct{ kubeconfig string }

// kubeUser and submitUser make the users of the cluster once: one who only runs commands in pods,
// and one who submits batches, too. Each has a namespace.
var (
	kubeUser   = sync.OnceValues(makeKubeUser)
	submitUser = sync.OnceValues(makeKubeUser)
)

// kubeUsers has the users that were made.
var kubeUsers struct {
	mu   sync.Mutex
	made []*daemons.KubeUser
}

func makeKubeUser() (*daemons.KubeUser, error) {
	user, err := daemons.NewKubeUser(context.Background(), "../docs/k8s.md")
	kubeUsers.mu.Lock()
	defer kubeUsers.mu.Unlock()
	kubeUsers.made = append(kubeUsers.made, user)
	return user, err
}

// removeKubeUsers removes the users.
func removeKubeUsers() {
	for _, user := range kubeUsers.made {
		user.Remove(context.Background())
	}
}

// sharedKube is the cluster that tests share, as a user with the Role of the documentation.
func sharedKube(t testing.TB) kubeHost {
	t.Helper()
	daemons.Kubeconfig(t) // or skips
	user, err := kubeUser()
	if err != nil {
		t.Fatal(err)
	}
	return kubeHost{user.Config}
}

// command makes an execution of the program in dir. Its environment variables select a pod, which
// is small and has the mark.
func (k kubeHost) command(t testing.TB, dir, mark string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command(t), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir(), "KUBECONFIG="+k.kubeconfig,
		"SANDBOXAGENT_ENV=k8s", "SANDBOXAGENT_CPUS=0.1", "SANDBOXAGENT_MEMORY=256MiB",
		"SANDBOXAGENT_DISK=512MiB", "SANDBOXAGENT_PULL=never", "SANDBOXAGENT_START_TIMEOUT=10m",
		"SANDBOXAGENT_LABEL="+markLabel+"="+mark)
	return cmd
}

// run runs the program, and waits until its pods are gone.
func (k kubeHost) run(t testing.TB, dir string, vars []string, args ...string) ran {
	t.Helper()
	mark := newMark()
	cmd := k.command(t, dir, mark, args...)
	cmd.Env = append(cmd.Env, vars...)
	got := finish(t, cmd)
	k.awaitNone(t, mark)
	return got
}

// pods lists those of a run.
func (k kubeHost) pods(t testing.TB, mark string) string {
	t.Helper()
	var out string
	await(t, "an answer of the API server", func() bool {
		var err error
		out, err = daemons.Kubectl(context.WithoutCancel(t.Context()), k.kubeconfig, "", "get", "pods",
			"-l", markLabel+"="+mark, "-o", "name")
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return out
}

// awaitNone waits until no pod of a run is left.
func (k kubeHost) awaitNone(t testing.TB, mark string) {
	t.Helper()
	await(t, "the end of the pod", func() bool { return k.pods(t, mark) == "" })
}

// TestK8sRun checks that a run in a pod changes only those files of the host that its flags name.
func TestK8sRun(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	model := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(model), map[string]string{
		// The network of a pod has a device.
		"model.yaml": strings.NewReplacer(`, " lo\n"`, "", "        not_contains: [eth0]\n", "").
			Replace(rewrite),
	})
	for name, apply := range map[string]bool{"patch": false, "patch and apply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, mark := poem(t), newMark()
			want, patch := readTree(t, dir), filepath.Join(t.TempDir(), "out.patch")
			clean := filepath.Join(t.TempDir(), "clean")
			git(t, dir, "clone", "-q", dir, clean)
			args := []string{
				"run", "--model=script:" + model, "--image=" + daemons.Debian, "--patch", patch,
				"--output=stream-json", "rewrite it",
			}
			if apply {
				args, want = append(args, "--apply"), rewritten
			}
			got := finish(t, k.command(t, dir, mark, args...))
			if got.code != 0 {
				t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			if _, res := records(t, got.stdout); res.Status != "completed" || res.Patch != patch {
				t.Errorf("the result is %+v", res)
			}
			if diff := cmp.Diff(want, readTree(t, dir)); diff != "" {
				t.Errorf("the directory of the host (-want +got):\n%s", diff)
			}
			git(t, clean, "apply", "--index", patch)
			k.awaitNone(t, mark)
		})
	}
}

// TestK8sExitCodes has the codes of commands, of mistakes and of a cluster that fails.
func TestK8sExitCodes(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	template := filepath.Join(t.TempDir(), "pod.yaml")
	writeTree(t, filepath.Dir(template), map[string]string{"pod.yaml": "spec: {hostNetwork: true}\n"})
	for _, tt := range []struct {
		name string
		code int
		text string
		args []string
	}{
		{"code", 7, "", []string{"exec", "--", "sh", "-c", "exit 7"}},
		{"not found", 127, "not found", []string{"exec", "--", "no-such-program"}},
		{"timeout", 124, "--timeout", []string{"exec", "--timeout=1s", "--", "sleep", "1000"}},
		{"context", 125, "--context: ", []string{"exec", "--context=no-such", "--", "true"}},
		{
			"namespace", 125, `is forbidden: `,
			[]string{"exec", "--namespace=no-such", "--", "true"},
		},
		{
			"network", 125, "does not keep the pod from the network",
			[]string{"exec", "--enforce=no-network", "--", "true"},
		},
		{
			"no shell", 125, "--helper-image",
			[]string{"exec", "--image=" + daemons.Empty, "--", "/bin/probe", "id"},
		},
		{
			"helper image", 0, "", []string{
				"exec", "--image=" + daemons.Empty, "--helper-image=" + daemons.Helper, "--", "/bin/probe",
				"id",
			},
		},
		{
			"no node", 125, "Insufficient cpu",
			[]string{"exec", "--cpus=4000", "--start-timeout=30s", "--", "true"},
		},
		{"image", 6, "ErrImageNeverPull", []string{
			"tool", "list_dir", "--image=no-such:image", "--args={}",
		}},
		{"Pod Security", 125, "violates PodSecurity", []string{
			"exec", "--pod-template=" + template, "--allow-pod-field=spec.hostNetwork", "--", "true",
		}},
		{"refused field", 125, "spec.hostNetwork", []string{
			"exec", "--pod-template=" + template, "--", "true",
		}},
		{"impersonation", 125, "impersonate", []string{
			"exec", "--as=nobody", "--as-group=none", "--", "true",
		}},
		{"runtime class", 125, `RuntimeClass "no-such" not found`, []string{
			"exec", "--runtime-class=no-such", "--", "true",
		}},
		{"kubeconfig", 125, "--kubeconfig: ", []string{"exec", "--kubeconfig=no/such", "--", "true"}},
		{"user", 0, "", []string{
			"exec", "--user=10002:10003", "--", "sh", "-c", "test $(id -u):$(id -g) = 10002:10003",
		}},
		{"deadline", 125, "deadline", []string{"exec", "--deadline=20s", "--", "sleep", "1000"}},
		{
			"pull", 125, "ImagePull", // ErrImagePull or ImagePullBackOff
			[]string{"exec", "--image=127.0.0.1:1/no-such:image", "--pull=always", "--", "true"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.name == "network" && daemons.OtherKube() {
				t.Skip("the network of this cluster may enforce policies")
			}
			got := k.run(t, t.TempDir(), nil, tt.args...)
			for range 20 { // another test may drain the node
				if !strings.Contains(got.stderr, "were unschedulable") {
					break
				}
				got = k.run(t, t.TempDir(), nil, tt.args...)
			}
			if got.code != tt.code || !strings.Contains(got.stderr, tt.text) {
				t.Errorf("exit code %d, want %d: %s", got.code, tt.code, got.stderr)
			}
		})
	}
}

// TestK8sInCluster runs the program in a pod: it makes another one, as the pod's service account.
func TestK8sInCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: the program is uploaded into a pod")
	}
	k := sharedKube(t)
	server, err := daemons.Kubectl(t.Context(), k.kubeconfig, "", "config", "view", "-o",
		"jsonpath={.clusters[0].cluster.server}")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	dir, program := t.TempDir(), command(t)
	writeTree(t, dir, map[string]string{"pod.yaml": `
spec: {serviceAccountName: user, automountServiceAccountToken: true}
`})
	got := k.run(t, dir, nil, "exec", "--network=full", "--pod-template=pod.yaml",
		"--allow-pod-field=spec.automountServiceAccountToken", "--allow-pod-field=spec.volumes",
		"--allow-pod-field=spec.containers", "--allow-pod-field=spec.initContainers", // its mounts
		"--upload="+program+":/tmp", "--",
		// In the cluster of the tests the service kubernetes has no address.
		"env", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port,
		"/tmp/"+filepath.Base(program), "exec", "--env=k8s", "--image="+daemons.Debian,
		"--pull=never", "--cpus=0.1", "--memory=256MiB", "--disk=512MiB", "--start-timeout=10m", "--",
		"sh", "-c", "echo inside; exit 7")
	if got.code != 7 || got.stdout != "inside\n" {
		t.Errorf("%+v", got)
	}
}

// TestK8sGone deletes and evicts the pods of commands.
func TestK8sGone(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	const script = "echo ready; exec sleep 1000"
	execArgs := []string{"exec", "--", "sh", "-c", script}
	const turns = `turns:
  - calls: [{tool: shell, args: {command: "` + script + `", timeout_ms: 600000}}]
`
	runArgs := []string{"run", "--model=script:model.yaml", "wait"}
	toolArgs := []string{"tool", "shell", `--args={"command": "` + script + `", "timeout_ms": 600000}`}
	for name, tt := range map[string]struct {
		code   int
		args   []string
		evict  bool
		reason string
	}{
		"exec":         {125, execArgs, false, "deleted"},
		"tool":         {6, toolArgs, false, "deleted"},
		"run":          {6, runArgs, false, "deleted"},
		"exec evicted": {125, execArgs, true, "evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark, dir := newMark(), t.TempDir()
			writeTree(t, dir, map[string]string{"model.yaml": turns})
			cmd := k.command(t, dir, mark, tt.args...)
			done := make(chan ran, 1)
			go func() { done <- finish(t, cmd) }()
			kubectl := func(kubeconfig, stdin string, args ...string) string {
				out, err := daemons.Kubectl(t.Context(), kubeconfig, stdin, args...)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			label := "--selector=" + markLabel + "=" + mark
			await(t, "the start of the pod", func() bool { // for room on the node
				return kubectl(k.kubeconfig, "", "get", "pods", label, "-o",
					"jsonpath={.items[*].status.containerStatuses[0].state.running.startedAt}") != ""
			})
			if tt.evict {
				pod := strings.Fields(kubectl(k.kubeconfig, "", "get", "pods", label, "-o",
					"jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name}"))
				kubectl(daemons.Kubeconfig(t), fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction",
					"metadata": {"namespace": %q, "name": %q}}`, pod[0], pod[1]), "create", "-f", "-", "--raw",
					"/api/v1/namespaces/"+pod[0]+"/pods/"+pod[1]+"/eviction")
			} else {
				kubectl(k.kubeconfig, "", "delete", "pods", label, "--wait=false")
			}
			got := <-done
			if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, "gone: "+tt.reason) {
				t.Errorf("%+v, want %d and %s", got, tt.code, tt.reason)
			}
			k.awaitNone(t, mark)
		})
	}
}

// TestK8sCrashes kills the program at points of its life, evenly spread over what it sends to the
// API server and receives. No pod is left, and no half of a patch.
func TestK8sCrashes(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	model := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(model), map[string]string{"model.yaml": strings.NewReplacer(
		`, " lo\n"`, "", "        not_contains: [eth0]\n", "").Replace(rewrite)})
	for name, tt := range map[string]struct {
		points int
		args   []string
	}{
		"life":     {15, []string{"--helper-image=" + daemons.Helper}},
		"delivery": {5, nil}, // most of the traffic
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				tt.points /= 5
			}
			patch := filepath.Join(t.TempDir(), "patch")
			args := append([]string{
				"run", "-q", "--model=script:" + model, "--image=" + daemons.Debian, "--patch=" + patch,
				"rewrite it",
			}, tt.args...)
			crash := func(after int64) (passed int64, killed bool) {
				m := newMeter(t, k, after)
				mark, dir := newMark(), poem(t)
				cmd := k.command(t, dir, mark, args...)
				// The process that cleans up has the name of the file in its arguments.
				cmd.Env = append(cmd.Env, "KUBECONFIG="+m.kubeconfig)
				cleaner := watchFor(t, m.kubeconfig)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				stop := context.AfterFunc(m.reached, func() { _ = cmd.Process.Kill() })
				err := cmd.Wait()
				if killed = !stop(); !killed && err != nil {
					t.Errorf("after %d pieces it was not killed, and failed: %v", after, err)
				}
				await(t, fmt.Sprintf("after %d pieces, the end of the clean-up", after), func() bool {
					return !running(m.kubeconfig)
				})
				if after == 0 { // otherwise the kill may come before it starts
					cleaner.gone()
				}
				k.awaitNone(t, mark)
				return m.passed.Load(), killed
			}
			total, _ := crash(0)
			want, err := os.ReadFile(patch)
			if err != nil || total < 20 {
				t.Fatalf("a whole run: %d pieces, %v", total, err)
			}
			for i := range tt.points {
				if err := os.Remove(patch); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				after := 1 + total*int64(i)/int64(tt.points)
				for _, killed := crash(after); !killed; _, killed = crash(after) {
					after = max(1, after*9/10) // this run had fewer pieces
				}
				if got, err := os.ReadFile(patch); err == nil && !bytes.Equal(got, want) {
					t.Errorf("the patch is %q", got)
				}
			}
		})
	}
}

// meter passes connections on to the API server, and counts the pieces that it reads.
type meter struct {
	kubeconfig string
	passed     atomic.Int64
	reached    context.Context //nolint:containedctx // ends after so many pieces
}

// newMeter makes a meter that ends reached after a number of pieces; never, if that is 0.
func newMeter(t *testing.T, k kubeHost, after int64) *meter {
	t.Helper()
	kubectl := func(args ...string) string {
		out, err := daemons.Kubectl(t.Context(), k.kubeconfig, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	target := strings.TrimPrefix(kubectl("config", "view", "-o",
		"jsonpath={.clusters[0].cluster.server}"), "https://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	data := kubectl("config", "view", "--raw")
	m := &meter{kubeconfig: filepath.Join(t.TempDir(), "config")}
	writeTree(t, filepath.Dir(m.kubeconfig), map[string]string{
		"config": strings.ReplaceAll(data, target, l.Addr().String()),
	})
	var end context.CancelFunc
	m.reached, end = context.WithCancel(context.Background())
	pass := func(to, from net.Conn) {
		defer to.Close()   //nolint:errcheck // it passes on what it has
		defer from.Close() //nolint:errcheck // likewise
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if m.passed.Add(1) == after {
				end()
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				_ = c.Close()
				continue
			}
			go pass(c, s)
			go pass(s, c)
		}
	}()
	return m
}

// TestK8sKeep leaves a pod to other commands of the program, and removes it.
func TestK8sKeep(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	state, mark := t.TempDir(), newMark()
	run := func(args ...string) ran {
		cmd := exec.CommandContext(t.Context(), command(t), args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+state, "KUBECONFIG="+k.kubeconfig)
		return finish(t, cmd)
	}
	kept := k.command(t, t.TempDir(), mark, "exec", "--keep", "--ttl=5m", "--", "sh", "-c",
		"echo kept >file")
	kept.Env = append(kept.Env, "SANDBOXAGENT_STATE_DIR="+state)
	if got := finish(t, kept); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	id := strings.TrimPrefix(strings.TrimSpace(k.pods(t, mark)), "pod/sandboxagent-")
	if got := run("env", "list", "--env=k8s"); got.code != 0 || !strings.Contains(got.stdout, id) {
		t.Errorf("env list: %+v", got)
	}
	if got := run("env", "gc", "--env=k8s", "--dry-run"); got.code != 0 ||
		strings.Contains(got.stdout, id) {
		t.Errorf("env gc: %+v", got)
	}
	if got := run("exec", "--env-id="+id, "--", "cat", "file"); got.code != 0 ||
		got.stdout != "kept\n" {
		t.Errorf("exec: %+v", got)
	}
	if got := run("env", "attach", id, "--", "cat", "file"); got.code != 0 ||
		got.stdout != "kept\n" {
		t.Errorf("env attach: %+v", got)
	}
	if got := run("env", "rm", id); got.code != 0 {
		t.Errorf("env rm: %+v", got)
	}
	k.awaitNone(t, mark)
}

// TestK8sOrphans kills the program together with the process that cleans up after it, while a
// command runs and while the pod starts. The pod ends by itself, and env gc deletes it.
func TestK8sOrphans(t *testing.T) {
	t.Parallel()
	sharedKube(t)
	user, err := makeKubeUser() // env gc deletes what other tests begin or end
	if err != nil {
		t.Fatal(err)
	}
	k := kubeHost{user.Config}
	collected := new(lockedBuffer) // by env gc of both, which deletes the pods of each other
	for name, tt := range map[string]struct {
		reason string
		begun  func(output, mark string) bool
	}{
		"command": {"it has ended", func(output, mark string) bool {
			if output != "begun\n" {
				return false
			}
			// Until the kubelet reports the start, env gc takes the pod for one that has not started.
			started, err := daemons.Kubectl(t.Context(), k.kubeconfig, "", "get", "pods", "-l",
				markLabel+"="+mark, "-o",
				"jsonpath={.items[*].status.containerStatuses[0].state.running.startedAt}")
			return err == nil && started != ""
		}},
		"start": {"", func(_, mark string) bool { return k.pods(t, mark) != "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(k.kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			own := kubeHost{filepath.Join(t.TempDir(), "config")} // in the arguments of that process
			writeTree(t, filepath.Dir(own.kubeconfig), map[string]string{"config": string(data)})
			mark, output := newMark(), new(lockedBuffer)
			cmd := own.command(t, t.TempDir(), mark, "exec", "--ttl=20s", "--image="+daemons.Debian, "--",
				"sh", "-c", "echo begun; exec sleep 100000")
			cmd.Stdout = output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "the beginning", func() bool { // for room on the node
				return running(own.kubeconfig) && tt.begun(output.String(), mark)
			})
			pod := strings.TrimPrefix(strings.TrimSpace(k.pods(t, mark)), "pod/")
			for _, pid := range processesWith(own.kubeconfig) {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill()
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			await(t, "env gc has deleted the pod", func() bool {
				gc := exec.CommandContext(t.Context(), command(t), "env", "gc", "--env=k8s")
				gc.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig,
					"SANDBOXAGENT_STATE_DIR="+t.TempDir())
				got := finish(t, gc)
				if got.code != 0 {
					t.Errorf("%+v", got)
				}
				_, _ = collected.Write([]byte(got.stdout))
				return strings.Contains(collected.String(), "removed pod "+pod+": "+tt.reason)
			})
			k.awaitNone(t, mark)
		})
	}
}

// TestK8sVerify proves the guarantees of a pod from inside.
func TestK8sVerify(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	got := k.run(t, t.TempDir(), nil, "env", "verify", "--output=json")
	var report struct {
		Findings []struct {
			Name string
			OK   bool
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || len(report.Findings) < 15 {
		t.Fatalf("%v: %+v", err, got)
	}
	networks := 0
	for _, f := range report.Findings {
		if f.Name == "no-network" {
			networks++
		}
		// The cluster of the tests ignores policies.
		if f.OK == (f.Name == "no-network") && (f.Name != "no-network" || !daemons.OtherKube()) {
			t.Errorf("%s: %v", f.Name, f.OK)
		}
	}
	if networks != 1 {
		t.Errorf("the network is found %d times", networks)
	}
}

// TestK8sDemo runs the demo with the Go toolchain on a volume of the node.
func TestK8sDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: a pod compiles")
	}
	sharedKube(t)
	if daemons.OtherKube() {
		t.Skip("the toolchain of this machine may not be on a node of this cluster")
	}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	user, err := makeKubeUser() // demo has no --label: its pod is the only one
	if err != nil {
		t.Fatal(err)
	}
	k, name := kubeHost{user.Config}, "goroot-"+newMark()
	admin := func(stdin string, args ...string) {
		t.Helper()
		if _, err := daemons.Kubectl(context.WithoutCancel(t.Context()), daemons.Kubeconfig(t), stdin,
			args...); err != nil {
			t.Fatal(err)
		}
	}
	admin(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  claimRef: {name: %[1]s, namespace: %[2]s}
  hostPath: {path: %[3]q}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: %[1]s
  resources: {requests: {storage: 1Gi}}
`, name, user.Namespace, strings.TrimSpace(string(root))), "create", "-f", "-")
	t.Cleanup(func() { admin("", "delete", "--wait=false", "persistentvolume", name) })
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"pod.yaml": fmt.Sprintf(`
spec:
  volumes: [{name: go, persistentVolumeClaim: {claimName: %s, readOnly: true}}]
  containers:
  - name: sandbox
    env: [{name: PATH, value: "/usr/local/go/bin:/usr/bin:/bin"}, {name: CGO_ENABLED, value: "0"}]
    volumeMounts: [{name: go, mountPath: /usr/local/go, readOnly: true}]
`, name)})
	cmd := k.command(t, dir, "", "demo", "--image="+daemons.Debian, "--pod-template=pod.yaml")
	cmd.Env = append(cmd.Env, "SANDBOXAGENT_CPUS=1", "SANDBOXAGENT_MEMORY=2GiB")
	got := finish(t, cmd)
	await(t, "the end of the pod", func() bool {
		out, err := daemons.Kubectl(t.Context(), user.Config, "", "get", "pods", "-o", "name")
		return err == nil && out == ""
	})
	if got.code != 0 || !strings.Contains(got.stdout, "\n+++ b/") {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}
