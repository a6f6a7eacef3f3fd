package k8s_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestVerify checks the profile from inside, in each image.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, image := range []string{daemons.Debian, daemons.Empty} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			c := k8s.Config{Image: image}
			if image == daemons.Empty {
				c.HelperImage = daemons.Helper
			}
			report, err := open(t, connect(t), c).Verify(t.Context(), verify.Host{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Broken() {
				if f.Name != string(env.NoNetwork) { // the plugin of the tests ignores policies
					t.Errorf("%+v", f)
				}
			}
			if len(report.Broken()) != 1 && !daemons.OtherKube() {
				t.Errorf("the probe of the network reports that the policy is enforced: %+v", report)
			}
		})
	}
}

// TestNoNetwork requires what the cluster of the tests does not enforce.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	e, err := cluster.Open(t.Context(), config(t, k8s.Config{RequireNoNetwork: true}))
	switch {
	case err == nil && daemons.OtherKube():
		if got := e.Info().Strength(env.NoNetwork); got != env.Enforced {
			t.Errorf("the network is %s", got)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	case err == nil:
		t.Error(errors.Join(errors.New("it opens"), e.Close()))
	case !strings.Contains(err.Error(), "ignores the network policy"):
		t.Error(err)
	}
	full := open(t, cluster, k8s.Config{Network: k8s.NetworkFull})
	for _, g := range full.Info().Guarantees {
		if g.Name == env.NoNetwork {
			t.Errorf("with the network: %+v", g)
		}
	}
	policy := kubectl(t, "", "get", "networkpolicy", full.Pod(), "--ignore-not-found", "-o", "name")
	if policy != "" {
		t.Errorf("with the network %s exists", policy)
	}
}

// TestGone ends pods while a command runs.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		want   k8s.Reason
		config k8s.Config
		end    func(t *testing.T, pod string)
	}{
		{"deleted", k8s.ReasonDeleted, k8s.Config{}, func(t *testing.T, pod string) {
			kubectl(t, "", "delete", "pod", pod, "--wait=false")
		}},
		{"evicted", k8s.ReasonEvicted, k8s.Config{}, func(t *testing.T, pod string) {
			kubectl(t, fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata":
				{"name": %q, "namespace": %q}}`, pod, namespace), "create", "-f", "-", "--raw",
				"/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction")
		}},
		{
			"deadline", k8s.ReasonDeadline,
			k8s.Config{Deadline: 150 * time.Second},
			func(*testing.T, string) {},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, connect(t), tt.config)
			defer e.Close() //nolint:errcheck // its pod is gone
			done := envtest.Sleeping(t, e, "")
			tt.end(t, e.Pod())
			wantGone(t, e, done, tt.want)
		})
	}
}

// wantGone checks that a command and the environment end with the reason.
func wantGone(t *testing.T, e *k8s.Environment, done <-chan envtest.Outcome, want k8s.Reason) {
	t.Helper()
	o := await(t, done, "the command goes on")
	var gone *k8s.GoneError
	if !errors.Is(o.Err, env.ErrGone) || !errors.As(o.Err, &gone) || gone.Reason != want {
		t.Errorf("%+v, want the reason %s", o, want)
	}
	if _, err := e.Stat(t.Context(), "."); !errors.Is(err, env.ErrGone) {
		t.Errorf("the next call: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestOutOfMemory lets a command exceed the memory limit. The next one runs.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	e := open(t, connect(t), k8s.Config{Memory: 96 << 20})
	res, err := e.Exec(t.Context(), sh(`exec perl -e '$x = "x" x 1_000_000_000'`))
	var gone *k8s.GoneError
	_, noUnified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	if errors.As(err, &gone) && gone.Reason == k8s.ReasonOutOfMemory &&
		(noUnified == nil || daemons.OtherKube()) {
		return // a node with version 2 of control groups ends the whole container
	}
	if err != nil || !res.OutOfMemory || res.ExitCode != 137 {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := e.Exec(t.Context(), command("/bin/true")); err != nil || res.ExitCode != 0 {
		t.Errorf("the next one: %+v, %v", res, err)
	}
}

// TestStartFailures has pods that do not start, in the words of the cluster. None is left.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config k8s.Config
		want   string
	}{
		{"missing image", k8s.Config{Image: "no/such:image"}, "ErrImageNeverPull"},
		{"no shell", k8s.Config{Image: daemons.Empty}, "the image has no shell"},
		{
			"no node",
			k8s.Config{CPUs: 4000, Options: remote.Options{StartTimeout: 45 * time.Second}},
			"Insufficient cpu",
		},
		{
			"no node of the template",
			k8s.Config{
				Template: []byte("spec: {nodeSelector: {moon: full}}"),
				Options:  remote.Options{StartTimeout: 45 * time.Second},
			},
			"didn't match Pod's node affinity/selector",
		},
		{
			"Pod Security",
			k8s.Config{
				Template: []byte("spec: {hostNetwork: true}"), AllowFields: []string{"spec.hostNetwork"},
			},
			"violates PodSecurity",
		},
		{
			"invalid template",
			k8s.Config{Template: []byte("spec: {priorityClassName: no-such}")},
			"the cluster rejects the pod template: ",
		},
		{
			"init container of the template",
			k8s.Config{Template: []byte("spec: {initContainers: [" +
				initContainer("echo no registry >&2; exit 3", "") + "]}")},
			"the container prepare has ended: Error, exit code 3: no registry",
		},
		{"runtime class", k8s.Config{RuntimeClass: "no-such"}, `RuntimeClass "no-such" not found`},
		{
			"volume",
			k8s.Config{
				Template: []byte("spec: {volumes: [{name: c, configMap: {name: no-such}}], " +
					"containers: [{name: sandbox, volumeMounts: [{name: c, mountPath: /c}]}]}"),
				// It has to have a node by then.
				CPUs: 0.01, Options: remote.Options{StartTimeout: 2 * time.Minute},
			},
			`configmap "no-such" not found`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := config(t, tt.config)
			c.Session = strings.ToLower(fmt.Sprintf("fails-%x", rand.Uint64()))
			e, err := connect(t).Open(t.Context(), c)
			for range 20 { // another test may drain the node
				if err == nil || !strings.Contains(err.Error(), "were unschedulable") {
					break
				}
				e, err = connect(t).Open(t.Context(), c)
			}
			if err == nil {
				t.Fatal(errors.Join(errors.New("it opens"), e.Close()))
			}
			var failed *k8s.OpenError
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			waitGone(t, "sandboxagent-"+c.Session)
		})
	}
}

// initContainer is a container of a template that runs a script.
func initContainer(script, more string) string {
	return fmt.Sprintf(`{name: prepare, %simage: "%s", imagePullPolicy: Never, `+
		`command: [sh, -c, %q], resources: {limits: {cpu: 50m, memory: 32Mi, ephemeral-storage: 32Mi}}}`,
		more, daemons.Debian, script)
}

// TestSidecarRestarts has a sidecar of a template that fails once.
func TestSidecarRestarts(t *testing.T) {
	t.Parallel()
	e := open(t, connect(t), k8s.Config{Template: []byte(`
spec:
  volumes: [{name: state, emptyDir: {sizeLimit: 1Mi}}]
  initContainers:
  - ` + strings.TrimSuffix(initContainer("mkdir /state/once && exit 3; exec sleep 100000",
		"restartPolicy: Always, "), "}") + `, volumeMounts: [{name: state, mountPath: /state}]}
`)})
	if got := output(t, e, "echo works"); got != "works\n" {
		t.Errorf("%q", got)
	}
	poll(t, "the sidecar has started again", func() bool {
		return kubectl(t, "", "get", "pod", e.Pod(), "-o", "jsonpath={.status.initContainerStatuses"+
			"[?(@.name=='prepare')].restartCount}") == "1"
	})
}

// TestUnreachable has clusters that do not answer or reject the user.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: x, user: {token: wrong}}]
`
	for server, denied := range map[string]bool{
		"https://127.0.0.1:1": false, server(t): true,
	} {
		file := writeFile(t, "config", fmt.Sprintf(text, server))
		cluster, err := k8s.Connect(t.Context(), k8s.Address{Kubeconfig: file})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cluster.Open(t.Context(), config(t, k8s.Config{}))
		var failed *k8s.ClusterError
		if !errors.As(err, &failed) || failed.Denied != denied {
			t.Errorf("%s: %v", server, err)
		}
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
		if _, err := cluster.Open(t.Context(), config(t, k8s.Config{})); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestKubeconfig has mistakes in the configuration of the connection.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	file := daemons.Kubeconfig(t)
	for field, a := range map[string]k8s.Address{
		"kubeconfig": {Kubeconfig: "/no/such/file"},
		"context":    {Kubeconfig: file, Context: "no-such"},
		"as":         {Kubeconfig: file, Groups: []string{"g"}},
	} {
		_, err := k8s.Connect(t.Context(), a)
		var config *k8s.ConfigError
		if !errors.As(err, &config) || config.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestPlugin has a program that logs in, and one that fails.
func TestPlugin(t *testing.T) {
	t.Parallel()
	daemons.Kubeconfig(t)
	token, err := daemons.Kubectl(t.Context(), userConfig, "", "config", "view", "--raw", "-o",
		`jsonpath={.users[?(@.name=="limited")].user.token}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ script, want string }{
		"works": {`echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
			"status": {"token": "` + token + `"}}'`, ""},
		"fails": {"echo please log in >&2; exit 3", "rejects the credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin, file := writeFile(t, "plugin", tt.script), at(t, server(t))
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			users := fmt.Sprintf("users: [{name: limited, user: {exec: {apiVersion: "+
				"client.authentication.k8s.io/v1, command: sh, args: [%q], interactiveMode: Never}}}]\n",
				plugin)
			before, _, _ := strings.Cut(string(data), "users:\n")
			cluster := connectBy(t, writeFile(t, "config", before+users))
			e, err := cluster.Open(t.Context(), config(t, k8s.Config{}))
			if tt.want != "" {
				var failed *k8s.ClusterError
				if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAddress has several files, one of which is missing. The address selects the same from another
// directory, and when the current context has changed.
func TestAddress(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const contexts = `
apiVersion: v1
kind: Config
current-context: two
contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: c, namespace: own}}]
`
	const clusters = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1"}}]
`
	for name, text := range map[string]string{"a": contexts, "b": clusters} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := strings.Join([]string{"a", "missing", "b"}, string(os.PathListSeparator))
	t.Setenv("KUBECONFIG", list)
	for _, a := range []k8s.Address{{}, {Kubeconfig: list}} {
		c, err := k8s.Connect(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		want := k8s.Address{
			Kubeconfig: filepath.Join(dir, "a") + string(os.PathListSeparator) + filepath.Join(dir, "b"),
			Context:    "two", Namespace: "own",
		}
		if got := c.Address(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if c.Server() != "https://192.0.2.1" {
			t.Errorf("the server is %s", c.Server())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestImpersonate acts as a user without rights.
func TestImpersonate(t *testing.T) {
	t.Parallel()
	cluster, err := k8s.Connect(t.Context(), k8s.Address{
		Kubeconfig: daemons.Kubeconfig(t), Namespace: namespace, User: "nobody", Groups: []string{"none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close() //nolint:errcheck // never fails
	if _, err = cluster.Open(t.Context(), config(t, k8s.Config{})); err == nil ||
		!strings.Contains(err.Error(), `User "nobody" cannot create resource "pods"`) {
		t.Errorf("%v", err)
	}
	allowed, err := k8s.Connect(t.Context(), k8s.Address{
		Kubeconfig: daemons.Kubeconfig(t), Namespace: namespace, User: "nobody",
		Groups: []string{"none", "system:masters"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = allowed.Close() })
	if got := output(t, open(t, allowed, k8s.Config{}), "echo works"); got != "works\n" {
		t.Errorf("%q", got)
	}
}

// TestLeave leaves an environment, to which another client attaches. After the TTL its pod
// completes, and Collect deletes it.
func TestLeave(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	e := start(t, cluster, k8s.Config{Options: remote.Options{TTL: 45 * time.Second}})
	output(t, e, "echo kept > file")
	ticket := e.Ticket()
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	again := connect(t)
	attached, err := again.Attach(t.Context(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, attached, "cat file"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
	collecting.Lock()
	defer collecting.Unlock()
	if err := attached.Leave(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the pod completes", func() bool {
		list, err := cluster.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if l.Name == e.Pod() {
				return l.Garbage && l.State == "succeeded" && l.Own && l.TTL == 45*time.Second
			}
		}
		return false
	})
	if _, err := again.Attach(t.Context(), ticket); !errors.Is(err, env.ErrGone) {
		t.Errorf("attach to an ended one: %v", err)
	}
	for _, dry := range []bool{true, false} {
		removed, err := cluster.Collect(t.Context(), remote.CollectOptions{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range removed {
			found = found || r.Name == e.Pod() && r.Reason == "it has ended"
		}
		if !found {
			t.Errorf("collected %+v", removed)
		}
	}
	waitGone(t, e.Pod())
}

// collecting keeps a test from collecting the completed pod of another one.
var collecting sync.Mutex

// TestCollectSparesOthers has a completed pod of another owner.
func TestCollectSparesOthers(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	e := start(t, cluster, k8s.Config{Options: remote.Options{TTL: 20 * time.Second}})
	kubectl(t, "", "label", "--overwrite", "pod", e.Pod(), "sandboxagent/owner=another")
	collecting.Lock()
	defer collecting.Unlock()
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the pod completes", func() bool {
		return kubectl(t, "", "get", "pod", e.Pod(), "-o", "jsonpath={.status.phase}") == "Succeeded"
	})
	if _, err := cluster.Collect(t.Context(), remote.CollectOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	if kubectl(t, "", "get", "pod", e.Pod(), "-o", "jsonpath={.metadata.deletionTimestamp}") != "" {
		t.Error("it is deleted")
	}
	kubectl(t, "", "delete", "pod", e.Pod())
}

// TestCutStreams cuts the connection many times while a command counts: it runs once, and its
// output is whole.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	cuts := 100
	if testing.Short() {
		cuts = 10
	}
	p := newProxy(t, server(t))
	cluster := connectBy(t, p.kubeconfig(t))
	e := open(t, cluster, k8s.Config{})
	envtest.Survives(t, e, cuts, p.cut)
}

// TestTemplate mounts a ConfigMap, and has a sidecar, which does not keep the pod from completing.
func TestTemplate(t *testing.T) {
	t.Parallel()
	kubectl(t, "", "create", "configmap", "settings", "--from-literal=color=blue")
	// On a full node its pod waits, and preempts none of other tests.
	kubectl(t, "", "create", "priorityclass", namespace, "--value=1", "--preemption-policy=Never")
	t.Cleanup(func() { kubectl(t, "", "delete", "priorityclass", namespace) })
	cluster := connect(t)
	e := start(t, cluster, k8s.Config{
		Options: remote.Options{TTL: 20 * time.Second},
		Labels:  map[string]string{"team": "search"},
		Template: []byte(`
metadata: {annotations: {note: kept}}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: agents, operator: Exists}]
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {team: other}}}
  priorityClassName: ` + namespace + `
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: shared, emptyDir: {}}
  - name: about
    downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  containers:
  - name: sandbox
    env: [{name: GREETING, value: hello}]
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: shared, mountPath: /shared}
    - {name: about, mountPath: /about}
  - name: side
    image: ` + daemons.Busybox + `
    imagePullPolicy: Never
    command: [sh, -c, "echo from the sidecar >/shared/file; exec sleep 1000"]
    volumeMounts: [{name: shared, mountPath: /shared}]
    resources: {limits: {cpu: 50m, memory: 32Mi, ephemeral-storage: 32Mi}}
`),
	})
	want := "hello blue " + e.Pod() + "\n"
	if got := output(t, e, "echo $GREETING $(cat /settings/color) $(cat /about/name)"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	poll(t, "the sidecar has written", func() bool {
		return output(t, e, "cat /shared/file || true") == "from the sidecar\n"
	})
	const path = "{.metadata.labels.team} {.metadata.annotations.note} " +
		"{.spec.initContainers[1].securityContext.capabilities.drop[0]} {.spec.priority}"
	got := kubectl(t, "", "get", "pod", e.Pod(), "-o", "jsonpath="+path)
	if got != "search kept ALL 1" {
		t.Errorf("the pod has %q", got)
	}
	collecting.Lock()
	defer collecting.Unlock()
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the pod completes", func() bool {
		return kubectl(t, "", "get", "pod", e.Pod(), "-o", "jsonpath={.status.phase}") == "Succeeded"
	})
	kubectl(t, "", "delete", "pod", e.Pod())
}

// TestRequests counts the requests of environments at the API server.
func TestRequests(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(filepath.Dir(daemons.Kubeconfig(t)), "audit.log")
	if _, err := os.Stat(audit); err != nil {
		t.Skip("the cluster has no log of requests here")
	}
	cluster := connect(t)
	var pods []string
	for range 5 {
		e := start(t, cluster, k8s.Config{Image: daemons.Busybox})
		output(t, e, "echo x >f; cat f")
		pods = append(pods, e.Pod())
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waitGone(t, pods[4])
	if again, _ := checkRequests(t, audit, pods); again > len(pods) {
		t.Errorf("%d streams were opened again", again)
	}
}

// checkRequests checks by the log of the API server that pods took few requests. Streams that were
// opened again do not count, nor the looks at the pod before them: a busy machine does not answer
// for long. It returns their number, and that of all other requests of programs in the log.
func checkRequests(t *testing.T, log string, pods []string) (again, all int) {
	t.Helper()
	audit, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer audit.Close() //nolint:errcheck // it was only read
	const (
		unnamed = 3 // the pod's creation, the policy's, and the list of policies
		needed  = 3 // streams
	)
	requests := make(map[string]map[string]int)
	for lines := bufio.NewScanner(audit); lines.Scan(); {
		var r struct {
			Stage, UserAgent, Verb string
			ObjectRef              struct{ Name, Subresource string }
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.UserAgent != "sandboxagent" ||
			r.Stage != "ResponseComplete" {
			continue
		}
		of := requests[r.ObjectRef.Name]
		if of == nil {
			of = make(map[string]int)
			requests[r.ObjectRef.Name] = of
		}
		of[cmp.Or(r.ObjectRef.Subresource, r.Verb)]++
		all++
	}
	most := 0
	for _, pod := range pods {
		n := unnamed
		for _, of := range requests[pod] {
			n += of
		}
		streams := requests[pod]["exec"]
		repeated := max(0, streams-needed)
		n -= repeated + min(requests[pod]["get"], repeated)
		all -= repeated + min(requests[pod]["get"], repeated)
		if n > 12 || streams == 0 {
			t.Errorf("%d requests for %s, want 12 at most: %v", n, pod, requests[pod])
		}
		most, again = max(most, n), again+repeated
	}
	t.Logf("%d requests at most for each of %d pods, and %d streams again", most, len(pods), again)
	return again, all
}

// TestDeliveryIsCut cuts the connection twice while it delivers the helper, and then each time.
func TestDeliveryIsCut(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server(t))
	cluster := connectBy(t, p.kubeconfig(t))
	p.cutting.Store(2)
	e := open(t, cluster, k8s.Config{})
	if n := p.cutting.Load(); n >= 0 {
		t.Errorf("%d connections were not cut", n)
	}
	if got := output(t, e, "echo works"); got != "works\n" {
		t.Errorf("%q", got)
	}
	p.cutting.Store(100)
	_, err := cluster.Open(t.Context(), config(t, k8s.Config{}))
	var failed *k8s.OpenError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "deliver the helper: ") {
		t.Errorf("all are cut: %v", err)
	}
}

// TestOldServers has servers whose streams are SPDY or WebSockets with the older protocol, as those
// before version 1.30 of Kubernetes.
func TestOldServers(t *testing.T) {
	t.Parallel()
	const protocols = "Sec-Websocket-Protocol"
	for name, tt := range map[string]struct {
		upgrade string // of the streams that the server accepts
		old     func(w http.ResponseWriter, r *http.Request) (done bool)
	}{
		"SPDY": {"spdy/3.1", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get(protocols) == "" {
				return false
			}
			http.Error(w, "unable to upgrade: missing upgrade headers in request", http.StatusBadRequest)
			return true
		}},
		"WebSocket": {"websocket", func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get(protocols) != "" {
				r.Header.Set(protocols, "v4.channel.k8s.io")
			}
			return false
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var streams atomic.Int32
			p, file := inFront(t, func(w http.ResponseWriter, r *http.Request) bool {
				if strings.EqualFold(r.Header.Get("Upgrade"), tt.upgrade) {
					streams.Add(1)
				}
				return tt.old(w, r)
			})
			p.cutting.Store(1) // the delivery
			e := open(t, connectBy(t, file), k8s.Config{})
			opened := streams.Load()
			envtest.Survives(t, e, 3, p.cut)
			if opened < 3 || streams.Load() < opened+3 {
				t.Errorf("%d streams, then %d", opened, streams.Load())
			}
		})
	}
}
