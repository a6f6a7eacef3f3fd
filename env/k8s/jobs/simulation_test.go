package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// apiServer is an API server in memory, as far as submissions need it. It answers after a latency,
// accepts a number of requests at the same time, and rejects the others, as a server under load.
type apiServer struct {
	*httptest.Server
	latency time.Duration
	seats   chan struct{}
	// requests counts those that were accepted, rejected the others. full is the number of results
	// for which a quota has no room.
	requests, rejected, full atomic.Int64
	codecs                   serializer.CodecFactory

	mu sync.Mutex
	// refusing has the server refuse Jobs, also those whose names are taken, for a quota. failing has
	// it answer with an error although it has created them, and repeating, once, ask for the request
	// again.
	refusing, failing, repeating bool

	objects map[string]kruntime.Object // by resource/name
	patches []string                   // of Jobs, which do not change the objects
	order   []string                   // of ConfigMaps
	bytes   int                        // of ConfigMaps
}

func newAPIServer(t *testing.T, latency time.Duration, seats int) *apiServer {
	t.Helper()
	types, _ := known()
	s := &apiServer{
		latency: latency, seats: make(chan struct{}, seats), objects: make(map[string]kruntime.Object),
		codecs: serializer.NewCodecFactory(types),
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// client returns a client of the server.
func (s *apiServer) client(t *testing.T) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: test}}]
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {}}]
`, s.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := k8s.Connect(t.Context(), k8s.Address{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := New(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.seats <- struct{}{}:
		defer func() { <-s.seats }()
	default:
		s.rejected.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	s.requests.Add(1)
	time.Sleep(s.latency)
	if r.URL.Path == "/api" {
		s.answer(w, http.StatusOK, &metav1.APIVersions{
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ServerAddress: "10.0.0.1:6443"}},
		})
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	i := slices.Index(parts, "namespaces") + 2
	resource, name := parts[i], strings.Join(parts[i+1:], "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && resource == "jobs" && s.refusing:
		s.forbid(w, "exceeded quota: jobs")
	case r.Method == http.MethodPost && resource == "jobs" && s.repeating:
		s.repeating = false
		s.create(httptest.NewRecorder(), r, resource)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the database is busy", http.StatusServiceUnavailable)
	case r.Method == http.MethodPost && resource == "jobs" && s.failing:
		s.create(httptest.NewRecorder(), r, resource)
		s.answer(w, http.StatusInternalServerError, &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Code: http.StatusInternalServerError, Message: "etcdserver: leader changed",
		})
	case r.Method == http.MethodPost:
		s.create(w, r, resource)
	case r.Method == http.MethodDelete:
		delete(s.objects, resource+"/"+name)
		s.answer(w, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess})
	case r.Method == http.MethodGet && name == "" && resource == "configmaps":
		s.list(w, r)
	case s.objects[resource+"/"+name] == nil:
		s.answer(w, http.StatusNotFound, &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	default:
		if r.Method == http.MethodPatch {
			data, _ := io.ReadAll(r.Body) // a cut one is another one
			s.patches = append(s.patches, string(data))
		}
		s.answer(w, http.StatusOK, s.objects[resource+"/"+name])
	}
}

func (s *apiServer) answer(w http.ResponseWriter, code int, object kruntime.Object) {
	w.Header().Set("Content-Type", kruntime.ContentTypeJSON)
	w.WriteHeader(code)
	groups := []schema.GroupVersion{
		corev1.SchemeGroupVersion, batchv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
		{Version: "v1"},
	}
	info, _ := kruntime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(),
		kruntime.ContentTypeJSON)
	_ = s.codecs.EncoderForVersion(info.Serializer, schema.GroupVersions(groups)).Encode(object, w)
}

func (s *apiServer) forbid(w http.ResponseWriter, why string) {
	s.answer(w, http.StatusForbidden, &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		Message: why,
	})
}

func (s *apiServer) create(w http.ResponseWriter, r *http.Request, resource string) {
	data, err := io.ReadAll(r.Body)
	var object kruntime.Object
	if err == nil {
		object, _, err = s.codecs.UniversalDeserializer().Decode(data, nil, nil)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := object.(metav1.Object) //nolint:forcetypeassert // all are
	if m.GetName() == "" {
		m.SetName(m.GetGenerateName() + strconv.Itoa(len(s.objects)))
	}
	if m.GetLabels()[labelKind] == kindResult && s.full.Add(-1) >= 0 {
		s.forbid(w, "exceeded quota: configmaps")
		return
	}
	key := resource + "/" + m.GetName()
	if s.objects[key] != nil {
		s.answer(w, http.StatusConflict, &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonAlreadyExists,
			Code: http.StatusConflict,
		})
		return
	}
	m.SetUID(types.UID(key))
	if r.URL.Query().Get("dryRun") == "" {
		s.objects[key] = object
		if resource == "configmaps" {
			s.order = append(s.order, key)
			s.bytes += len(data)
		}
	}
	s.answer(w, http.StatusCreated, object)
}

// list answers with a page of ConfigMaps.
func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	from, _ := strconv.Atoi(q.Get("continue"))
	kind := q.Get("labelSelector")[strings.LastIndex(q.Get("labelSelector"), "=")+1:]
	page := &corev1.ConfigMapList{}
	i := from
	for ; i < len(s.order) && len(page.Items) < limit; i++ {
		if m := s.objects[s.order[i]].(*corev1.ConfigMap); m.Labels[labelKind] == kind {
			page.Items = append(page.Items, *m)
		}
	}
	if i < len(s.order) {
		page.Continue = strconv.Itoa(i)
	}
	if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		s.answer(w, http.StatusOK, page)
		return
	}
	metadata := metav1.PartialObjectMetadataList{ListMeta: page.ListMeta}
	for _, m := range page.Items {
		metadata.Items = append(metadata.Items, metav1.PartialObjectMetadata{ObjectMeta: m.ObjectMeta})
	}
	w.Header().Set("Content-Type", kruntime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(metadata)
}

// TestSimulation submits 10,000 inputs to a server with latency that rejects requests beyond its
// seats and has a quota that is full at first, has 200 workers at a time do them, and collects the
// results: one of each, with few requests and in bounded memory.
func TestSimulation(t *testing.T) {
	n := 10_000
	if testing.Short() || race.Enabled() {
		n = 1_000
	}
	const workers, inputSize, resultSize = 200, 2 << 10, 8 << 10
	s := newAPIServer(t, 5*time.Millisecond, workers/2)
	c := s.client(t)
	cfg := testConfig()
	cfg.Inputs, cfg.Files = nil, map[string][]byte{"dir": []byte(noise(0, inputSize))}
	for i := range n {
		cfg.Inputs = append(cfg.Inputs, fmt.Appendf(nil, "%d:%s", i, noise(i, inputSize)))
	}
	if err := c.Submit(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	began, submitted := time.Now(), s.requests.Load()
	s.full.Store(workers / 4)
	if submitted > 330 {
		t.Errorf("%d requests submit %d inputs", submitted, n)
	}
	packed, err := packInputs(cfg.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	inputs := cfg.Inputs
	cfg.Inputs = nil
	work := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range work {
				w := &Worker{
					Index: i, client: c, job: cfg.Name, uid: fakeUID(cfg), bounds: packed.bounds,
				}
				if err := do(t.Context(), w, string(inputs[i]), noise(i, resultSize)); err != nil {
					t.Errorf("input %d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	for i := range n / 100 { // agents whose pods are repeated after they have stored their results
		work <- i * 100
	}
	close(work)
	all.Wait()
	each := float64(s.requests.Load()-submitted) / float64(n)
	t.Logf("%d inputs in %d parts: %d requests submit them, %.2f are for each, %d were rejected and "+
		"repeated, %d MiB are stored, in %s", n, len(packed.parts), submitted, each, s.rejected.Load(),
		s.bytes>>20, time.Since(began).Round(time.Millisecond))
	if each > 4.1 {
		t.Errorf("%.2f requests for each input", each)
	}
	var before, peak runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen := make([]bool, n)
	status, err := c.Status(t.Context(), cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	asked := s.requests.Load()
	for r, err := range c.Results(t.Context(), status) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.Index] || string(r.Data) != noise(r.Index, resultSize) {
			t.Errorf("the result of %d is there twice, or another one", r.Index)
		}
		seen[r.Index] = true
		if r.Index%1000 == 0 {
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.HeapAlloc = max(peak.HeapAlloc, now.HeapAlloc)
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Errorf("%d has no result", i)
	}
	grown := int64(peak.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // small
	if grown > 32<<20 {
		t.Errorf("collecting takes %d MiB of memory", grown>>20)
	}
	if asked = s.requests.Load() - asked; asked > int64(n/20+1) {
		t.Errorf("%d requests collect %d results", asked, n)
	}
	asked = s.requests.Load()
	summaries, err := c.Summaries(t.Context(), status)
	if err != nil || len(summaries) != n {
		t.Errorf("%d summaries, %v", len(summaries), err)
	}
	if asked = s.requests.Load() - asked; asked > int64(n/500+1) {
		t.Errorf("%d requests read %d summaries", asked, n)
	}
}

// do does the work of an agent.
func do(ctx context.Context, w *Worker, want, result string) error {
	summary, err := w.Summary(ctx)
	if err != nil || summary != nil {
		return err
	}
	in, err := w.Input(ctx)
	if err != nil {
		return err
	}
	if string(in) != want {
		return fmt.Errorf("the input is %.20q, not %.20q", in, want)
	}
	if _, err := w.File(ctx, "dir"); err != nil {
		return err
	}
	_, err = w.Store(ctx, []byte(`{"ok":true}`), []byte(result))
	return err
}

// TestSubmitFails has a server that refuses a Job, or fails after it has made it. The Job of
// another program with that name stays, and no other is left.
func TestSubmitFails(t *testing.T) {
	s := newAPIServer(t, 0, 100)
	c := s.client(t)
	cfg := testConfig()
	if err := c.Submit(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	first := s.objects["jobs/"+cfg.Name]
	s.refusing = true
	if err := c.Submit(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "quota") {
		t.Errorf("the second submission: %v", err)
	}
	many := testConfig()
	many.Inputs = make([][]byte, MaxInputs+1)
	if err := c.Submit(t.Context(), many); err == nil || !strings.Contains(err.Error(), "split them") {
		t.Errorf("%d inputs: %v", len(many.Inputs), err)
	}
	s.refusing, s.failing = false, true
	if err := c.Submit(t.Context(), cfg); err == nil {
		t.Error("the third submission works")
	}
	other := cfg
	other.Name = "other"
	if err := c.Submit(t.Context(), other); err == nil || !strings.Contains(err.Error(), "leader") {
		t.Errorf("the failing submission: %v", err)
	}
	s.failing, s.repeating = false, true
	other.Name = "repeated"
	if err := c.Submit(t.Context(), other); err != nil || s.objects["jobs/repeated"] == nil {
		t.Errorf("the repeated submission: %v", err)
	}
	if s.objects["jobs/"+cfg.Name] != first || first == nil || s.objects["jobs/other"] != nil {
		t.Errorf("the server has %d objects", len(s.objects))
	}
}

// TestStart has what starts a Job: itself, or a queue of Kueue, which Cancel makes it leave.
func TestStart(t *testing.T) {
	s := newAPIServer(t, 0, 100)
	c := s.client(t)
	own, queued := testConfig(), testConfig()
	queued.Name, queued.Queue = "queued", "agents"
	for _, cfg := range []Config{own, queued} {
		if err := c.Submit(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		job, ok := s.objects["jobs/"+cfg.Name].(*batchv1.Job)
		if !ok || !*job.Spec.Suspend {
			t.Errorf("%s is not created suspended", cfg.Name)
		}
	}
	if err := c.Cancel(t.Context(), "queued"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"spec":{"suspend":false}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"agents"}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}},` +
			`"spec":{"parallelism":0,"suspend":true}}`,
		`{"spec":{"activeDeadlineSeconds":1,"suspend":false}}`,
	}
	if diff := gocmp.Diff(want, s.patches); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

// TestStoreOnce has two pods of one input: the first result counts, whole, also if it has pieces.
func TestStoreOnce(t *testing.T) {
	s := newAPIServer(t, 0, 100)
	c := s.client(t)
	cfg := testConfig()
	if err := c.Submit(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("the second submission: %v", err)
	}
	first := noise(1, 3*pieceSize+1)
	for i, data := range []string{first, "second"} {
		w := &Worker{client: c, job: cfg.Name, uid: fakeUID(cfg), bounds: []int{0}}
		got, err := w.Store(t.Context(), fmt.Appendf(nil, "%d", i), []byte(data))
		if err != nil || string(got) != "0" {
			t.Errorf("store %d: %s, %v", i, got, err)
		}
	}
	n := 0
	status, err := c.Status(t.Context(), cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range c.Results(t.Context(), status) {
		if err != nil || string(r.Data) != first || string(r.Summary) != "0" {
			t.Errorf("%d bytes, %s, %v", len(r.Data), r.Summary, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d results", n)
	}
}

// fakeUID is the UID that the server gives the Job of a configuration.
func fakeUID(cfg Config) types.UID { return types.UID("jobs/" + cfg.Name) }

// TestFormerResults has a Job whose name an earlier one had, whose results the cluster has not
// removed yet.
func TestFormerResults(t *testing.T) {
	s := newAPIServer(t, 0, 100)
	c := s.client(t)
	cfg := testConfig()
	if err := c.Submit(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	former := &Worker{client: c, job: cfg.Name, uid: "former", bounds: []int{0}}
	if _, err := former.Store(t.Context(), []byte("former"), []byte("former")); err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(t.Context(), cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range c.Results(t.Context(), status) {
		t.Errorf("the result %s, %v", r.Summary, err)
	}
	if all, err := c.Summaries(t.Context(), status); err != nil || len(all) != 0 {
		t.Errorf("%d summaries, %v", len(all), err)
	}
	if _, err := c.Result(t.Context(), status, 0); !errors.Is(err, ErrMissing) {
		t.Errorf("the result: %v", err)
	}
	w := &Worker{client: c, job: cfg.Name, uid: fakeUID(cfg), bounds: []int{0}}
	if summary, err := w.Summary(t.Context()); err != nil || summary != nil {
		t.Errorf("the summary is %s, %v", summary, err)
	}
	before, stored := s.requests.Load(), make(chan error, 1)
	go func() {
		got, err := w.Store(t.Context(), []byte("own"), []byte("own"))
		if err == nil && string(got) != "own" {
			err = fmt.Errorf("the summary %s counts", got)
		}
		stored <- err
	}()
	for s.requests.Load() < before+2 { // the worker has seen that the name is taken
		runtime.Gosched()
	}
	s.mu.Lock()
	delete(s.objects, "configmaps/"+resultName(cfg.Name, 0))
	s.mu.Unlock()
	if err := <-stored; err != nil {
		t.Error(err)
	}
	if data, err := c.Result(t.Context(), status, 0); err != nil || string(data) != "own" {
		t.Errorf("the result is %s, %v", data, err)
	}
	s.mu.Lock()
	delete(s.objects, "jobs/"+cfg.Name)
	s.mu.Unlock()
	if err := c.Submit(t.Context(), cfg); !errors.Is(err, ErrExists) {
		t.Errorf("a submission beside the rest of another one: %v", err)
	}
}

// noise returns a text of a size that does not compress.
func noise(seed, size int) string {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	data := make([]byte, size)
	_, _ = r.Read(data) // it never fails
	return string(data)
}
