package k8s_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// ownCluster is a cluster for one test.
type ownCluster struct {
	*daemons.Kube
	*k8s.Cluster // as a user with the Role of the documentation, in a namespace that is restricted
	user         *daemons.KubeUser
}

func newCluster(t *testing.T) ownCluster {
	t.Helper()
	if err := daemons.KubeAvailable(); err != nil {
		daemons.Missing(t, "k8s", err.Error())
	}
	d := daemons.NewDocker(t, daemons.DockerConfig{})
	kube, err := daemons.StartKube(t.Context(), d, daemons.Debian)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(kube.State())
		}
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	user, err := daemons.NewKubeUserOf(t.Context(), kube.Config(), "../../docs/k8s.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Remove(context.WithoutCancel(t.Context())) })
	return ownCluster{kube, connectBy(t, user.Config), user}
}

// kubectl runs kubectl as the administrator in the user's namespace.
func (c ownCluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := daemons.Kubectl(context.WithoutCancel(t.Context()), c.Config(), stdin,
		append([]string{"-n", c.user.Namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restart kills a program of the cluster, and returns when the cluster works again.
func (c ownCluster) restart(t *testing.T, name string) {
	t.Helper()
	if err := errors.Join(c.Kill(name), c.Start(name)); err != nil {
		t.Fatal(err)
	}
	poll(t, "the API server is ready", func() bool {
		_, err := daemons.Kubectl(t.Context(), c.Config(), "", "get", "--raw=/readyz")
		return err == nil
	})
	c.kubectl(t, "", "wait", "--for=condition=Ready", "--timeout=300s", "node/node")
}

// TestClusterFaults breaks parts of a cluster while environments work, or before they open.
func TestClusterFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: it breaks a cluster of its own")
	}
	c := newCluster(t)
	patient := k8s.Config{Options: remote.Options{TTL: 10 * time.Minute}} // a busy machine is slow
	for _, fault := range []struct {
		name string
		test func(t *testing.T, c ownCluster)
	}{
		{"API server restarted", func(t *testing.T, c ownCluster) {
			e := open(t, c.Cluster, patient)
			end := sleeping(t, c.user.Config, "--ttl=10m")
			envtest.Survives(t, e, 2, func() { c.restart(t, "kube-apiserver") })
			end(codeAwake, "")
		}},
		{"kubelet restarted", func(t *testing.T, c ownCluster) {
			e := open(t, c.Cluster, patient)
			end := sleeping(t, c.user.Config, "--ttl=10m")
			envtest.Survives(t, e, 2, func() { c.restart(t, "kubelet") })
			end(codeAwake, "")
		}},
		{"drained", faultDrained},
		{"preempted", faultPreempted},
		{"disk full", faultDiskFull},
		{"helper out of memory", faultOutOfMemory},
		{"quota", faultQuota},
		{"bad pull secret", faultPullSecret},
		{"expired token", func(t *testing.T, c ownCluster) {
			faultRights(t, c, true, "rejects the credentials", "delete", "serviceaccount", "guest")
		}},
		{"revoked role", func(t *testing.T, c ownCluster) {
			faultRights(t, c, false, "forbidden", "delete", "rolebinding", "guest")
		}},
		{"node lost", faultNodeLost}, // the last, for the node is gone then
	} {
		t.Run(fault.name, func(t *testing.T) { fault.test(t, c) })
	}
}

func faultDrained(t *testing.T, c ownCluster) {
	e := start(t, c.Cluster, k8s.Config{})
	done, end := envtest.Sleeping(t, e, ""), sleeping(t, c.user.Config)
	t.Cleanup(func() { c.kubectl(t, "", "uncordon", "node") })
	c.kubectl(t, "", "drain", "node", "--force", "--delete-emptydir-data", "--ignore-daemonsets")
	wantGone(t, e, done, k8s.ReasonEvicted)
	end(125, "gone: evicted")
	wantFailure(t, c, k8s.Config{Options: remote.Options{StartTimeout: 15 * time.Second}},
		"unschedulable", "--start-timeout=15s")
}

func faultPreempted(t *testing.T, c ownCluster) {
	cpus, err := strconv.ParseFloat(c.kubectl(t, "", "get", "node", "node", "-o",
		"jsonpath={.status.allocatable.cpu}"), 64)
	if err != nil {
		t.Fatal(err)
	}
	cpus *= 0.7
	preempt := func() { c.kubectl(t, fmt.Sprintf(highPod, daemons.Debian, cpus), "apply", "-f", "-") }
	remove := func() { c.kubectl(t, "", "delete", "pod", "high", "--ignore-not-found") }
	t.Cleanup(remove)
	e := start(t, c.Cluster, k8s.Config{CPUs: cpus})
	done := envtest.Sleeping(t, e, "")
	preempt()
	wantGone(t, e, done, k8s.ReasonPreempted)
	remove()
	end := sleeping(t, c.user.Config, fmt.Sprintf("--cpus=%.2f", cpus))
	preempt()
	end(125, "gone: preempted")
}

// faultDiskFull has a command that writes more than the limit of the working directory, for which
// the kubelet evicts its pod.
func faultDiskFull(t *testing.T, c ownCluster) {
	const script = "head -c 100m /dev/zero >file; exec sleep 1000"
	e := start(t, c.Cluster, k8s.Config{Disk: 64 << 20})
	done := make(chan envtest.Outcome, 1)
	go func() {
		res, err := e.Exec(context.WithoutCancel(t.Context()), sh(script))
		done <- envtest.Outcome{Result: res, Err: err}
	}()
	wantGone(t, e, done, k8s.ReasonEvicted)
	cmd := programIn(t, c.user.Config, "exec", "--disk=64MiB", "--", "sh", "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := runInTime(t, cmd)
	wantCode(t, cmd, err, 125, stderr.String(), "gone: evicted")
}

// highPod is the manifest of a pod of a high priority; its verbs are the image and the CPUs.
const highPod = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: high}
spec:
  priorityClassName: high
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: x
    image: "%s"
    imagePullPolicy: Never
    command: [sleep, "1000"]
    resources: {requests: {cpu: "%.2f"}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// faultOutOfMemory fills a file system in memory, so that the kernel has nothing else to kill than
// the helper.
func faultOutOfMemory(t *testing.T, c ownCluster) {
	const template = `
spec:
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
  containers: [{name: sandbox, volumeMounts: [{name: memory, mountPath: /memory}]}]
`
	const fill = "cat /dev/zero >>/memory/file"
	e := start(t, c.Cluster, k8s.Config{Memory: 96 << 20, Template: []byte(template)})
	var err error
	for range 50 {
		if _, err = e.Exec(t.Context(), sh(fill)); errors.Is(err, env.ErrGone) {
			break
		}
	}
	var gone *k8s.GoneError
	if !errors.As(err, &gone) || gone.Reason != k8s.ReasonOutOfMemory {
		t.Errorf("%v, want the reason %s", err, k8s.ReasonOutOfMemory)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	file := writeFile(t, "pod.yaml", template)
	for range 10 { // the kernel may kill the shell first
		cmd := programIn(t, c.user.Config, "exec", "--memory=96MiB", "--pod-template="+file, "--", "sh",
			"-c", "for i in $(seq 50); do "+fill+"; done; exit 137")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := runInTime(t, cmd)
		if cmd.ProcessState.ExitCode() != 137 {
			wantCode(t, cmd, err, 125, stderr.String(), "gone: out of memory")
			return
		}
	}
	t.Error("the kernel never kills the helper of the program")
}

func faultQuota(t *testing.T, c ownCluster) {
	c.kubectl(t, `
apiVersion: v1
kind: ResourceQuota
metadata: {name: none}
spec: {hard: {pods: "0"}}
`, "apply", "-f", "-")
	defer c.kubectl(t, "", "delete", "quota", "none")
	c.kubectl(t, "", "wait", "--for=jsonpath={.status.hard.pods}=0", "quota/none")
	wantFailure(t, c, k8s.Config{}, "exceeded quota: none")
}

// faultPullSecret has a registry that rejects the password of a secret.
func faultPullSecret(t *testing.T, c ownCluster) {
	users := make(chan string, 100)
	answer := func(w http.ResponseWriter, r *http.Request) {
		if user, _, ok := r.BasicAuth(); ok {
			users <- user
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	registry := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	listener, err := net.Listen("tcp", c.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	registry.Listener = listener
	registry.Start()
	defer registry.Close()
	if err := c.Mirror("registry.test", registry.URL); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "", "create", "secret", "docker-registry", "bad", "--docker-server=registry.test",
		"--docker-username=guest", "--docker-password=wrong")
	wantFailure(t, c, k8s.Config{
		Image: "registry.test/tool:1", Template: []byte("spec: {imagePullSecrets: [{name: bad}]}"),
		Pull: k8s.PullAlways,
	}, "401", "--image=registry.test/tool:1", "--pull=always",
		"--pod-template="+writeFile(t, "pod.yaml", "spec: {imagePullSecrets: [{name: bad}]}"))
	if user := await(t, users, "the registry gets no password"); user != "guest" {
		t.Errorf("the user is %q", user)
	}
}

// faultRights ends the rights of a user who has an environment, and cuts its stream.
func faultRights(t *testing.T, c ownCluster, denied bool, reason string, end ...string) {
	c.kubectl(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: guest}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sandboxagent}
subjects: [{kind: ServiceAccount, name: guest}]
`, "apply", "-f", "-")
	token := strings.TrimSpace(c.kubectl(t, "", "create", "token", "guest"))
	data, err := os.ReadFile(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, c.Server())
	data = regexp.MustCompile(`(?s)\nusers:.*$`).ReplaceAll(data,
		[]byte("\nusers: [{name: test, user: {token: "+token+"}}]\n"))
	data = regexp.MustCompile(`server: "[^"]*"`).ReplaceAll(data,
		[]byte(`server: "https://`+p.listener.Addr().String()+`"`))
	guestConfig := writeFile(t, "guest", string(data))
	guest := connectTo(t, k8s.Address{Kubeconfig: guestConfig, Namespace: c.user.Namespace})
	// The cluster remembers rights for some ten seconds, in which the lease must not end.
	e := start(t, guest, k8s.Config{Options: remote.Options{TTL: time.Minute}})
	done := envtest.Sleeping(t, e, "")
	here := "--namespace=" + c.user.Namespace
	asleep := sleeping(t, guestConfig, here, "--ttl=1m")
	c.kubectl(t, "", end...)
	poll(t, "the rights have ended", func() bool {
		p.cut() // connections may keep them
		_, err := guest.List(t.Context())
		if err == nil {
			return false
		}
		var failed *k8s.ClusterError
		return errors.As(err, &failed) == denied && (denied || strings.Contains(err.Error(), "forbidden"))
	})
	p.cut()
	o := await(t, done, "the command goes on")
	if !errors.Is(o.Err, env.ErrUnknownOutcome) && !errors.Is(o.Err, env.ErrGone) ||
		!strings.Contains(o.Err.Error(), reason) {
		t.Errorf("the command: %+v, want %q", o, reason)
	}
	asleep(125, reason)
	poll(t, "the pods complete", func() bool {
		return c.kubectl(t, "", "get", "pods", "-o", "jsonpath={.items[*].status.phase}") ==
			"Succeeded Succeeded"
	})
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), e.Pod()) {
		t.Errorf("close: %v, want the name of the pod that stays", err)
	}
	_, err = guest.Open(t.Context(), config(t, k8s.Config{}))
	var rejected *k8s.ClusterError
	var failed *k8s.OpenError
	if denied && (!errors.As(err, &rejected) || !rejected.Denied) ||
		!denied && !errors.As(err, &failed) || !strings.Contains(err.Error(), reason) {
		t.Errorf("another environment: %v, want %q", err, reason)
	}
	wantExit(t, guestConfig, 125, reason, here)
	if got, err := c.Collect(t.Context(), remote.CollectOptions{}); err != nil || len(got) != 2 ||
		got[0].Name != e.Pod() && got[1].Name != e.Pod() {
		t.Errorf("the garbage is %+v, %v, not %s and the pod of the program", got, err, e.Pod())
	}
	c.none(t)
}

// faultNodeLost has a node that the cluster finds silent after a minute, and that the administrator
// then declares lost.
func faultNodeLost(t *testing.T, c ownCluster) {
	first := start(t, c.Cluster, k8s.Config{Options: remote.Options{TTL: 2 * time.Minute}})
	second := start(t, c.Cluster, k8s.Config{Options: remote.Options{TTL: 10 * time.Minute}})
	silent, lost := envtest.Sleeping(t, first, ""), envtest.Sleeping(t, second, "")
	end := sleeping(t, c.user.Config, "--ttl=10m")
	if err := c.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
	o := await(t, silent, "the first command goes on")
	if !errors.Is(o.Err, env.ErrGone) || !strings.Contains(o.Err.Error(), "the node node ") {
		t.Errorf("%v, want the name of the node", o.Err)
	}
	const taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	c.kubectl(t, "", "taint", "node", "node", taint)
	wantGone(t, second, lost, k8s.ReasonNode)
	end(125, "gone: "+string(k8s.ReasonNode))
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Start("kubelet"); err != nil {
		t.Error(err)
	}
	c.kubectl(t, "", "taint", "node", "node", taint+"-")
	c.none(t)
}

// none checks that no pod is left.
func (c ownCluster) none(t *testing.T) {
	t.Helper()
	poll(t, "nothing is left behind", func() bool {
		return c.kubectl(t, "", "get", "pods", "-o", "name") == ""
	})
}

// wantFailure checks that no environment opens, also by the program with flags, that the error has
// a text, and that no pod is left.
func wantFailure(t *testing.T, cluster ownCluster, c k8s.Config, text string, flags ...string) {
	t.Helper()
	e, err := cluster.Open(t.Context(), config(t, c))
	if err == nil {
		t.Fatal(errors.Join(errors.New("it opens"), e.Close()))
	}
	var failed *k8s.OpenError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
	wantExit(t, cluster.user.Config, 125, text, flags...)
	cluster.none(t)
}

// TestMany has 100 environments beside each other in one process, over one connection; with the
// race detector 20. It runs alone.
func TestMany(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: it fills a cluster of its own")
	}
	environments, starting := 100, 8 // more at once only wait for each other
	if race.Enabled() {
		environments = 20
	}
	c := newCluster(t)
	slots := make(chan struct{}, starting)
	pods := make([]string, environments)
	var all sync.WaitGroup
	var opened sync.WaitGroup
	opened.Add(environments)
	for i := range environments {
		all.Go(func() {
			slots <- struct{}{}
			open := func() (*k8s.Environment, error) {
				return c.Open(t.Context(), config(t, k8s.Config{
					CPUs: 0.018, Memory: 64 << 20, Disk: 64 << 20,
					Options: remote.Options{StartTimeout: 30 * time.Minute, TTL: 30 * time.Minute},
				}))
			}
			e, err := open()
			if err != nil && strings.Contains(err.Error(), "StartError") { // of a busy runtime
				t.Log(err)
				e, err = open()
			}
			<-slots
			opened.Done()
			if err != nil {
				t.Error(err)
				return
			}
			opened.Wait()
			pods[i] = e.Pod()
			out, res, err := env.Output(t.Context(), e, sh("hostname; pwd"), env.OutputOptions{})
			if err != nil || res.ExitCode != 0 || string(out.Stdout.Bytes()) != "sandbox\n/workspace\n" {
				t.Errorf("%+v, %v: %s", res, err, out.Stdout.Bytes())
			}
			slots <- struct{}{}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			<-slots
		})
	}
	all.Wait()
	if !t.Failed() {
		if _, all := checkRequests(t, c.Audit(), pods); all > 12*environments {
			t.Errorf("%d requests for %d pods, want 12 for each at most", all, environments)
		}
	}
	c.none(t)
}
