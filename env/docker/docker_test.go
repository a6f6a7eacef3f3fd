package docker_test

import (
	"flag"
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
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // tests wait for containers most of the time
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docker-test-")
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
		return m.Run()
	}())
}

// connect returns the daemon of the tests.
func connect(tb testing.TB) *docker.Engine {
	tb.Helper()
	return connectTo(tb, daemons.DockerHost(tb))
}

// connectTo returns a daemon; the connection is closed at the end of the test.
func connectTo(tb testing.TB, host string) *docker.Engine {
	tb.Helper()
	e, err := docker.Connect(tb.Context(), docker.Address{Host: host})
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

// isFull reports whether all combinations are to be tested.
func isFull() bool { return !testing.Short() }

// full skips a test unless isFull.
func full(t *testing.T, why string) {
	t.Helper()
	if !isFull() {
		t.Skip("left to make test-full: " + why)
	}
}

// config completes a configuration for tests.
func config(tb testing.TB, c docker.Config) docker.Config {
	tb.Helper()
	if c.Image == "" {
		c.Image = "debian:bookworm-slim"
	}
	c.Pull = docker.PullNever
	c.Helper.Binary = helperProgram
	c.Warn = func(line string) { tb.Log(line) }
	return c
}

// start opens an environment, which the test closes.
func start(tb testing.TB, e *docker.Engine, c docker.Config) *docker.Environment {
	tb.Helper()
	box, err := e.Open(tb.Context(), config(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	return box
}

// open returns an environment that is closed at the end of the test.
func open(tb testing.TB, e *docker.Engine, c docker.Config) *docker.Environment {
	tb.Helper()
	box := start(tb, e, c)
	tb.Cleanup(func() {
		if err := box.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return box
}

func command(argv ...string) env.Command { return env.Command{Argv: argv} }

func sh(script string) env.Command { return command("/bin/sh", "-c", script) }

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

// known are the differences of images.
var known = map[string]map[string]string{
	daemons.Busybox: {"tty/no_input": "the shell of busybox, which edits lines itself, loses an " +
		"end of file that comes before it does so"},
}

// TestContract runs the conformance suite in images that have much, little and nothing, as root and
// as an ordinary user.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, image := range []string{daemons.Debian, daemons.Busybox, daemons.Empty} {
		for _, user := range []string{docker.DefaultUser, "root"} {
			name := strings.NewReplacer(":", "_", "/", "_").Replace(image + "_" + user)
			t.Run(name, func(t *testing.T) {
				if image != daemons.Debian || user != docker.DefaultUser {
					full(t, "the contract runs once, on Debian as an ordinary user")
				}
				t.Parallel()
				contract(t, docker.Config{Image: image, User: user})
			})
		}
	}
}

func contract(t *testing.T, c docker.Config) {
	e := connect(t)
	envtest.Run(t, envtest.Options{
		New:   func(t *testing.T) env.Environment { return start(t, e, c) },
		Alive: envtest.AliveOnHost,
		Known: known[c.Image],
		Bare:  c.Image != daemons.Debian,
		Small: c.Image != daemons.Debian || c.User != docker.DefaultUser,
	})
}
