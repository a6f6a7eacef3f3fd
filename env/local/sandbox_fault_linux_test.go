package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox/seccomp"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

const (
	// kernelVar names the features that TestSandboxProcess disables, and sandboxVar its mechanism.
	kernelVar  = "SANDBOXAGENT_TEST_KERNEL"
	sandboxVar = "SANDBOXAGENT_TEST_SANDBOX"
	requireVar = "SANDBOXAGENT_TEST_SANDBOX_REQUIRED"
)

// lesser are kernels without features that sandboxes need, as rules for system calls.
var lesser = map[string][]seccomp.Rule{
	"no user namespaces": {
		{Call: "unshare", When: []seccomp.Condition{seccomp.AnyBit(0, unix.CLONE_NEWUSER)}},
		{Call: "clone", When: []seccomp.Condition{seccomp.AnyBit(0, unix.CLONE_NEWUSER)}},
		{Call: "clone3", Errno: unix.ENOSYS},
	},
	"no Landlock":       {{Call: "landlock_create_ruleset", Errno: unix.ENOSYS}},
	"Landlock disabled": {{Call: "landlock_create_ruleset", Errno: unix.EOPNOTSUPP}},
	"mounts forbidden":  {{Call: "mount"}},
}

// TestSandboxProcess is the client of other tests. It prints its Info, and waits.
func TestSandboxProcess(t *testing.T) {
	kernel, mark := os.Getenv(kernelVar), os.Getenv(clientVar)
	if kernel == "" && mark == "" {
		t.Skip("other tests start this in a process")
	}
	var rules []seccomp.Rule
	for name := range strings.SplitSeq(kernel, ",") {
		rules = append(rules, lesser[name]...)
	}
	if len(rules) > 0 {
		program, err := seccomp.Program(rules)
		if err == nil {
			err = errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), seccomp.Install(program))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := env.Sandbox{Require: os.Getenv(requireVar) != ""}
	mechanisms := sandbox.Mechanisms()
	if by := os.Getenv(sandboxVar); by != "" {
		mechanisms = []sandbox.Mechanism{sandbox.Mechanism(by)}
	}
	dir := t.TempDir()
	if mark != "" { // a sandbox tidies a repository
		git := exec.CommandContext(t.Context(), "git", "init", "-q", "--template=", dir)
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	e, err := local.SandboxedBy(t.Context(), local.Config{Dir: dir}, thisProgram(t), s, mechanisms...)
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	for _, r := range runaways {
		if mark != "" {
			go func() { _, _ = e.Exec(context.Background(), withMark(sh(r.script), mark)) }()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(e.Info()); err != nil {
		t.Fatal(err)
	}
	if mark == "" {
		_ = e.Close()
		os.Exit(0)
	}
	select {}
}

// TestKernelsWithoutFeatures starts sandboxes on kernels without some features.
func TestKernelsWithoutFeatures(t *testing.T) {
	if err := errors.Join(sandbox.Available(sandbox.Bubblewrap),
		sandbox.Available(sandbox.Landlock)); err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		kernel string
		by     sandbox.Mechanism // the remaining one, or ""
		why    string            // a part of the reason why the others are not available
	}{
		{"no user namespaces", sandbox.Landlock, ""},
		{"mounts forbidden", sandbox.Landlock, ""},
		{"no Landlock", sandbox.Bubblewrap, ""},
		{"no user namespaces,no Landlock", "", "the kernel has none"},
		{"mounts forbidden,Landlock disabled", "", "lsm="},
	} {
		for _, require := range []string{"", "yes"} {
			t.Run(tt.kernel+"/"+require, func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), thisProgram(t).Binary, "-test.run=^TestSandboxProcess$")
				cmd.Env = append(os.Environ(), kernelVar+"="+tt.kernel, requireVar+"="+require,
					"TMPDIR="+t.TempDir())
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				var info env.Info
				err = json.Unmarshal(out, &info)
				switch {
				case tt.by == "" && require != "":
					if err == nil || !strings.Contains(string(out), tt.why) ||
						!strings.Contains(string(out), "bubblewrap: ") {
						t.Errorf("a required sandbox gives %s", out)
					}
				case err != nil:
					t.Errorf("%v in %s", err, out)
				case tt.by == "":
					if info.Strength(env.Isolation) != env.Absent ||
						info.Strength(env.ConfinedWrites) != env.Absent || !strings.Contains(string(out), tt.why) {
						t.Errorf("without a sandbox it prints %s", out)
					}
				case info.Strength(env.ConfinedWrites) != env.Enforced ||
					!strings.Contains(string(out), string(tt.by)):
					t.Errorf("it prints %s", out)
				}
			})
		}
	}
}

// TestSandboxedClientDies kills the client of a sandbox, bubblewrap or the helper.
func TestSandboxedClientDies(t *testing.T) {
	needProc(t)
	for _, tt := range []struct {
		by     sandbox.Mechanism
		victim string
		depth  int // of the victim below the client
	}{
		{sandbox.Bubblewrap, "the client", 0},
		{sandbox.Bubblewrap, "bubblewrap", 1},
		{sandbox.Bubblewrap, "the helper", 2},
		{sandbox.Landlock, "the client", 0},
	} {
		t.Run(string(tt.by)+"/"+tt.victim, func(t *testing.T) {
			t.Parallel()
			if err := sandbox.Available(tt.by); err != nil {
				t.Skip(err)
			}
			mark, temp := newMark(t), t.TempDir()
			cmd := exec.CommandContext(t.Context(), thisProgram(t).Binary, "-test.run=^TestSandboxProcess$")
			cmd.Env = append(os.Environ(), clientVar+"="+mark, sandboxVar+"="+string(tt.by), "TMPDIR="+temp)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.Contains(line, string(tt.by)) {
				t.Fatalf("it prints %q, %v", line, err)
			}
			want := 0
			for _, r := range runaways {
				want += r.count
			}
			eventually(t, "the processes", func() bool { return len(marked(t, mark)) >= want })
			if tt.by == sandbox.Bubblewrap && len(remains(t, temp)) == 0 {
				t.Error("the directory of the hooks was not replaced")
			}
			pid := cmd.Process.Pid
			for range tt.depth {
				pid = childOf(t, pid)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of all processes", func() bool { return len(marked(t, mark)) == 0 })
			if tt.depth == 0 {
				eventually(t, "nothing to be left", func() bool { return len(remains(t, temp)) == 0 })
			}
		})
	}
}

// remains returns the files of a sandbox in a temporary directory, and in the repository in it.
func remains(t *testing.T, temp string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"sandboxagent-tmp-*", "Test*/001/.git/hooks"} {
		found, err := filepath.Glob(filepath.Join(temp, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// childOf returns the only child of a process other than the one that tidies up.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	var found []int
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			t.Skip("the kernel does not list children")
		}
		for _, f := range strings.Fields(string(data)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err != nil {
				t.Fatal(err)
			}
			if words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)); err == nil &&
				!strings.HasSuffix(string(words), "\x00tidy\x00") {
				found = append(found, child)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("process %d has the children %v", pid, found)
	}
	return found[0]
}

// TestInterruptedStarts ends starts of bubblewrap at many moments, by the end of their context and
// by killing the client. Nothing stays, also not what bubblewrap has started just before.
func TestInterruptedStarts(t *testing.T) {
	t.Parallel()
	needProc(t)
	if err := sandbox.Available(sandbox.Bubblewrap); err != nil {
		t.Skip(err)
	}
	attempts := 300
	if testing.Short() || race.Enabled() { // with the race detector each start takes a second
		attempts = 30
	}
	t.Run("context", func(t *testing.T) {
		dir := t.TempDir()
		for i := range attempts {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i%60)*200*time.Microsecond, cancel)
			e, err := local.SandboxedBy(ctx, local.Config{Dir: dir}, thisProgram(t),
				env.Sandbox{Require: true, GitReadOnly: true}, sandbox.Bubblewrap)
			if err == nil {
				err = e.Close()
			} else if errors.Is(err, context.Canceled) {
				err = nil
			}
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the end of all processes", func() bool { return len(marked(t, dir)) == 0 })
	})
	t.Run("client", func(t *testing.T) {
		temp := t.TempDir()
		for i := range attempts / 3 {
			cmd := exec.CommandContext(t.Context(), thisProgram(t).Binary, "-test.run=^TestSandboxProcess$")
			cmd.Env = append(os.Environ(), clientVar+"="+newMark(t),
				sandboxVar+"="+string(sandbox.Bubblewrap), "TMPDIR="+temp)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			began := func(text string) bool { return strings.Contains(text, "--bind "+temp) }
			eventually(t, "bubblewrap", func() bool { return slices.ContainsFunc(commandLines(t), began) })
			time.Sleep(time.Duration(i%40) * 50 * time.Microsecond) // at another moment each time
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		eventually(t, "the end of all processes", func() bool {
			return !slices.ContainsFunc(commandLines(t), func(text string) bool {
				return strings.Contains(text, temp)
			})
		})
	})
}

// commandLines returns the command lines of all processes.
func commandLines(t *testing.T) (lines []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, _ := os.ReadFile(name) // it may have ended
		lines = append(lines, strings.ReplaceAll(string(data), "\x00", " "))
	}
	return lines
}
