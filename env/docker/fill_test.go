package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestFill has environments whose files commands cannot change.
func TestFill(t *testing.T) {
	t.Parallel()
	host := daemons.DockerHost(t)
	e := connectTo(t, host)
	envtest.Filled(t, func(t *testing.T, fill envtest.Fill) (env.Environment, error) {
		return e.Open(t.Context(), config(t, docker.Config{Fill: fill}))
	})

	source := t.TempDir()
	if err := os.Chmod(source, 0o777); err != nil { //nolint:gosec // the container has another user
		t.Fatal(err)
	}
	session := strings.ToLower(rand.Text())
	fill := func(ctx context.Context, e env.Environment) error {
		_, err := e.WriteFile(ctx, "file", strings.NewReader("text"), env.WriteOptions{})
		return err
	}
	box := start(t, e, docker.Config{
		Options: remote.Options{Session: session}, Fill: fill,
		Mounts: []docker.Mount{{Source: source, Target: "/data"}},
	})
	got := output(t, box, "cat file; touch /data/new || true")
	if !strings.HasPrefix(got, "texttouch") {
		t.Errorf("it prints %q", got)
	}
	if _, err := os.Stat(filepath.Join(source, "new")); err == nil {
		t.Error("a command has written to a mount")
	}
	report, err := box.Verify(t.Context(), verify.Host{})
	if err != nil {
		t.Fatal(err)
	}
	if broken := report.Broken(); len(broken) > 0 {
		t.Errorf("verify: %+v", broken)
	}
	nested := docker.Config{
		Fill: fill, Mounts: []docker.Mount{{Source: source, Target: "/workspace/x"}},
	}
	if bad := (*docker.ConfigError)(nil); !errors.As(nested.Validate(), &bad) || bad.Field != "mount" {
		t.Errorf("a mount in the working directory: %v", nested.Validate())
	}
	// A client that dies leaves the removal to the daemon.
	daemon(t, host, "kill", box.Container())
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left := daemon(t, host, "ps", "-aq", "--filter", "name="+session) +
			daemon(t, host, "volume", "ls", "-q", "--filter", "label=sandboxagent.session="+session) +
			daemon(t, host, "volume", "ls", "-q", "--filter", "label=sandboxagent.session="+session+"-fill")
		if left == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", left)
		}
	}
	if err := box.Close(); err != nil {
		t.Error(err)
	}
}

// TestFillOfImage keeps a directory of an image from changes.
func TestFillOfImage(t *testing.T) {
	t.Parallel()
	fill := func(context.Context, env.Environment) error { return nil }
	box := open(t, connect(t), docker.Config{
		WorkDir: "/usr/share/base-files", OwnWorkDir: true, Fill: fill,
	})
	got := output(t, box, "test -n \"$(ls)\" && echo files; touch new || true")
	if !strings.HasPrefix(got, "files\ntouch") {
		t.Errorf("it prints %q", got)
	}
}
