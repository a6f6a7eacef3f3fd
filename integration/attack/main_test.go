// Package attack_test attacks the product from where an attacker would stand: in a sandboxed
// command, as another user of the machine, and as the server, the host or the image that the
// product works with. Each attack once held. make test-full runs them.
package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// buildDir holds the programs of built; empty before the first.
var buildDir string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir)
		}
		os.Exit(code)
	}))
}

var buildMu sync.Mutex

// built builds a package of this module for an architecture once, and returns the program's path.
// The program is static, so that it starts everywhere.
func built(t testing.TB, pkg, goarch string) string {
	t.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	if buildDir == "" {
		var err error
		buildDir, err = os.MkdirTemp("", "sandboxagent-attack-") //nolint:usetesting // all tests use it
		if err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(buildDir, filepath.Base(pkg)+"-"+goarch)
	if _, err := os.Stat(name); err == nil {
		return name
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", name,
		"github.com/sandboxagent/sandboxagent/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return name
}

// ran is the result of a run of the program.
type ran struct {
	code           int
	stdout, stderr string
}

func (r ran) String() string {
	return fmt.Sprintf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
}

// long skips a test that make test leaves to make test-full.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to make test-full: an attack")
	}
	t.Parallel()
}

// program runs the program in dir with additional variables.
func program(t *testing.T, dir string, vars []string, args ...string) ran {
	t.Helper()
	return start(t, dir, nil, vars, args...)
}

// start runs the program behind a prefix of its command line.
func start(t *testing.T, dir string, prefix, vars []string, args ...string) ran {
	t.Helper()
	_, wait := launch(t, dir, prefix, vars, args...)
	return wait()
}

// launch starts the program behind a prefix of its command line. The exit code is -1 if a signal
// ends it.
func launch(
	t *testing.T, dir string, prefix, vars []string, args ...string,
) (cmd *exec.Cmd, wait func() ran) {
	t.Helper()
	argv := append(slices.Clone(prefix), built(t, "cmd/sandboxagent", runtime.GOARCH))
	argv = append(argv, args...)
	cmd = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		append([]string{"SANDBOXAGENT_STATE_DIR=" + t.TempDir()}, vars...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() ran {
		_ = cmd.Wait() // the state tells
		return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
}

// contains reports whether one of the outputs contains text.
func (r ran) contains(text string) bool {
	return strings.Contains(r.stdout, text) || strings.Contains(r.stderr, text)
}
