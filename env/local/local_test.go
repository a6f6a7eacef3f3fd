package local_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestMain runs more tests at the same time than it has processors: most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// full reports whether the tests may take minutes and prove every combination.
func full() bool { return !testing.Short() }

// needFull skips a test that is not for every run.
func needFull(tb testing.TB, why string) {
	tb.Helper()
	if !full() {
		tb.Skip("left to make test-full: " + why)
	}
}

// amount returns all if the tests may take minutes, and otherwise some.
func amount(all, some int) int {
	if full() {
		return all
	}
	return some
}

// newEnv returns an environment, by default in a temporary directory, which is closed at the end of
// the test.
func newEnv(tb testing.TB, cfg local.Config) *local.Environment {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	e, err := local.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return e
}

// needUnix skips tests that are driven by sh.
func needUnix(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("needs a POSIX shell")
	}
}

// sh returns a command that runs a script with args as $1 and so on.
func sh(script string, args ...string) env.Command {
	return env.Command{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
}

// output runs cmd, which must succeed, and returns its standard output.
func output(tb testing.TB, e env.Runner, cmd env.Command) string {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	r, err := e.Exec(tb.Context(), cmd)
	if err != nil || r.ExitCode != 0 {
		tb.Fatalf("%q: %+v, %v, stderr %q", cmd.Argv, r, err, stderr.String())
	}
	return stdout.String()
}

func write(tb testing.TB, name, content string, mode fs.FileMode) {
	tb.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		tb.Fatal(err)
	}
}

func TestNew(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "", 0o644)
	for _, tt := range []struct {
		name string
		cfg  local.Config
		want error
		text string
	}{
		{"missing", local.Config{Dir: filepath.Join(dir, "absent")}, fs.ErrNotExist, "absent"},
		{"file", local.Config{Dir: filepath.Join(dir, "file")}, env.ErrNotDir, "file"},
		{"NUL", local.Config{Dir: "a\x00b"}, fs.ErrInvalid, "a"},
		{"variable without =", local.Config{Dir: dir, Vars: []string{"NAME"}}, fs.ErrInvalid, "NAME"},
		{"variable without name", local.Config{Dir: dir, Vars: []string{"=x"}}, fs.ErrInvalid, ""},
		{"variable with NUL", local.Config{Dir: dir, Vars: []string{"A=secret\x00"}}, fs.ErrInvalid, "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && tt.name == "variable without name" {
				t.Skip("on Windows such variables hold the current directories of drives")
			}
			_, err := local.New(tt.cfg)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.want, tt.text)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v reveals a value", err)
			}
		})
	}
}

func TestNewNeedsSearchPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("needs an ordinary user of a Unix system: root may search every directory")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) //nolint:gosec // so that it can be removed
	if _, err := local.New(local.Config{Dir: dir}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

func TestNewResolvesDir(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("sub", 0o755); err != nil {
		t.Fatal(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for give, want := range map[string]string{"": cwd, "sub": filepath.Join(cwd, "sub"), ".": cwd} {
		e, err := local.New(local.Config{Dir: give})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Info().WorkDir; got != filepath.ToSlash(want) {
			t.Errorf("Dir %q: working directory %q, want %q", give, got, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestInfo(t *testing.T) {
	e := newEnv(t, local.Config{})
	info := e.Info()
	if info.Backend != "local" || info.OS != runtime.GOOS || info.Arch != runtime.GOARCH {
		t.Errorf("%+v", info)
	}
	if len(info.Shell) == 0 && info.NoShell == "" {
		t.Error("neither a shell nor a reason for having none")
	}
	for _, p := range []env.GuaranteeName{env.KillTree, env.CleanClose, env.AtomicWrite} {
		if got := info.Strength(p); got != env.BestEffort {
			t.Errorf("%s is %s", p, got)
		}
	}
	if got := info.Strength(env.Isolation); got != env.Absent {
		t.Errorf("isolation is %s", got)
	}
	for _, g := range info.Guarantees {
		if g.By == "" {
			t.Errorf("%s has no By", g.Name)
		}
	}
	if runtime.GOOS == "linux" && info.OSVersion == "" {
		if _, err := os.Stat("/etc/os-release"); err == nil {
			t.Error("no OSVersion")
		}
	}
	info.Guarantees[0].Strength = "changed"
	if e.Info().Guarantees[0].Strength == "changed" {
		t.Error("a caller can change the result of Info")
	}
}

func TestShellProbe(t *testing.T) {
	needUnix(t)
	bin := t.TempDir()
	e := newEnv(t, local.Config{Vars: []string{"PATH=" + bin}})
	if shell := e.Info().Shell; len(shell) == 0 || strings.HasPrefix(shell[0], bin) {
		t.Errorf("with an empty PATH the shell is %q, want the default", shell)
	}
	write(t, filepath.Join(bin, "bash"), "#!/bin/sh\n", 0o755)
	e = newEnv(t, local.Config{Vars: []string{"PATH=" + bin}})
	if got, want := strings.Join(e.Info().Shell, " "), bin+"/bash -c"; got != want {
		t.Errorf("shell %q, want %q", got, want)
	}
}

func TestCloseEndsCallsThatWaitForTheCaller(t *testing.T) {
	e := newEnv(t, local.Config{})
	blocked, unblock := io.Pipe()
	defer func() { _ = unblock.Close() }()
	errs := make(chan error, 2)
	reading := make(chan struct{}, 2)
	r := readerFunc(func(p []byte) (int, error) {
		reading <- struct{}{}
		return blocked.Read(p)
	})
	go func() {
		_, err := e.WriteFile(t.Context(), "f", r, env.WriteOptions{})
		errs <- err
	}()
	go func() { errs <- e.CopyIn(t.Context(), "d", r) }()
	<-reading
	<-reading
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%v, want fs.ErrClosed", err)
		}
	}
	noTemps(t, e.Info().WorkDir)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
