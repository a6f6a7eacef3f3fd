package k8s_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// fakeCluster has pods without containers: a helper on this machine serves each stream.
type fakeCluster struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	changed *sync.Cond
	log     []string // changes of pods, as JSON
	started []string // events of containers, as JSON
	// late makes the states of containers lack that they run, which events tell.
	late atomic.Bool
	// config is a kubeconfig file of it.
	config string
	// failing is how many requests fail that change something.
	failing atomic.Int32
	// full is for how many pods a quota has no room.
	full atomic.Int32
	// denying is the code with which the server refuses to delete a pod; zero deletes it.
	denying atomic.Int32
	// hanging makes the server leave the deletion of a pod without an answer.
	hanging atomic.Bool
	// shared, if set, gives each helper files of its own, with the working directory of the program
	// and this directory as /shared.
	shared string
	// created, unless it is nil, is called when a pod is created.
	created func()
	// cut is closed when the server no longer reaches the kubelet; nil while it does.
	cut atomic.Pointer[chan struct{}]
	// requests counts all, and watches those that watch.
	requests, watches atomic.Int32
}

func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{pods: make(map[string]*corev1.Pod)}
	f.changed = sync.NewCond(&f.mu)
	mux := http.NewServeMux()
	const pods = "/api/v1/namespaces/default/pods"
	mux.HandleFunc("POST "+pods, f.create)
	mux.HandleFunc("GET "+pods, f.list("PodList", &f.log))
	mux.HandleFunc("GET /api/v1/namespaces/default/events", f.list("EventList", &f.started))
	mux.HandleFunc("GET "+pods+"/{name}", f.get)
	mux.HandleFunc("DELETE "+pods+"/{name}", f.remove)
	mux.HandleFunc("GET "+pods+"/{name}/exec", f.exec)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if r.URL.Query().Get("watch") != "" {
			f.watches.Add(1)
		}
		fail := func(code int, reason, message string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"code": %d, "reason": %q, "message": %q}`, code, reason, message)
		}
		switch {
		case r.Method == http.MethodPost && r.URL.Path == pods && f.full.Add(-1) >= 0:
			fail(http.StatusForbidden, "Forbidden", "pods is forbidden: exceeded quota: pods")
			return
		case r.Method == http.MethodDelete && f.hanging.Load():
			_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection ends the context
			<-r.Context().Done()
			return
		case r.Method == http.MethodDelete && f.denying.Load() > 0:
			reason := http.StatusText(int(f.denying.Load()))
			fail(int(f.denying.Load()), reason, "pods: "+reason)
			return
		}
		if r.Method != http.MethodGet && f.failing.Add(-1) >= 0 {
			if r.Method == http.MethodPost {
				mux.ServeHTTP(httptest.NewRecorder(), r) // the failure comes after the work
			}
			fail(http.StatusInternalServerError, "InternalError", "etcdserver: leader changed")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	f.config = writeFile(t, "fake", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "%s"}}]
users: [{name: x, user: {token: x}}]
`, s.URL))
	return f
}

// TestServerFails has a server that fails for a moment. No pod is left.
func TestServerFails(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	cluster := connectBy(t, f.config)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	f.failing.Store(1)
	_, err := cluster.Open(t.Context(), c)
	var failed *k8s.ClusterError
	if !errors.As(err, &failed) || failed.Denied || !strings.Contains(err.Error(),
		"fails: etcdserver: leader changed") {
		t.Errorf("a failure of the creation: %v", err)
	}
	f.mu.Lock()
	if len(f.pods) > 0 || len(f.log) < 2 {
		t.Errorf("%d pods are left after %d events", len(f.pods), len(f.log))
	}
	f.mu.Unlock()
	e := start(t, cluster, c)
	f.failing.Store(2)
	if err := e.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pods) > 0 {
		t.Errorf("%d pods are left", len(f.pods))
	}
}

// TestServerHangs has a server that does not answer the deletion of a pod, which may be left.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: it waits until the deletion is given up")
	}
	f := newFakeCluster(t)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	e := start(t, connectBy(t, f.config), c)
	f.hanging.Store(true)
	err := e.Close()
	var failed *k8s.ClusterError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "delete the pod "+e.Pod()) {
		t.Error(err)
	}
}

// TestTakenSession opens the session of an environment that was left for others, which stays.
func TestTakenSession(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	cluster := connectBy(t, f.config)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	c.Session = "taken"
	if err := start(t, cluster, c).Leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Open(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "already exists") {
		t.Errorf("%v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pods) != 1 {
		t.Error("the pod is deleted")
	}
}

// TestUnreachableKubelet has a server that accepts streams and no longer reaches the kubelet. When
// the lease has ended, the error tells that.
func TestUnreachableKubelet(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	cut := make(chan struct{})
	f.cut.Store(&cut)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	c.TTL = 3 * time.Second
	e := start(t, connectBy(t, f.config), c)
	close(cut)
	_, err := e.Exec(t.Context(), env.Command{Argv: []string{"sleep", "1000"}})
	if !errors.Is(err, env.ErrGone) ||
		!strings.Contains(err.Error(), "error dialing backend: no route to host") {
		t.Error(err)
	}
	if err := e.Close(); err != nil && !errors.Is(err, env.ErrGone) {
		t.Error(err)
	}
}

// TestStarted has a kubelet whose states are late: an event tells that the container runs.
func TestStarted(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	f.late.Store(true)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	if err := start(t, connectBy(t, f.config), c).Close(); err != nil {
		t.Error(err)
	}
}

// TestWaitForQuota has a quota without room for a moment.
func TestWaitForQuota(t *testing.T) {
	f := newFakeCluster(t)
	cluster := connectBy(t, f.config)
	c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
	f.full.Store(1)
	var failed *k8s.OpenError
	if _, err := cluster.Open(t.Context(), c); !errors.As(err, &failed) ||
		!strings.Contains(err.Error(), "exceeded quota") || !errors.Is(err, k8s.ErrQuota) {
		t.Errorf("%v", err)
	}
	f.full.Store(1)
	c.WaitForQuota = time.Hour
	if err := start(t, cluster, c).Close(); err != nil {
		t.Error(err)
	}
}

// TestCanceledOpen ends the context of Open when the pod is created, which cannot be deleted, for
// the credentials or for the Role. The error reports that it may be left.
func TestCanceledOpen(t *testing.T) {
	for _, code := range []int32{http.StatusUnauthorized, http.StatusForbidden} {
		f := newFakeCluster(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.created = cancel
		f.denying.Store(code)
		c := config(t, k8s.Config{HelperImage: "x", WorkDir: t.TempDir(), Network: k8s.NetworkFull})
		_, err := connectBy(t, f.config).Open(ctx, c)
		var failed *k8s.ClusterError
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "delete the pod ") ||
			errors.As(err, &failed) != (code == http.StatusUnauthorized) {
			t.Errorf("%v", err)
		}
	}
}

// TestUnthrottled checks that a client sends as many requests as the server takes.
func TestUnthrottled(t *testing.T) {
	if !k8s.Unthrottled(connectBy(t, newFakeCluster(t).config)) {
		t.Error("the client bounds its requests")
	}
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // the client has gone
}

// create stores a pod, which runs at once.
func (f *fakeCluster) create(w http.ResponseWriter, r *http.Request) {
	scheme, pod := runtime.NewScheme(), &corev1.Pod{}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = corev1.AddToScheme(scheme)
	}
	if err == nil {
		_, _, err = serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, pod)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	taken := f.pods[pod.Name] != nil
	f.mu.Unlock()
	if taken {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"code": 409, "reason": "AlreadyExists", "message": "pods already exists"}`)
		return
	}
	pod.Kind, pod.APIVersion, pod.UID = "Pod", "v1", "1"
	pod.Spec.NodeName = "node"
	state := func(name string, s corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, State: s}}
	}
	pod.Status.InitContainerStatuses = state("sandboxagent-install", corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{},
	})
	if !f.late.Load() {
		pod.Status.ContainerStatuses = state("sandbox", corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{},
		})
	}
	f.change("ADDED", pod)
	if f.created != nil {
		f.created()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.late.Load() {
		f.started = append(f.started, fmt.Sprintf(`{"type": "ADDED", "object": {"kind": "Event",
			"apiVersion": "v1", "metadata": {"name": "x"}, "reason": "Started", "involvedObject":
			{"kind": "Pod", "name": %q, "uid": "1", "fieldPath": "spec.containers{sandbox}"}}}`, pod.Name))
		f.changed.Broadcast()
	}
	answer(w, pod)
}

// change records an event of a pod.
func (f *fakeCluster) change(kind string, pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod.ResourceVersion = strconv.Itoa(len(f.log) + 1)
	event, err := json.Marshal(map[string]any{"type": kind, "object": pod})
	if err != nil {
		panic(err)
	}
	f.log = append(f.log, string(event))
	if kind == "DELETED" {
		delete(f.pods, pod.Name)
	} else {
		f.pods[pod.Name] = pod
	}
	f.changed.Broadcast()
}

// list returns a handler that answers an empty list, and sends a log from the beginning to those
// who watch.
func (f *fakeCluster) list(kind string, all *[]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(w, map[string]any{
				"kind": kind, "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "0"},
			})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		context.AfterFunc(r.Context(), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.changed.Broadcast()
		})
		for sent := 0; r.Context().Err() == nil; {
			f.mu.Lock()
			for len(*all) == sent && r.Context().Err() == nil {
				f.changed.Wait()
			}
			news := (*all)[sent:]
			sent = len(*all)
			f.mu.Unlock()
			for _, e := range news {
				_, _ = fmt.Fprintln(w, e)
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func (f *fakeCluster) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := f.pods[r.PathValue("name")]
	if pod == nil {
		http.NotFound(w, r)
		return
	}
	answer(w, pod)
}

func (f *fakeCluster) remove(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	pod := f.pods[r.PathValue("name")]
	f.mu.Unlock()
	if pod != nil {
		f.change("DELETED", pod)
	}
	answer(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// exec connects a stream to a helper of its own.
func (f *fakeCluster) exec(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the stream has ended
	if cut := f.cut.Load(); cut != nil {
		select {
		case <-*cut:
			_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3},
				`{"status": "Failure", "message": "error dialing backend: no route to host"}`...))
			_ = conn.WriteMessage(websocket.CloseMessage,
				websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
			for err == nil { // until the client has read it
				_, _, err = conn.ReadMessage()
			}
			return
		default:
			go func() {
				<-*cut
				_ = conn.Close()
			}()
		}
	}
	cmd := exec.CommandContext(r.Context(), helperProgram, "serve")
	if f.shared != "" {
		args := []string{
			"--die-with-parent", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--tmpfs", "/workspace", "--ro-bind", helperProgram, "/sandboxd",
			"--bind", f.shared, "/shared",
		}
		for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64", "/etc"} {
			args = append(args, "--ro-bind-try", dir, dir)
		}
		cmd = exec.CommandContext(r.Context(), "bwrap", append(args, "/sandboxd", "serve")...)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	stdin, _ := cmd.StdinPipe() // fails only for a started command
	stdout, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if cmd.Start() != nil {
		return
	}
	go func() {
		defer stdin.Close() //nolint:errcheck // the helper sees the end
		for {
			_, data, err := conn.ReadMessage()
			if err != nil || len(data) > 0 && data[0] == 255 {
				return
			}
			if _, err := stdin.Write(data[1:]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := stdout.Read(buf[1:])
		if n > 0 {
			buf[0] = 1
			_ = conn.WriteMessage(websocket.BinaryMessage, buf[:n+1])
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status": "Success"}`...))
}

// fakeEnvironments is the number of environments of TestMemory.
const fakeEnvironments = 200

// maxWorking and maxEnding bound the memory of the program with them, in MiB.
const maxWorking, maxEnding = 250, 450

// TestMemory measures what 200 environments beside each other take in the memory of the program,
// and counts their requests. All share a watch of the pods and one of the events.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: 200 helpers")
	}
	if out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "true").CombinedOutput(); err != nil {
		daemons.Missing(t, "sandbox", fmt.Sprintf("bwrap: %v: %s", err, out))
	}
	fake := newFakeCluster(t)
	fake.shared = t.TempDir()
	var program atomic.Pointer[os.Process]
	var working, ending atomic.Int64 // the most memory until then, in MiB
	model := llmtest.NewServer(t, func(req *llmtest.Request) llmtest.Reply {
		if strings.Contains(string(req.Body), "function_call_output") {
			ending.Store(peakOf(t, program.Load()))
			return llmtest.Text("done")
		}
		return llmtest.Use(llmtest.Call{Name: "shell", Arguments: `{"timeout_ms": 600000, "command":
			"mktemp /shared/XXXXXXXX; until [ -e /shared/go ]; do sleep 0.1; done; echo x >f; seq 10000"}`})
	})
	var tasks strings.Builder
	for i := range fakeEnvironments {
		fmt.Fprintf(&tasks, `{"id": "t%d", "prompt": "work"}`+"\n", i)
	}
	cmd := programIn(t, fake.config, "batch", "-q", "--parallel="+strconv.Itoa(fakeEnvironments),
		"--helper-image=x", "--image=x", "--network=full", "--ttl=10m", "--model=openai/gpt-5.2",
		"--base-url="+model.URL(), "--out="+filepath.Join(t.TempDir(), "out"),
		writeFile(t, "tasks.jsonl", tasks.String()))
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+model.Key())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Store(cmd.Process)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	goOn := sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(fake.shared, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	defer goOn()
	poll(t, "all commands have begun", func() bool {
		begun, err := os.ReadDir(fake.shared)
		return err != nil || len(begun) == fakeEnvironments || len(done) > 0
	})
	working.Store(peakOf(t, cmd.Process))
	goOn()
	if err := await(t, done, "the program goes on"); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	t.Logf("%d MiB with %d environments, %d MiB when their commands end at once", working.Load(),
		fakeEnvironments, ending.Load())
	if working.Load() > maxWorking || ending.Load() > maxEnding {
		t.Errorf("more than %d and %d MiB", maxWorking, maxEnding)
	}
	requests, watches := fake.requests.Load(), fake.watches.Load()
	t.Logf("%d requests, of which %d watch", requests, watches)
	// A slow machine opens watches again.
	if requests > 12*fakeEnvironments || watches > 10 {
		t.Errorf("%d requests, of which %d watch", requests, watches)
	}
}

// peakOf returns the most memory of a process until now, in MiB.
func peakOf(t *testing.T, p *os.Process) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	if fields := strings.Fields(rest); err == nil && len(fields) > 0 {
		size, err := strconv.ParseInt(fields[0], 10, 64)
		if err == nil {
			return size >> 10
		}
	}
	t.Errorf("the memory of the program: %q, %v", rest, err)
	return 0
}
