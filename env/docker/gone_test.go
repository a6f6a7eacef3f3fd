package docker_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// daemon runs the docker command on the daemon of the tests.
func daemon(tb testing.TB, host string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("docker", append([]string{"-H", host}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr // warnings of the daemon are no part of the output
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// exists reports whether a daemon can inspect a container. A daemon that was killed while it
// removed a container may list it for ever.
func exists(tb testing.TB, host, id string) bool {
	tb.Helper()
	out, err := exec.Command("docker", "-H", host, "inspect", "--type=container", id).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "No such container") {
		tb.Fatalf("docker inspect %s: %v\n%s", id, err, out)
	}
	return err == nil
}

// nothingLeft checks that a daemon has no container of this package, and no volumes but those of
// helpers.
func nothingLeft(tb testing.TB, host string) {
	tb.Helper()
	var left string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		left = ""
		for _, id := range strings.Fields(daemon(tb, host, "ps", "-aq", "--filter",
			"label=sandboxagent.session")) {
			if exists(tb, host, id) {
				left += " container " + id
			}
		}
		for _, v := range strings.Fields(daemon(tb, host, "volume", "ls", "-q")) {
			if !strings.HasPrefix(v, "sandboxagent-helper-") {
				left += " volume " + v
			}
		}
		if left == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	tb.Errorf("left behind: %s", left)
}

// own starts a daemon for one test, with Debian and busybox in it.
func own(t *testing.T, c daemons.DockerConfig) *daemons.Docker {
	t.Helper()
	d := daemons.NewDocker(t, c)
	if err := d.Load(t.Context(), daemons.Busybox); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGone ends the container in each possible way while a command runs in it.
func TestGone(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{})
	dockerCommand := func(args ...string) func(*testing.T, string) {
		return func(t *testing.T, container string) { daemon(t, d.Host(), append(args, container)...) }
	}
	for _, tt := range []struct {
		name   string
		do     func(t *testing.T, container string)
		reason []docker.Reason
	}{
		{
			"removed without its volumes", dockerCommand("rm", "-f"),
			[]docker.Reason{docker.ReasonRemoved, docker.ReasonStopped},
		},
		{"stopped", dockerCommand("stop", "-t", "1"), []docker.Reason{docker.ReasonStopped}},
		{"killed", dockerCommand("kill"), []docker.Reason{docker.ReasonStopped}},
		{"daemon restarted", func(t *testing.T, _ string) {
			if err := d.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		}, []docker.Reason{docker.ReasonDaemon, docker.ReasonStopped}},
		{"daemon killed", func(t *testing.T, _ string) {
			if err := errors.Join(d.Kill(), d.Start(t.Context())); err != nil {
				t.Error(err)
			}
		}, []docker.Reason{docker.ReasonDaemon, docker.ReasonStopped}},
		{"daemon dead", func(t *testing.T, _ string) {
			if err := d.Kill(); err != nil {
				t.Error(err)
			}
		}, []docker.Reason{docker.ReasonUnreachable}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			box := start(t, connectTo(t, d.Host()), docker.Config{Image: daemons.Busybox})
			defer box.Close() //nolint:errcheck // the daemon may be dead
			done := envtest.Sleeping(t, box, "")
			tt.do(t, box.Container())
			o := await(t, done, "the command hangs")
			// PID 1 may have passed the daemon's signal on.
			if !errors.Is(o.Err, env.ErrGone) && !errors.Is(o.Err, env.ErrUnknownOutcome) &&
				(o.Err != nil || o.Signal != "SIGTERM") {
				t.Errorf("the command ended with %+v", o)
			}
			_, err := box.Stat(t.Context(), "/")
			var gone *docker.GoneError
			if !errors.As(err, &gone) || !errors.Is(err, env.ErrGone) {
				t.Fatalf("afterwards: %v", err)
			}
			if !slices.Contains(tt.reason, gone.Reason) {
				t.Errorf("the reason is %v; want %v", gone, tt.reason)
			}
		})
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The client of the dead daemon could not remove anything.
	e := connectTo(t, d.Host())
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if done, err := e.Collect(t.Context(), remote.CollectOptions{}); err != nil || len(done) > 0 {
			t.Log(done, err)
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	nothingLeft(t, d.Host())
}

// TestLiveRestore restarts a daemon whose containers outlive it.
func TestLiveRestore(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{Args: []string{"--live-restore"}})
	version := daemon(t, d.Host(), "version", "--format", "{{.Server.Version}}")
	if strings.HasPrefix(version, "20.10.") {
		t.Skip("daemons before 24.0.8 remove containers that remove themselves when they start")
	}
	box := open(t, connectTo(t, d.Host()), docker.Config{Image: daemons.Busybox})
	envtest.Survives(t, box, 1, func() {
		if err := d.Restart(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
