package docker_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cliconfig "github.com/docker/cli/cli/config"
	"github.com/docker/docker/client"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// configured writes a configuration of the docker command and makes it this process's until restore
// is called. It is not for tests that run in parallel.
func configured(t *testing.T, configuration string) (dir string, restore func()) {
	t.Helper()
	before, dir := cliconfig.Dir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(configuration),
		0o600); err != nil {
		t.Fatal(err)
	}
	cliconfig.SetDir(dir)
	return dir, func() { cliconfig.SetDir(before) }
}

// throughProxy puts a proxy before the daemon that connect finds. The result receives the end of
// each request whose path has a suffix.
func throughProxy(t *testing.T, suffix string) <-chan struct{} {
	t.Helper()
	daemon, err := client.ParseHostURL(daemons.DockerHost(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, daemon.Scheme, daemon.Host+daemon.Path)
		}},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	ended := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, suffix) {
			context.AfterFunc(req.Context(), func() { ended <- struct{}{} })
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	t.Setenv(daemons.HostVar, "tcp://"+server.Listener.Addr().String())
	return ended
}

// makeContext has the docker command make a context in the directory of its configuration.
func makeContext(t *testing.T, dir, name, endpoint string) {
	t.Helper()
	out, err := exec.Command("docker", "--config", dir, "context", "create", name, "--docker",
		endpoint).CombinedOutput()
	if err != nil {
		t.Fatalf("create the context %s: %v\n%s", name, err, out)
	}
}

// TestContexts finds daemons by the docker command's contexts and variables, in its order.
func TestContexts(t *testing.T) {
	d := daemons.NewDocker(t, daemons.DockerConfig{TLS: true})
	shared, tls := daemons.DockerHost(t), d.TLSHost()
	dir, restore := configured(t, "{}")
	t.Cleanup(restore)
	file := func(name string) string { return filepath.Join(d.CertDir(), name) }
	certificates := ",ca=" + file("ca.pem") + ",cert=" + file("cert.pem") + ",key=" + file("key.pem")
	makeContext(t, dir, "socket", "host="+shared)
	makeContext(t, dir, "tls", "host="+tls+certificates)
	makeContext(t, dir, "stranger", "host="+tls+",ca="+file("ca.pem"))
	makeContext(t, dir, "unsure", "host="+tls+",cert="+file("cert.pem")+",key="+file("key.pem"))
	makeContext(t, dir, "plain", "host="+tls)
	for _, tt := range []struct {
		name               string
		address            docker.Address
		vars               map[string]string
		current            string // the context that "docker context use" chose
		want               string // the address
		misused, down, say string // or parts of a *ConfigError or *DaemonError
	}{
		{name: "socket", address: docker.Address{Context: "socket"}, want: shared},
		{name: "TLS", address: docker.Address{Context: "tls"}, want: tls},
		{name: "by a variable", vars: map[string]string{"DOCKER_CONTEXT": "tls"}, want: tls},
		{name: "the current one", current: "tls", want: tls},
		{
			name: "a variable beats the current one", vars: map[string]string{"DOCKER_CONTEXT": "socket"},
			current: "tls", want: shared,
		},
		{
			name: "a host beats both", current: "tls", want: shared,
			vars: map[string]string{"DOCKER_CONTEXT": "none-of-this-name", "DOCKER_HOST": shared},
		},
		{
			name: "an argument beats the variables", address: docker.Address{Context: "tls"},
			vars: map[string]string{"DOCKER_CONTEXT": "socket", "DOCKER_HOST": "unix:///none"}, want: tls,
		},
		{
			name: "a host as argument beats the variable", address: docker.Address{Host: shared},
			vars: map[string]string{"DOCKER_CONTEXT": "tls"}, want: shared,
		},
		{
			name: "the default one uses the variables", address: docker.Address{Context: "default"},
			vars: map[string]string{"DOCKER_HOST": shared}, current: "tls", want: shared,
		},
		{name: "variables of TLS are for hosts", vars: map[string]string{
			"DOCKER_HOST":       tls,
			"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": d.CertDir(),
		}, want: tls},
		{
			name: "variables of TLS are not for contexts", address: docker.Address{Context: "tls"},
			vars: map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": t.TempDir()}, want: tls,
		},
		{
			name:    "certificates as argument beat the variables",
			address: docker.Address{Host: tls, Certificates: d.CertDir()},
			vars:    map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": t.TempDir()}, want: tls,
		},
		{
			name: "none of this name", address: docker.Address{Context: "none"},
			misused: `the docker context "none"`, say: `"docker context ls"`,
		},
		{
			name: "none of this name in the variable", vars: map[string]string{"DOCKER_CONTEXT": "none"},
			misused: `the docker context "none"`, say: `"docker context ls"`,
		},
		{
			name: "no name at all", address: docker.Address{Context: "../socket"},
			misused: `the docker context "../socket"`, say: `"docker context ls"`,
		},
		{
			name: "two answers", address: docker.Address{Context: "socket", Host: shared},
			misused: "exclude each other",
		},
		{
			name: "without a certificate", address: docker.Address{Context: "stranger"}, down: "certificate",
			say: tls,
		},
		{
			name: "of an unknown authority", address: docker.Address{Context: "unsure"},
			down: "unknown authority", say: tls,
		},
		{name: "without TLS", address: docker.Address{Context: "plain"}, down: "HTTPS server", say: tls},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"HOST", "CONTEXT", "TLS_VERIFY", "CERT_PATH"} {
				t.Setenv("DOCKER_"+name, tt.vars["DOCKER_"+name])
			}
			if tt.current != "" {
				use(t, dir, tt.current)
				defer use(t, dir, "default")
			}
			e, err := docker.Connect(t.Context(), tt.address)
			if err == nil {
				defer e.Close() //nolint:errcheck // it has served
			}
			if tt.want != "" {
				if err != nil || e.Address() != tt.want {
					t.Fatalf("got %v, %v; want %s", e, err, tt.want)
				}
				if _, err := e.List(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			var misused *docker.ConfigError
			var down *docker.DaemonError
			if errors.As(err, &misused) != (tt.misused != "") || errors.As(err, &down) != (tt.down != "") {
				t.Fatalf("got %v of the wrong kind", err)
			}
			for _, text := range []string{tt.misused, tt.down, tt.say} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
		})
	}
}

// use has the docker command choose a context.
func use(t *testing.T, dir, name string) {
	t.Helper()
	cmd := exec.Command("docker", "--config", dir, "context", "use", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("use the context %s: %v\n%s", name, err, out)
	}
}

// TestContextWorks opens an environment by a context.
func TestContextWorks(t *testing.T) {
	d := own(t, daemons.DockerConfig{TLS: true})
	dir, restore := configured(t, "{}")
	t.Cleanup(restore)
	file := func(name string) string { return filepath.Join(d.CertDir(), name) }
	makeContext(t, dir, "tls", "host="+d.TLSHost()+",ca="+file("ca.pem")+",cert="+file("cert.pem")+
		",key="+file("key.pem"))
	e, err := docker.Connect(t.Context(), docker.Address{Context: "tls"})
	if err != nil {
		t.Fatal(err)
	}
	box := start(t, e, docker.Config{Image: daemons.Busybox})
	fileTrip(t, box, "f")
	if err := errors.Join(box.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}
