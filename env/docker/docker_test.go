package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// helperProgram is the helper that tests use; TestMain builds it.
var helperProgram string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docker-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system's temporary folder is cleaned
		helperProgram = filepath.Join(dir, "sandboxd")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", helperProgram, "../../cmd/sandboxd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// connect returns the daemon of the tests.
func connect(tb testing.TB) *docker.Engine {
	tb.Helper()
	e, err := docker.Connect(tb.Context(), docker.Address{Host: daemons.DockerHost(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// config completes a configuration for tests.
func config(tb testing.TB, c docker.Config) docker.Config {
	tb.Helper()
	if c.Image == "" {
		c.Image = "debian:bookworm-slim"
	}
	c.Pull = docker.PullNever
	c.HelperProgram.Path = helperProgram
	c.Note = func(line string) { tb.Log(line) }
	return c
}

// open returns an environment that is closed at the end of the test.
func open(tb testing.TB, e *docker.Engine, c docker.Config) *docker.Environment {
	tb.Helper()
	box, err := e.Open(tb.Context(), config(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := box.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return box
}

// TestContract runs the conformance suite in images that have everything and nothing, as root and as an ordinary user.
func TestContract(t *testing.T) {
	for _, image := range []string{"debian:bookworm-slim", "busybox:latest"} {
		for _, user := range []string{"", "root"} {
			name := strings.NewReplacer(":", "_", "/", "_").Replace(image)
			if user == "" {
				name += "_10001"
			} else {
				name += "_" + user
			}
			t.Run(name, func(t *testing.T) {
				e := connect(t)
				envtest.Run(t, envtest.Options{
					New: func(t *testing.T) env.Environment {
						box, err := e.Open(t.Context(), config(t, docker.Config{Image: image, User: user}))
						if err != nil {
							t.Fatal(err)
						}
						return box
					},
					Alive: func(*testing.T, ...string) bool { return false },
				})
			})
		}
	}
}

func TestOpen(t *testing.T) {
	e := connect(t)
	for range 3 {
		began := time.Now()
		box := open(t, e, docker.Config{})
		ready := time.Since(began)
		out, _, err := env.Output(t.Context(), box, env.Command{Argv: []string{"/bin/sh", "-c", "id; pwd; ls -ld . $HOME /tmp; echo $HOME; touch x ~/y /tmp/z; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp'; cat /proc/1/cmdline"}}, env.OutputOptions{})
		t.Logf("%s %s %s %v", ready, out.Stdout.Bytes(), out.Stderr.Bytes(), err)
		t.Log(box.Info())
		began = time.Now()
		_ = box.Close()
		t.Log("close", time.Since(began))
	}
}
