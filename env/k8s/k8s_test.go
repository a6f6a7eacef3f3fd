package k8s_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// config completes a configuration for tests: pods are small, for many run at once.
func config(tb testing.TB, c k8s.Config) k8s.Config {
	tb.Helper()
	if c.CPUs == 0 {
		c.CPUs = 0.15
	}
	if c.Memory == 0 {
		c.Memory = 256 << 20
	}
	if c.Disk == 0 {
		c.Disk = 512 << 20
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 10 * time.Minute // for room on the node
	}
	if c.Pull == "" {
		c.Pull = k8s.PullNever
	}
	c.Helper.Binary = helperProgram
	c.Warn = func(line string) { tb.Log(line) }
	return c
}

// start opens an environment, which the test closes.
func start(tb testing.TB, cluster *k8s.Cluster, c k8s.Config) *k8s.Environment {
	tb.Helper()
	e, err := cluster.Open(tb.Context(), config(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// open returns an environment that is closed at the end of the test.
func open(tb testing.TB, cluster *k8s.Cluster, c k8s.Config) *k8s.Environment {
	tb.Helper()
	e := start(tb, cluster, c)
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return e
}

func command(argv ...string) env.Command { return env.Command{Argv: argv} }

func sh(script string) env.Command { return command("/bin/sh", "-c", script) }

// output returns what a script prints.
func output(t *testing.T, e env.Environment, script string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := sh(script)
	cmd.Stdout, cmd.Stderr = &out, &out
	res, err := e.Exec(t.Context(), cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v: %s", script, res, err, out.String())
	}
	return out.String()
}

// known are the differences of images.
var known = map[string]map[string]string{
	daemons.Busybox: {"tty/no_input": "the shell of busybox, which edits lines itself, loses an " +
		"end of file that comes before it does so"},
}

// TestContract runs the conformance suite in images that have much, little and nothing.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, image := range []string{daemons.Debian, daemons.Busybox, daemons.Empty} {
		t.Run(strings.NewReplacer(":", "_", "/", "_").Replace(image), func(t *testing.T) {
			if image != daemons.Debian && testing.Short() {
				t.Skip("left to make test-full: the contract runs once, on Debian")
			}
			cluster := connect(t)
			c := k8s.Config{Image: image, CPUs: 0.3}
			if image == daemons.Empty {
				c.HelperImage = daemons.Helper
			}
			alive := envtest.AliveOnHost
			if daemons.OtherKube() {
				alive = nil
			}
			envtest.Run(t, envtest.Options{
				New:   func(t *testing.T) env.Environment { return start(t, cluster, c) },
				Alive: alive,
				Known: known[image],
				Bare:  image != daemons.Debian,
				Small: image != daemons.Debian || testing.Short(),
			})
		})
	}
}

// TestFill has an environment whose files commands cannot change.
func TestFill(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	envtest.Filled(t, func(t *testing.T, fill envtest.Fill) (env.Environment, error) {
		e, err := cluster.Open(t.Context(), config(t, k8s.Config{Fill: fill}))
		if err != nil {
			return nil, err
		}
		report, err := e.Verify(t.Context(), verify.Host{})
		if err != nil {
			t.Error(err)
		}
		for _, f := range report.Broken() {
			if f.Name != string(env.NoNetwork) {
				t.Errorf("verify: %+v", f)
			}
		}
		return e, nil
	})
	nested := k8s.Config{
		Fill: func(context.Context, env.Environment) error { return nil },
		Template: []byte("spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: sandbox, " +
			"volumeMounts: [{name: v, mountPath: /workspace/v}]}]}"),
	}
	if bad := (*k8s.ConfigError)(nil); !errors.As(nested.Validate(), &bad) {
		t.Errorf("a mount in the working directory: %v", nested.Validate())
	}
}
