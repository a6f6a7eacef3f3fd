package docker_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// host returns what the tests prepare to be looked for.
func host(t *testing.T) verify.Host {
	t.Helper()
	dir := t.TempDir()
	canary := filepath.Join(dir, "canary")
	if err := os.WriteFile(canary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Dir(dir), dir, canary} { // to be seen by another user
		if err := os.Chmod(name, 0o755); err != nil { //nolint:gosec // that is what it is for
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return verify.Host{Files: []string{canary}, Listening: []string{l.Addr().String()}}
}

// broken verifies box and returns the names of the findings that are not good.
func broken(t *testing.T, box *docker.Environment, h verify.Host) []string {
	t.Helper()
	r, err := box.Verify(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) < 20 {
		t.Errorf("only %d findings", len(r.Findings))
	}
	for _, dir := range []string{"/tmp", "/workspace", "/home/sandbox"} {
		entries, err := box.ReadDir(t.Context(), dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".probe-") {
				t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
	names := []string{}
	for _, f := range r.Broken() {
		names = append(names, f.Name)
		t.Logf("%s: %s; wanted: %s", f.Name, f.Found, f.Wanted)
	}
	return names
}

// TestVerify verifies containers that are what they promise.
func TestVerify(t *testing.T) {
	t.Parallel()
	e := connect(t)
	for name, c := range map[string]docker.Config{
		"default": {},
		"busybox": {Image: "busybox:latest"},
		"root":    {User: "root"},
		"base":    {Image: "sandboxagent-base:latest"},
		"asked": {
			CPUs: 0.5, Memory: 256 << 20, PIDs: 128, User: "4711:815", WorkDir: "/somewhere/else",
			Options: remote.Options{Vars: []string{"WORD=x"}}, Tmpfs: []docker.Tmpfs{{Target: "/scratch"}},
			Mounts: []docker.Mount{{Source: "/tmp/nobody-has-this", Target: "/data", ReadOnly: true}},
		},
		"over a link":           {Tmpfs: []docker.Tmpfs{{Target: "/var/run/x"}}},
		"the system writable":   {WorkDir: "/usr/work", Tmpfs: []docker.Tmpfs{{Target: "/etc"}}},
		"all programs writable": {WorkDir: "/usr"},
		"a writable root":       {WritableRoot: true},
		"root, a writable root": {WritableRoot: true, User: "root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.Image != "" {
				if _, err := e.FindImage(t.Context(), c.Image); err != nil {
					daemons.Missing(t, "docker", err.Error())
				}
			}
			for i := range c.Mounts {
				c.Mounts[i].Source = daemonFolder(t)
			}
			if bad := broken(t, open(t, e, c), host(t)); len(bad) > 0 {
				t.Error(bad)
			}
		})
	}
}

// daemonFolder is a directory that the daemon's machine has, which for the daemon of the tests is
// this one.
func daemonFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
