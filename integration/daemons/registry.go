package daemons

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/sandboxagent/sandboxagent/images"
)

// The media types of the parts of an image in a registry.
const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	configType   = "application/vnd.docker.container.image.v1+json"
	layerType    = "application/vnd.docker.image.rootfs.diff.tar"
)

// Registry is a registry of images on a free port of 127.0.0.1, from which daemons on this machine
// fetch without TLS. Its methods may be called concurrently.
type Registry struct {
	server *httptest.Server
	images http.Handler

	mu       sync.Mutex
	fault    http.HandlerFunc
	requests []string
}

// NewRegistry starts a registry without images for one test and stops it afterwards.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{images: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // daemons try TLS first
	r.server.Start()
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the registry, which then refuses connections. Further calls do nothing.
func (r *Registry) Stop() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// Host is the address of the registry, with which the names of its images begin.
func (r *Registry) Host() string { return r.server.Listener.Addr().String() }

// Fault sets a concurrent handler of all requests, which may call Serve; nil removes it.
func (r *Registry) Fault(handler http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = handler
}

// Serve answers a request as a registry without faults does.
func (r *Registry) Serve(w http.ResponseWriter, req *http.Request) { r.images.ServeHTTP(w, req) }

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.Path)
	handler := r.fault
	r.mu.Unlock()
	if handler == nil {
		handler = r.Serve
	}
	handler(w, req)
}

// Requests returns the requests so far, as "METHOD PATH", whose path has a part.
func (r *Registry) Requests(part string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, a := range r.requests {
		if strings.Contains(a, part) {
			found = append(found, a)
		}
	}
	return found
}

// Add makes a unique image under a name, such as "tool:1", and returns its ID. It has no program,
// the directories of a sandbox user, and a megabyte that does not compress. An empty arch is that
// of the machine.
func (r *Registry) Add(t testing.TB, name, arch string) string {
	t.Helper()
	if arch == "" {
		arch = runtime.GOARCH
	}
	repo, tag, _ := strings.Cut(name, ":")
	layer := randomLayer(t)
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux",
		"config": map[string]any{"Labels": map[string]string{images.PreparedLabel: "10001:10001"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	part := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": kind, "size": len(data), "digest": digest(data)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": part(configType,
			config), "layers": []any{part(layerType, layer)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range [][]byte{layer, config} {
		r.put(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+digest(blob),
			"application/octet-stream", blob)
	}
	r.put(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, manifestType, manifest)
	return digest(config)
}

// put stores data without faults and counts.
func (r *Registry) put(t testing.TB, method, url, kind string, data []byte) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	req.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	r.images.ServeHTTP(answer, req)
	if answer.Code >= 300 {
		t.Fatalf("%s %s: %d %s", method, url, answer.Code, answer.Body)
	}
}

// randomLayer makes a unique layer.
func randomLayer(t testing.TB) []byte {
	t.Helper()
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content) // never fails
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"workspace/", "home/", "home/sandbox/"} {
		header := tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, Uid: 10001, Gid: 10001}
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
	}
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "random", Mode: 0o644, Size: int64(len(content)),
	})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
