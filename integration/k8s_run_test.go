package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// kubeHost is a cluster in which the program makes pods.
type kubeHost struct{ kubeconfig string }

// kubeUser makes the user of the cluster once.
var kubeUser = sync.OnceValues(func() (*daemons.KubeUser, error) {
	return daemons.NewKubeUser(context.Background(), "../docs/k8s.md")
})

// kubeUsed means that a test has asked for kubeUser.
var kubeUsed atomic.Bool

// removeKubeUser removes what kubeUser has made.
func removeKubeUser() {
	if kubeUsed.Load() {
		user, _ := kubeUser() // the tests have reported its error
		user.Remove(context.Background())
	}
}

// sharedKube is the cluster that tests share, as a user with the Role of the documentation.
func sharedKube(t testing.TB) kubeHost {
	t.Helper()
	daemons.Kubeconfig(t) // or skips
	kubeUsed.Store(true)
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
	out, err := daemons.Kubectl(context.WithoutCancel(t.Context()), k.kubeconfig, "", "get", "pods",
		"-l", markLabel+"="+mark, "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// awaitNone waits until no pod of a run is left. Each look starts a process.
func (k kubeHost) awaitNone(t testing.TB, mark string) {
	t.Helper()
	await(t, "the end of the pod", func() bool {
		if k.pods(t, mark) == "" {
			return true
		}
		time.Sleep(500 * time.Millisecond)
		return false
	})
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
		{"image", 6, "ErrImageNeverPull", []string{
			"tool", "list_dir", "--image=no-such:image", "--args={}",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := k.run(t, t.TempDir(), nil, tt.args...)
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
		// The cluster of the tests has no proxy for services.
		"env", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port,
		"/tmp/"+filepath.Base(program), "exec", "--env=k8s", "--image="+daemons.Debian,
		"--pull=never", "--cpus=0.1", "--memory=256MiB", "--disk=512MiB", "--start-timeout=10m", "--",
		"sh", "-c", "echo inside; exit 7")
	if got.code != 7 || got.stdout != "inside\n" {
		t.Errorf("%+v", got)
	}
}

// TestK8sGone deletes the pod of a command.
func TestK8sGone(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	const script = "echo ready; exec sleep 1000"
	for name, tt := range map[string]struct {
		code int
		args []string
	}{
		"exec": {125, []string{"exec", "--", "sh", "-c", script}},
		"tool": {6, []string{"tool", "shell", `--args={"command": "` + script + `"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := newMark()
			cmd := k.command(t, t.TempDir(), mark, tt.args...)
			done := make(chan ran, 1)
			go func() { done <- finish(t, cmd) }()
			kubectl := func(args ...string) string {
				out, err := daemons.Kubectl(t.Context(), k.kubeconfig, "", append(args, "-l",
					markLabel+"="+mark)...)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			await(t, "the start of the pod", func() bool {
				return kubectl("get", "pods", "-o",
					"jsonpath={.items[*].status.containerStatuses[0].state.running.startedAt}") != ""
			})
			kubectl("delete", "pods", "--wait=false")
			got := <-done
			if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, "gone: deleted") {
				t.Errorf("%+v, want %d", got, tt.code)
			}
			k.awaitNone(t, mark)
		})
	}
}

// TestK8sCrashes kills the program at points of its life, which is mostly the making of the pod. No
// pod is left.
func TestK8sCrashes(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	points := 20
	if testing.Short() {
		points = 4
	}
	next := make(chan int)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for i := range next {
				// The process that cleans up has the name of the file in its arguments.
				mark, file := newMark(), filepath.Join(t.TempDir(), "config")
				data, err := os.ReadFile(k.kubeconfig)
				if err == nil {
					err = os.WriteFile(file, data, 0o600)
				}
				if err != nil {
					t.Error(err)
					continue
				}
				cmd := k.command(t, t.TempDir(), mark, "exec", "-q", "--image="+daemons.Busybox, "--", "sh",
					"-c", "echo ready; sleep 1000")
				cmd.Env = append(cmd.Env, "KUBECONFIG="+file)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Error(err)
					continue
				}
				if err := cmd.Start(); err != nil {
					t.Error(err)
					continue
				}
				if i == points-1 { // while the command runs
					_, _ = bufio.NewReader(out).ReadString('\n')
				} else {
					time.Sleep(rand.N(time.Duration(i+1) * 4 * time.Second / time.Duration(points)))
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				await(t, fmt.Sprintf("at point %d the end of the clean-up", i), func() bool {
					return !running(file)
				})
				k.awaitNone(t, mark)
			}
		})
	}
	for i := range points {
		next <- i
	}
	close(next)
	group.Wait()
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
	if got := run("env", "gc", "--env=k8s", "--dry-run"); strings.Contains(got.stdout, id) {
		t.Errorf("env gc: %+v", got)
	}
	if got := run("exec", "--env-id="+id, "--", "cat", "file"); got.stdout != "kept\n" {
		t.Errorf("exec: %+v", got)
	}
	if got := run("env", "attach", id, "--", "cat", "file"); got.stdout != "kept\n" {
		t.Errorf("env attach: %+v", got)
	}
	if got := run("env", "rm", id); got.code != 0 {
		t.Errorf("env rm: %+v", got)
	}
	k.awaitNone(t, mark)
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
	for _, f := range report.Findings {
		if f.OK == (f.Name == "no-network") { // the cluster of the tests ignores policies
			t.Errorf("%s: %v", f.Name, f.OK)
		}
	}
}
