//go:build unix

package local_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// clientVar holds the mark of the commands that TestClientProcess starts.
const clientVar = "SANDBOXAGENT_TEST_MARK"

// runaways are commands that start count processes with the mark $M, which escape their parents in
// various ways.
var runaways = []struct {
	script string
	count  int
}{
	{sleeper, 1},
	{`setsid ` + sleeper + `& wait`, 1},
	{`nohup ` + sleeper + `>/dev/null 2>&1 & wait`, 1},
	{`setsid sh -c 'setsid sh -c "while :; do sleep 1000; done" "$M" &'; sleep 1000`, 1},
	{
		`setsid env -i PATH="$PATH" sh -c '(sh -c "while :; do sleep 1000; done" "$0" &) ; exit' "$M"; :`,
		1,
	},
	{`trap '' TERM HUP INT; i=0; while [ $i -lt 20 ]; do (setsid nohup ` + sleeper +
		`>/dev/null 2>&1 &); i=$((i+1)); done; wait`, 20},
}

// TestClientProcess is the client that other tests kill.
func TestClientProcess(t *testing.T) {
	mark := os.Getenv(clientVar)
	if mark == "" {
		t.Skip("other tests start this in a process")
	}
	e, err := local.Supervised(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runaways {
		go func() { _, _ = e.Exec(context.Background(), withMark(sh(r.script), mark)) }()
	}
	fmt.Println("started")
	switch line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line {
	case "exit\n":
		os.Exit(3)
	case "panic\n":
		go panic("enough")
	}
	select {}
}

// TestF02ClientDies ends a client in the ways that leave it no time to clean up.
func TestF02ClientDies(t *testing.T) {
	needProc(t)
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	for _, tt := range []struct {
		name string
		end  func(p *os.Process, send func(string))
	}{
		{"SIGKILL", func(p *os.Process, _ func(string)) { _ = p.Kill() }},
		{"SIGTERM", func(p *os.Process, _ func(string)) { _ = p.Signal(unix.SIGTERM) }},
		{"exit", func(_ *os.Process, send func(string)) { send("exit\n") }},
		{"panic", func(_ *os.Process, send func(string)) { send("panic\n") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mark := newMark(t)
			cmd := exec.CommandContext(t.Context(), thisProgram(t).Binary, "-test.run=^TestClientProcess$")
			cmd.Env = append(os.Environ(), clientVar+"="+mark, "TMPDIR="+t.TempDir())
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, r := range runaways {
				want += r.count
			}
			eventually(t, "the processes", func() bool { return len(marked(t, mark)) >= want })
			tt.end(cmd.Process, func(line string) { _, _ = in.Write([]byte(line)) })
			_ = cmd.Wait() // it fails
			eventually(t, "the end of all processes", func() bool { return len(marked(t, mark)) == 0 })
		})
	}
}

// helperOf returns the number of the helper of an environment.
func helperOf(t *testing.T, e env.Environment) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(output(t, e, sh("echo $PPID"))))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestSupervisedKillKeepsEnvironment(t *testing.T) {
	needProc(t)
	e, mark := supervise(t, local.Config{}), newMark(t)
	done := make(chan env.Result, 1)
	go func() {
		r, _ := e.Exec(t.Context(), withMark(sh(`trap '' TERM; setsid `+sleeper+`& wait`), mark))
		done <- r
	}()
	eventually(t, "the process", func() bool { return len(marked(t, mark)) == 1 })
	if err := e.Kill(); err != nil {
		t.Error(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if r := <-done; r.Signal != "SIGKILL" {
		t.Errorf("the command ended with %+v", r)
	}
	output(t, e, sh("true"))
}

// TestSupervisedCycles starts and ends many helpers, which leave neither processes nor open files.
func TestSupervisedCycles(t *testing.T) {
	needProc(t)
	cycles := amount(1000, 10)
	if race.Enabled() { // with the race detector each end takes a second
		cycles = 10
	}
	dir, h := t.TempDir(), thisProgram(t)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	cycle := func() {
		e, err := local.Supervised(t.Context(), local.Config{Dir: dir}, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := open()
	for range cycles {
		cycle()
	}
	if after := open(); after > before {
		t.Errorf("%d open files, %d before", after, before)
	}
	if left := helpers(t); len(left) > 0 {
		t.Errorf("children left: %v", left)
	}
}

// helpers returns the helpers that are children of this process, dead or alive.
func helpers(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, ok := bytes.Cut(stat, []byte(") "))
		fields := strings.Fields(string(rest))
		if ok && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && bytes.Contains(stat,
			[]byte("(sandboxd)")) {
			found = append(found, string(stat))
		}
	}
	return found
}

func TestSupervisedStartErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "", 0o600)
	for _, tt := range []struct {
		name string
		cfg  local.Config
	}{
		{"missing directory", local.Config{Dir: filepath.Join(dir, "missing")}},
		{"no directory", local.Config{Dir: filepath.Join(dir, "file")}},
		{"NUL byte", local.Config{Dir: "a\x00b"}},
		{"malformed variable", local.Config{Dir: dir, Vars: []string{"novalue"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, want := local.New(tt.cfg)
			_, got := local.Supervised(t.Context(), tt.cfg, thisProgram(t))
			if want == nil || got == nil || got.Error() != want.Error() {
				t.Errorf("%v, want as from New: %v", got, want)
			}
			for _, is := range []error{fs.ErrNotExist, fs.ErrInvalid, env.ErrNotDir} {
				if errors.Is(got, is) != errors.Is(want, is) {
					t.Errorf("%v is %v: %t", got, is, errors.Is(got, is))
				}
			}
		})
	}
}

func TestUnusableHelpers(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	write(t, plain, "no program", 0o600)
	script := func(name, text string) string {
		name = filepath.Join(dir, name)
		write(t, name, "#!/bin/sh\n"+text+"\n", 0o700)
		return name
	}
	for _, tt := range []struct {
		name, path, text string
		is               error
	}{
		{"missing", filepath.Join(dir, "missing"), "missing", fs.ErrNotExist},
		{"not executable", plain, "plain", fs.ErrPermission},
		{"ends at once", script("ends", "exit 0"), "ends", nil},
		{
			"ends with an error", script("fails", "echo it is too hot >&2; exit 7"),
			"exit status 7: it is too hot", nil,
		},
		{"echo", script("echo", "exec cat"), "echo", env.ErrProtocol},
		{"prints another line", script("else", "echo Welcome; exec sleep 1000"), "else", env.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := local.Supervised(t.Context(), local.Config{Dir: dir}, remote.Helper{Binary: tt.path})
			var unusable *local.HelperError
			if !errors.As(err, &unusable) || !strings.Contains(err.Error(), tt.text) ||
				tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("prints nothing", func(t *testing.T) {
		mark := newMark(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		go func() {
			eventually(t, "the helper", func() bool { return len(marked(t, mark)) == 1 })
			cancel(enough)
		}()
		_, err := local.Supervised(ctx, local.Config{Dir: dir},
			remote.Helper{Binary: script("silent", "while :; do read line; done"), Args: []string{mark}})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("the helper lives: %v", left)
		}
	})
}

// TestEmbeddedHelper uses the helper that is built in, or gets an error that names the remedy.
// Another file under its name in the cache is replaced, and not run before.
func TestEmbeddedHelper(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	use := func() error {
		e, err := local.Supervised(t.Context(), local.Config{Dir: t.TempDir()},
			remote.Helper{NoBuild: true})
		if err != nil {
			return err
		}
		output(t, e, sh("true"))
		return e.Close()
	}
	err := use()
	var missing *local.HelperError
	if errors.As(err, &missing) {
		if !strings.Contains(err.Error(), "sandboxd.Main()") {
			t.Errorf("%v does not name the remedy", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	stored, err := filepath.Glob(filepath.Join(cache, "sandboxagent", "sandboxd-*"))
	if err != nil || len(stored) != 1 {
		t.Fatalf("the cache has %v, %v", stored, err)
	}
	whole, err := os.ReadFile(stored[0])
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	for name, content := range map[string]string{
		"empty":           "",
		"cut off":         string(whole[:len(whole)/2]),
		"another program": "#!/bin/sh\ntouch " + ran + "\n",
		"changed":         string(whole[:len(whole)-1]) + "x",
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(stored[0], []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := use(); err != nil {
				t.Error(err)
			}
			if now, err := os.ReadFile(stored[0]); err != nil || !bytes.Equal(now, whole) {
				t.Errorf("it was not replaced: %d bytes, %v", len(now), err)
			}
			if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the replaced file was run (%v)", err)
			}
		})
	}
}

// TestSupervisedVariables compares the variables of commands with and without a helper.
func TestSupervisedVariables(t *testing.T) {
	t.Setenv("PLAIN_VARIABLE", "as it is")
	t.Setenv("ODD_VARIABLE", "\xff\n\"")
	t.Setenv("CANARY_API_KEY", "secret")
	dir := t.TempDir()
	for _, mode := range []vars.Mode{vars.Filtered, vars.All, vars.Core, vars.None} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := local.Config{
				Dir: dir, Inherit: &vars.Filter{Mode: mode},
				Vars: []string{"PATH=/usr/bin:/bin", "OWN=\xfe"},
			}
			see := func(e env.Environment) []string {
				var vars []string
				for v := range strings.SplitSeq(output(t, e, env.Command{Argv: []string{"env", "-0"}}),
					"\x00") {
					if !strings.HasPrefix(v, "SANDBOXAGENT_EXEC_") {
						vars = append(vars, v)
					}
				}
				return vars
			}
			want, got := see(newEnv(t, cfg)), see(supervise(t, cfg))
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("supervised commands see\n%q\nothers see\n%q", got, want)
			}
		})
	}
}

func TestSupervisedInfo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	want, got := newEnv(t, local.Config{Dir: "."}).Info(), supervise(t, local.Config{Dir: "."}).Info()
	if got.WorkDir != want.WorkDir || got.Backend != want.Backend || got.OSVersion != want.OSVersion {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := got.Strength(env.CleanCrash); s != env.BestEffort {
		t.Errorf("clean crash: %s; a command can kill the helper", s)
	}
}

// TestHelperIsIsolated checks that the helper has neither the terminal nor the directory nor the
// variables of its client.
func TestHelperIsIsolated(t *testing.T) {
	needProc(t)
	if os.Getuid() != 0 {
		t.Skip("only root sees the variables and the directory of a helper")
	}
	t.Setenv("CANARY_API_KEY", "secret")
	e := supervise(t, local.Config{})
	pid := helperOf(t, e)
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, %v", sid, err)
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	if vars, err := os.ReadFile(proc + "environ"); err != nil || len(vars) > 0 {
		t.Errorf("its variables are %q, %v", vars, err)
	}
	if dir, err := os.Readlink(proc + "cwd"); err != nil || dir != "/" {
		t.Errorf("its directory is %s, %v", dir, err)
	}
	if args, err := os.ReadFile(proc + "cmdline"); err != nil || bytes.Contains(args,
		[]byte(e.Info().WorkDir)) {
		t.Errorf("its arguments are %q, %v", args, err)
	}
}

// BenchmarkSupervised starts and ends a helper.
func BenchmarkSupervised(b *testing.B) {
	dir, h := b.TempDir(), thisProgram(b)
	for b.Loop() {
		e, err := local.Supervised(b.Context(), local.Config{Dir: dir}, h)
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
