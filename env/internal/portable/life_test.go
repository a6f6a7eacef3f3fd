package portable_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// each runs a test with each shell.
func each(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// output runs a script and returns what it prints.
func output(t *testing.T, e env.Environment, script string, vars ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", script}, Vars: vars, Stdout: &out, Stderr: &errs})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%q: %+v, error %v, stderr %q", script, res, err, errs.String())
	}
	return out.String()
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestLostShell kills the shell below a command: nobody can know whether the command ran, and the next one does.
func TestLostShell(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		// The parent of the command is the shell.
		var out bytes.Buffer
		res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "printf begun; kill -9 $PPID; sleep 30"}, Stdout: &out})
		if !errors.Is(err, env.ErrUnknownOutcome) || res.ExitCode == 0 {
			t.Errorf("%+v, error %v; want ErrUnknownOutcome", res, err)
		}
		if got := output(t, e, "echo next"); got != "next\n" {
			t.Errorf("the next command prints %q", got)
		}
	})
}

// TestGone asks the backend why a shell was lost.
func TestGone(t *testing.T) {
	k := kinds()[0]
	gone := errors.New("the container was removed")
	e := k.open(t, func(cfg *portable.Config) {
		cfg.Gone = func(context.Context, error) error { return errors.Join(env.ErrGone, gone) }
	})
	_, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "kill -9 $PPID; sleep 30"}})
	for _, want := range []error{env.ErrUnknownOutcome, env.ErrGone, gone} {
		if !errors.Is(err, want) {
			t.Errorf("error %v, want one with %q inside", err, want)
		}
	}
}

// TestGroupSignals has a command send signals to its process group, which must not end what watches it.
func TestGroupSignals(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		for _, signal := range []string{"TERM", "INT", "HUP"} {
			var out bytes.Buffer
			res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "trap 'echo caught; exit 7' " + signal + "; kill -" + signal + " 0; sleep 30"}, Stdout: &out})
			if err != nil || res.ExitCode != 7 || out.String() != "caught\n" {
				t.Errorf("SIG%s to the group: %+v, error %v, output %q", signal, res, err, out.String())
			}
		}
	})
}

// TestPipesRemoved removes the folder of the pipes between commands.
func TestPipesRemoved(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		for range 3 {
			if got := output(t, e, `rm -rf "$TMPDIR"/.sandboxagent-*; echo removed`); got != "removed\n" {
				t.Errorf("printed %q", got)
			}
		}
		if _, err := e.WriteFile(t.Context(), "file", strings.NewReader("x"), env.WriteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestVars passes variables whose names a shell cannot hold or uses itself.
func TestVars(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		vars := []string{"a.b=1", "IFS=:", "UID=x", "OPTIND=y", "PS4=z", "sa_m=m", "LC_ALL=xx_YY", "A=a b", "N=line\n"}
		e := k.open(t, func(cfg *portable.Config) { cfg.Vars = []string{"BASE=base", "A=base"} })
		var out, errs bytes.Buffer
		res, err := e.Exec(t.Context(), env.Command{Argv: []string{"env", "-0"}, Vars: vars, Stdout: &out, Stderr: &errs})
		if err != nil || res.ExitCode != 0 || errs.Len() > 0 {
			t.Fatalf("%+v, error %v, stderr %q", res, err, errs.String())
		}
		got := make(map[string]string)
		for _, v := range strings.Split(out.String(), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			got[name] = value
			if strings.HasPrefix(name, "SANDBOXAGENT_SH_OWN") {
				t.Errorf("a command sees %q", v)
			}
		}
		want := map[string]string{"BASE": "base"}
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			want[name] = value
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
	})
}

// TestInterruptDefault checks that commands have the dispositions of signals that programs expect.
func TestInterruptDefault(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var out bytes.Buffer
		if _, err := k.open(t, nil).Exec(t.Context(), env.Command{Argv: []string{"cat", "/proc/self/status"}, Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		_, ignored, ok := strings.Cut(out.String(), "\nSigIgn:\t")
		ignored, _, _ = strings.Cut(ignored, "\n")
		mask, err := strconv.ParseUint(ignored, 16, 64)
		// What started this test may ignore signals above 31, of which C libraries make use.
		if !ok || err != nil || mask&(1<<31-1) != 0 {
			t.Errorf("a command ignores the signals %q: %v", ignored, err)
		}
	})
}

// TestDescriptors checks that a command gets three open files and no more.
func TestDescriptors(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		for what, stdin := range map[string]io.Reader{"no": nil, "known": strings.NewReader("x"), "unknown": io.MultiReader(strings.NewReader("x"))} {
			var out bytes.Buffer
			if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "for f in 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$f ] || echo $f; done; echo end"}, Stdin: stdin, Stdout: &out, Stderr: &out}); err != nil {
				t.Fatal(err)
			}
			if more := strings.Fields(out.String()); len(more) != 1 {
				t.Errorf("with %s standard input a command has the open files %v", what, more)
			}
		}
	})
}

// TestFullDisk writes more than there is room for: what does not fit must not be taken for commands. The disk is full in
// the middle of a part.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	each(t, func(t *testing.T, k kind) {
		dir, canary := t.TempDir(), filepath.Join(t.TempDir(), "canary")
		if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", dir).CombinedOutput(); err != nil {
			t.Skipf("no small file system: %v %s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() }) //nolint:noctx // The test is over.
		e := k.open(t, func(cfg *portable.Config) { cfg.Dir = dir })
		if _, err := e.WriteFile(t.Context(), "kept", strings.NewReader("old"), env.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		data := strings.Repeat(": >"+canary+"\n", 3<<20/(len(canary)+4))
		_, err := e.WriteFile(t.Context(), "kept", strings.NewReader(data), env.WriteOptions{})
		if err == nil || k.name != "busybox" && !errors.Is(err, env.ErrNoSpace) { // whose head does not say why
			t.Errorf("writing %d bytes: %v, want ErrNoSpace", len(data), err)
		}
		if got, err := env.ReadFile(t.Context(), e, "kept", 0); err != nil || string(got) != "old" {
			t.Errorf("the file holds %.40q, error %v", got, err)
		}
		if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
			t.Errorf("the folder holds %v, error %v", entries, err)
		}
		if _, err := os.Stat(canary); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the content was run: %v", err)
		}
	})
}

// TestCloseLeavesNothing looks for what an environment has left, from outside.
func TestCloseLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { output(t, e, "sleep 4711 & echo") })
		}
		wg.Wait()
		id := output(t, e, "env | sed -n 's/^SANDBOXAGENT_SH_\\([0-9a-f]*\\)_.*/\\1/p'")
		temp := strings.TrimSpace(output(t, e, `echo "$TMPDIR"`))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
			t.Errorf("the temporary folder holds %v, error %v", entries, err)
		}
		eventually(t, "all processes to end", func() bool {
			files, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, name := range files {
				if data, err := os.ReadFile(name); err == nil && len(strings.TrimSpace(id)) > 8 && bytes.Contains(data, []byte(strings.TrimSpace(id))) {
					return false
				}
			}
			return true
		})
	})
}

// TestKill kills what runs and keeps the environment.
func TestKill(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		result := make(chan env.Result, 1)
		started := make(chan struct{})
		var once sync.Once
		go func() {
			res, _ := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", "trap '' TERM; echo; sleep 4712"}, Stdout: writer(func(p []byte) (int, error) {
				once.Do(func() { close(started) })
				return len(p), nil
			})})
			result <- res
		}()
		<-started
		if err := e.Kill(); err != nil {
			t.Error(err)
		}
		if res := <-result; res.ExitCode != 137 || res.Signal != "SIGKILL" {
			t.Errorf("a command that was killed: %+v", res)
		}
		if got := output(t, e, "echo on"); got != "on\n" {
			t.Errorf("the next command prints %q", got)
		}
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestRecordInterrupted has what carries stdout end while the shell cannot get rid of the record that the command has
// ended, because nobody takes what came before on stderr: the record must not be lost with the write that this interrupts.
func TestRecordInterrupted(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var once sync.Once
		got := 0
		cmd := env.Command{
			Argv:   []string{"sh", "-c", "sleep 0.3 2>/dev/null & exec head -c 134000 /dev/zero >&2"},
			Stdout: io.Discard,
			Stderr: writer(func(p []byte) (int, error) {
				once.Do(func() { time.Sleep(time.Second) }) // for longer than stdout is held
				got += len(p)
				return len(p), nil
			}),
			Timeout: 20 * time.Second,
		}
		res, err := k.open(t, nil).Exec(t.Context(), cmd)
		if err != nil || res.ExitCode != 0 || res.TimedOut || got != 134000 {
			t.Errorf("%+v, error %v, %d bytes", res, err, got)
		}
	})
}

// TestNames uses names that are easily damaged on the way.
func TestNames(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, nil)
		names := []string{"a\nb", "\n", "-rf", " ", "*", "$(id)", "\xff\xfe", "'", `"`, `\`, "a\n0 1 2 3 x"}
		for _, name := range names {
			if _, err := e.WriteFile(t.Context(), "d/"+name, strings.NewReader(name), env.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got, err := env.ReadFile(t.Context(), e, "d/"+name, 0); err != nil || string(got) != name {
				t.Errorf("%q holds %q, error %v", name, got, err)
			}
		}
		entries, err := e.ReadDir(t.Context(), "d")
		if err != nil {
			t.Fatal(err)
		}
		got, want := make(map[string]bool), make(map[string]bool)
		for _, entry := range entries {
			got[entry.Name()] = true
		}
		for _, name := range names {
			want[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		r, err := e.CopyOut(t.Context(), "d")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.CopyIn(t.Context(), "copy", r), r.Close()); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if got, err := env.ReadFile(t.Context(), e, "copy/"+name, 0); err != nil || string(got) != name {
				t.Errorf("the copy of %q holds %q, error %v", name, got, err)
			}
			if err := e.Remove(t.Context(), "d/"+name, env.RemoveOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}
