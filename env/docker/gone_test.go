package docker_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// daemon runs the docker command on the daemon of the tests.
func daemon(tb testing.TB, host string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("docker", append([]string{"-H", host}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said // warnings of the daemon are no part of the answer
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return strings.TrimSpace(string(out))
}

// exists reports whether a daemon knows a container. One that was killed while it removed a
// container may list that for ever, and know nothing else of it.
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
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
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

// TestGone takes the container away while a command runs in it, in every way that there is.
func TestGone(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{})
	for _, tt := range []struct {
		name   string
		do     func(t *testing.T, container string)
		reason []docker.Reason
	}{
		{"removed without its volumes", func(t *testing.T, c string) {
			daemon(t, d.Host(), "rm", "-f",
				c)
		}, []docker.Reason{docker.ReasonRemoved, docker.ReasonStopped}},
		{
			"stopped", func(t *testing.T, c string) { daemon(t, d.Host(), "stop", "-t", "1", c) },
			[]docker.Reason{docker.ReasonStopped},
		},
		{
			"killed", func(t *testing.T, c string) { daemon(t, d.Host(), "kill", c) },
			[]docker.Reason{docker.ReasonStopped},
		},
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
			e, err := docker.Connect(t.Context(), docker.Address{Host: d.Host()})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close() //nolint:errcheck // there may be no daemon
			box, err := e.Open(t.Context(), config(t, docker.Config{Image: "busybox:latest"}))
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close() //nolint:errcheck // there may be no daemon
			started := make(chan struct{}, 1)
			ended := make(chan error, 1)
			go func() {
				res, err := box.Exec(context.WithoutCancel(t.Context()), env.Command{
					Argv: []string{"/bin/sh", "-c", "echo; exec sleep 1000"}, Stdout: signalWriter(started),
				})
				if err == nil && res.Signal == "SIGTERM" { // which the daemon sent, and process 1 handed on
					err = env.ErrUnknownOutcome
				}
				ended <- err
			}()
			<-started
			tt.do(t, box.Container())
			select {
			case err := <-ended:
				if !errors.Is(err, env.ErrGone) && !errors.Is(err, env.ErrUnknownOutcome) {
					t.Errorf("the command ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the command hangs")
			}
			_, err = box.Stat(t.Context(), "/")
			var gone *docker.GoneError
			if !errors.As(err, &gone) || !errors.Is(err, env.ErrGone) {
				t.Fatalf("afterwards: %v", err)
			}
			found := false
			for _, r := range tt.reason {
				found = found || gone.Reason == r
			}
			if !found {
				t.Errorf("it is said to be gone because %v; want %v", gone, tt.reason)
			}
		})
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Whose daemon was dead could not tidy up.
	e, err := docker.Connect(t.Context(), docker.Address{Host: d.Host()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // the connection has served
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if done, err := e.Collect(t.Context(), remote.CollectOptions{}); err != nil || len(done) > 0 {
			t.Log(done, err)
			break
		}
	}
	nothingLeft(t, d.Host())
}

// signalWriter signals each write.
type signalWriter chan<- struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(p), nil
}

// TestLiveRestore restarts a daemon whose containers outlive it: the command goes on, and nothing
// of its output is lost.
func TestLiveRestore(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{Args: []string{"--live-restore"}})
	e, err := docker.Connect(t.Context(), docker.Address{Host: d.Host()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // the connection has served
	box := open(t, e, docker.Config{Image: "busybox:latest"})
	started := make(chan struct{}, 1)
	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		res, err := box.Exec(t.Context(), env.Command{
			Argv: []string{"/bin/sh", "-c", "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); sleep " +
				"0.02; done; echo once >> count; exit 7"},
			Stdout: both{signalWriter(started), &out},
		})
		if err == nil && res.ExitCode != 7 {
			err = errors.New("another exit code")
		}
		done <- err
	}()
	<-started
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-done
	var gone *docker.GoneError
	if old := daemon(t, d.Host(), "version", "--format", "{{.Server.Version}}"); errors.As(err,
		&gone) && strings.HasPrefix(old, "20.10.") {
		t.Skip("daemons before 24.0.8 remove containers that remove themselves when they start, " +
			"although they say that those live on: " + err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Fields(out.String()); len(lines) != 400 || lines[0] != "0" ||
		lines[399] != "399" {
		t.Errorf("%d lines arrived", len(lines))
	}
	if data, err := env.ReadFile(t.Context(), box, "count", 100); err != nil ||
		string(data) != "once\n" {
		t.Errorf("it ran %q, %v", data, err)
	}
}

// both writes to two writers.
type both struct {
	signal signalWriter
	out    *strings.Builder
}

func (b both) Write(p []byte) (int, error) {
	_, _ = b.signal.Write(p)
	return b.out.Write(p)
}
