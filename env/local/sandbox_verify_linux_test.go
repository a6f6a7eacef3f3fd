package local_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// ourHost returns things that a sandbox hides: a file, sockets, and this process.
func ourHost(t *testing.T) verify.Host {
	t.Helper()
	dir := t.TempDir()
	h := verify.Host{
		Files: []string{dir + "/canary"}, Sockets: []string{dir + "/socket"}, Process: os.Getpid(),
	}
	if err := os.WriteFile(h.Files[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, on := range [][2]string{{"unix", h.Sockets[0]}, {"tcp4", "127.0.0.1:0"}} {
		l, err := net.Listen(on[0], on[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if on[0] == "tcp4" {
			h.Listening = []string{l.Addr().String()}
		}
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	h.Name = string(name[:len(name)-1])
	return h
}

// TestSandboxVerified verifies each kind of sandbox, and an environment without one, which fails.
func TestSandboxVerified(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh", "id"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := ourHost(t)
	named := []string{"secrets", "home", "kept-files", "outside-files", "host-sockets"}
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		broken := map[string]bool{
			"home": true, "unix-sockets": true, "system-call-filter": true, "no-new-privileges": true,
			"host-sockets": true, "host-loopback": true,
		}
		if by == sandbox.Bubblewrap {
			for _, name := range []string{"host-processes", "host-files", "root-file-system", "kept-files"} {
				broken[name] = true
			}
		} else {
			broken["network-sockets"] = true
		}
		if os.Getuid() == 0 {
			broken["capabilities"] = true
			broken["secrets"] = true
			broken["outside-files"] = by == sandbox.Landlock
		}
		for _, network := range []bool{false, true} {
			dir := t.TempDir()
			if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			e := sandboxed(t, by, local.Config{Dir: dir}, env.Sandbox{
				Network: network, NoUnixSockets: !network,
			})
			r, err := e.Verify(t.Context(), host)
			if err != nil || !r.OK() {
				t.Fatalf("with a network %t: %+v, %v", network, r.Broken(), err)
			}
			for _, f := range r.Findings {
				if slices.Contains(named, f.Name) && !strings.Contains(f.By, string(by)) {
					t.Errorf("with a network %t: %s is by %q, want %s", network, f.Name, f.By, by)
				}
			}
			if left, err := e.ReadDir(t.Context(), e.Info().WorkDir); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if network {
				continue
			}
			bare := supervise(t, local.Config{})
			h := thisProgram(t)
			r, err = local.VerifyAs(t.Context(), bare, append([]string{h.Binary}, h.Args...), e, host)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if broken[f.Name] && f.OK {
					t.Errorf("without a sandbox, %s passes: %s", f.Name, f.Found)
				}
			}
			for name := range broken {
				if broken[name] && !slices.ContainsFunc(r.Findings,
					func(f verify.Finding) bool { return f.Name == name }) {
					t.Errorf("the report has no %s", name)
				}
			}
		}
	})
}

// TestVerifyWithoutExecution has a temporary directory in which nothing can be executed.
func TestVerifyWithoutExecution(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	mount(t, "tmpfs", temp, "tmpfs", unix.MS_NOEXEC, "")
	t.Setenv("TMPDIR", temp)
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		if by != sandbox.Landlock {
			return // which has a private /tmp
		}
		e := sandboxed(t, by, local.Config{Dir: dir}, env.Sandbox{})
		r, err := e.Verify(t.Context(), verify.Host{})
		if r.OK() || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "noexec") {
			t.Errorf("%v, %v", r, err)
		}
	})
}

func TestVerifyWithoutSandbox(t *testing.T) {
	e := supervise(t, local.Config{})
	r, err := e.Verify(t.Context(), verify.Host{})
	if r.OK() || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v", r, err)
	}
}
