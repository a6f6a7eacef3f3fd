package docker_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		New: func(t *testing.T) env.Environment {
			box, err := e.Open(t.Context(), config(t, c))
			if err != nil {
				t.Fatal(err)
			}
			return box
		},
		Alive: aliveOnHost,
		Known: known[c.Image],
		Bare:  c.Image != daemons.Debian,
		Small: c.Image != daemons.Debian || c.User != docker.DefaultUser,
	})
}

// aliveOnHost reports whether a process with exactly these words runs anywhere on this machine,
// which the daemon shares.
func aliveOnHost(t *testing.T, argv ...string) bool {
	t.Helper()
	want := strings.Join(argv, "\x00") + "\x00"
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got, err := os.ReadFile(name); err == nil && string(got) == want {
			return true
		}
	}
	return false
}
