//go:build unix

package integration_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// published copies this module as git archive would pack it, so without embedded helpers, with the
// changes that are not committed yet. It belongs to this user, like a module that go get fetched.
func published(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "module")
	files := git(t, "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimRight(files, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // it was removed
		}
		if err != nil {
			t.Fatal(err)
		}
		writeTree(t, dir, map[string]string{name: string(data)})
	}
	return dir
}

// buildIn builds a package in a directory without a network, and returns the program.
func buildIn(t *testing.T, dir, pkg string, vars []string, flags ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	args := append(append([]string{"build", "-o", name}, flags...), pkg)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append([]string{
		"GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off",
	}, vars...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
	return name
}

// runWithout runs a program on a machine without a Go toolchain and without files of helpers.
func runWithout(t *testing.T, program string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "SANDBOXAGENT_STATE_DIR=" + t.TempDir(),
	}
	if _, err := exec.LookPath("/usr/bin/go"); err == nil {
		t.Skip("/usr/bin has a Go toolchain")
	}
	return finish(t, cmd)
}

// runWithGo runs a program on a machine with a Go toolchain, but without a network and files of
// helpers.
func runWithGo(t *testing.T, program string, args ...string) ran {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "GOCACHE="+strings.TrimSpace(string(cache)), "GOPROXY=off",
		"XDG_CACHE_HOME="+t.TempDir(), "SANDBOXAGENT_STATE_DIR="+t.TempDir())
	return finish(t, cmd)
}

// saysHello checks the outcome of "echo hello".
func saysHello(t *testing.T, got ran) {
	t.Helper()
	if got.code != 0 || got.stdout != "hello\n" {
		t.Errorf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
}

// TestOutsideModule builds a program of another module, which is its own helper, and has it open
// each kind of environment.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/outside/main.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := published(t)
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	writeTree(t, outside, map[string]string{
		"main.go": string(source), "go.sum": string(sums),
		"go.mod": fmt.Sprintf("module example.com/outside\n\ngo 1.26\n\nrequire %s v0.0.0\n\n"+
			"replace %[1]s => %s\n", module, dir),
	})
	// -trimpath takes packages of another checkout with the same content from Go's cache
	static := buildIn(t, outside, ".", []string{"CGO_ENABLED=0"}, "-trimpath")
	for _, kind := range []string{"local", "sandbox"} {
		t.Run(kind, func(t *testing.T) { saysHello(t, runWithout(t, static, kind)) })
	}
	t.Run("docker", func(t *testing.T) {
		d := sharedDocker(t)
		d.need(t, images.DefaultReference)
		saysHello(t, runWithout(t, static, "docker", d.host, images.DefaultReference))
	})
	t.Run("ssh", func(t *testing.T) {
		home := t.TempDir()
		s := daemons.NewSSHD(t, daemons.SSHDConfig{Vars: []string{
			"HOME=" + home, "XDG_CACHE_HOME=" + home, "PATH=" + os.Getenv("PATH"),
		}})
		args := []string{"ssh", s.User() + "@" + s.Address(), s.Key(), s.KnownHosts()}
		saysHello(t, runWithout(t, static, args...))
		sent := "sandboxd-linux-" + runtime.GOARCH + "-" + digest(t, static)
		if _, err := os.Stat(filepath.Join(home, "sandboxagent", sent)); err != nil {
			t.Errorf("the program was not sent: %v", err)
		}
		t.Run("dynamic", func(t *testing.T) {
			if testing.Short() {
				t.Skip("left to make test-full: it compiles this module with paths that Go's cache lacks")
			}
			dynamic := buildIn(t, outside, ".", []string{"CGO_ENABLED=1"})
			got := runWithout(t, dynamic, args...)
			wantContains(t, "the error without a toolchain", got.stderr,
				"the running program is not a static program", `"CGO_ENABLED=0 go build"`,
				"sandboxd.Self()", "/cmd/sandboxd")
			saysHello(t, runWithGo(t, dynamic, args...))
		})
	})
}

// TestPlainInstall proves that the CLI works as go install makes it, without embedded helpers.
func TestPlainInstall(t *testing.T) {
	t.Parallel()
	dir := published(t)
	s := daemons.NewSSHD(t, daemons.SSHDConfig{Vars: []string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"),
	}})
	overSSH := append(append([]string{"exec"}, hostFlags(s)...), "--", "echo", "hello")
	t.Run("static", func(t *testing.T) {
		static := buildIn(t, dir, "./cmd/sandboxagent", []string{"CGO_ENABLED=0"}, "-trimpath")
		saysHello(t, runWithout(t, static, "exec", "--", "echo", "hello"))
		saysHello(t, runWithout(t, static, overSSH...))
	})
	t.Run("dynamic", func(t *testing.T) {
		if testing.Short() {
			t.Skip("left to make test-full: it compiles this module with paths that Go's cache lacks")
		}
		dynamic := buildIn(t, dir, "./cmd/sandboxagent", []string{"CGO_ENABLED=1"})
		saysHello(t, runWithout(t, dynamic, "exec", "--", "echo", "hello"))
		got := runWithout(t, dynamic, overSSH...)
		if got.code != 125 {
			t.Errorf("exit code %d", got.code)
		}
		wantContains(t, "the error without a toolchain", got.stderr,
			"CGO_ENABLED=0 go install "+module+"/cmd/sandboxagent@latest", "--helper-binary FILE")
		saysHello(t, runWithGo(t, dynamic, overSSH...))
	})
}

// digest returns the SHA-256 of a file in hexadecimal.
func digest(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
