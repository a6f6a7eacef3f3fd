package k8s_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

var (
	// helperProgram is the helper that tests use.
	helperProgram string
	// namespace is the namespace of the tests. It demands the Pod Security Standard restricted.
	namespace string
	// userConfig is a kubeconfig file of a user with the Role in docs/k8s.md.
	userConfig string
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // tests wait for pods most of the time
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "k8s-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system's temporary directory is cleaned
		helperProgram = filepath.Join(dir, "sandboxd")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", helperProgram,
			"../../cmd/sandboxd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
		user, err := daemons.NewKubeUser(context.Background(), "../../docs/k8s.md")
		if err != nil {
			panic(err)
		}
		defer user.Remove(context.Background())
		if user != nil {
			namespace, userConfig = user.Namespace, user.Config
		}
		return m.Run()
	}())
}

// connect returns the cluster of the tests, as the user with the Role. The connection is closed at
// the end of the test.
func connect(tb testing.TB) *k8s.Cluster {
	tb.Helper()
	daemons.Kubeconfig(tb)
	return connectBy(tb, userConfig)
}

func connectBy(tb testing.TB, file string) *k8s.Cluster {
	tb.Helper()
	return connectTo(tb, k8s.Address{Kubeconfig: file})
}

func connectTo(tb testing.TB, a k8s.Address) *k8s.Cluster {
	tb.Helper()
	c, err := k8s.Connect(tb.Context(), a)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// kubectl runs kubectl in the namespace as the administrator.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := daemons.Kubectl(context.WithoutCancel(t.Context()), daemons.Kubeconfig(t), stdin,
		append([]string{"-n", namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// server returns the URL of the API server.
func server(t *testing.T) string {
	t.Helper()
	return connect(t).Server()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// at returns the user's kubeconfig file with another URL of the API server.
func at(t *testing.T, url string) string {
	t.Helper()
	data, err := os.ReadFile(userConfig)
	if err != nil {
		t.Fatal(err)
	}
	server := regexp.MustCompile(`(?m)^( *server:).*$`)
	return writeFile(t, "other", server.ReplaceAllString(string(data), "$1 "+url))
}

// waitGone waits until a pod is gone.
func waitGone(t *testing.T, pod string) {
	t.Helper()
	poll(t, "pod "+pod+" is gone", func() bool {
		return kubectl(t, "", "get", "pod", pod, "--ignore-not-found", "-o", "name") == ""
	})
}

// poll waits for a condition.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this does not become true: " + what)
		}
	}
}

// await waits for a value.
func await[T any](t *testing.T, c <-chan T, otherwise string) T {
	t.Helper()
	select {
	case got := <-c:
		return got
	case <-time.After(3 * time.Minute):
		t.Fatal(otherwise)
		panic("unreachable")
	}
}

// proxy passes connections on to a server, and cuts them.
type proxy struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	// cutting is how many connections are cut when they have sent cutSize bytes.
	cutting atomic.Int32
}

// cutSize is more than a request takes, and less than the helper.
const cutSize = 1 << 20

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	target := strings.TrimPrefix(server, "https://")
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
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			go pass(c, s)
			go func() {
				n, _ := io.Copy(s, io.LimitReader(c, cutSize))
				if n < cutSize || p.cutting.Add(-1) >= 0 {
					_, _ = c.Close(), s.Close()
				} else {
					pass(s, c)
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); p.cut() })
	return p
}

// pass copies one direction of a connection.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// kubeconfig returns a kubeconfig file of the user for the proxy.
func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	return at(t, "https://"+p.listener.Addr().String())
}

// inFront returns a proxy to a server in front of the API server, which handles a request itself if
// first returns true, and a kubeconfig file of the user for the proxy.
func inFront(
	t *testing.T, first func(http.ResponseWriter, *http.Request) (done bool),
) (p *proxy, file string) {
	t.Helper()
	target, err := url.Parse(server(t))
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(target)
	next.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a server of the tests
	}
	next.ErrorLog = log.New(io.Discard, "", 0) // of streams that end
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first(w, r) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	p = newProxy(t, s.URL)
	file = p.kubeconfig(t)
	name, err := daemons.Kubectl(t.Context(), file, "", "config", "view", "-o",
		"jsonpath={.clusters[0].name}")
	if err == nil {
		_, err = daemons.Kubectl(t.Context(), file, "", "config", "set-cluster", name, "--embed-certs",
			"--certificate-authority="+writeFile(t, "ca", string(pem.EncodeToMemory(&pem.Block{
				Type: "CERTIFICATE", Bytes: s.Certificate().Raw,
			}))))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, file
}
