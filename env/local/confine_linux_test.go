package local_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestConfinedThreads checks that no thread of this process stays confined, and that Close removes
// the directories for temporary files.
func TestConfinedThreads(t *testing.T) {
	temp := t.TempDir()
	e := newEnv(t, local.Config{Vars: []string{"TMPDIR=" + temp}})
	if e.Info().Strength(env.ConfinedCommands) == env.Absent {
		t.Skip("commands cannot be confined here")
	}
	for range 20 {
		for _, script := range []string{
			"exit 0", `mkdir -p "$TMPDIR/a/b" && echo x >"$TMPDIR/a/b/c" && chmod 0 "$TMPDIR/a" || :`,
		} {
			cmd := env.Command{Argv: []string{"sh", "-c", script}, Confine: &env.Confinement{}}
			if _, err := e.Exec(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
		runtime.Gosched()
	}
	confined := func() (threads []string) {
		tasks, _ := filepath.Glob("/proc/self/task/*/status")
		for _, name := range tasks {
			status, _ := os.ReadFile(name)
			if strings.Contains(string(status), "NoNewPrivs:\t1") {
				threads = append(threads, name)
			}
		}
		return threads
	}
	eventually(t, "the end of confined threads", func() bool { return len(confined()) == 0 })
	if left, _ := os.ReadDir(temp); len(left) != 1 {
		t.Errorf("%d directories for temporary files, want 1", len(left))
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}

// TestConfinedRoot checks what confined commands of root cannot do.
func TestConfinedRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root")
	}
	e := newEnv(t, local.Config{})
	if e.Info().Strength(env.ConfinedCommands) == env.Absent {
		t.Skip("commands cannot be confined here")
	}
	const allowed = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER |
		1<<unix.CAP_FSETID
	var out strings.Builder
	_, err := e.Exec(t.Context(), env.Command{
		Argv: []string{
			"sh", "-c", `mknod "$TMPDIR/device" c 1 3 && echo made
			grep CapEff /proc/self/status; cat /proc/$PPID/environ >/dev/null && echo read`,
		},
		Stdout: &out, Confine: &env.Confinement{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if field != "CapEff:" {
			t.Errorf("a command printed %q", line)
			continue
		}
		bits := []rune(value)
		if slices.ContainsFunc(bits[:len(bits)-2], func(r rune) bool { return r != '0' }) {
			t.Errorf("a command has the capabilities %s, want at most %x", value, allowed)
		}
	}
}
