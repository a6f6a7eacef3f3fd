//go:build unix

package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// screen is the output of a terminal.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// onTTY returns cmd on a terminal, with a limit of time so that a terminal which does not end fails
// the test.
func onTTY(cmd env.Command) env.Command {
	cmd.TTY = new(env.TTY)
	cmd.Timeout = 3 * time.Minute
	return cmd
}

// needTTY skips tests where the system has no terminals.
func needTTY(tb testing.TB, e *local.Environment) {
	tb.Helper()
	if _, err := e.Exec(tb.Context(), onTTY(sh("exit 0"))); errors.Is(err, errors.ErrUnsupported) {
		tb.Skip(err)
	}
}

// ended checks that a command ended by itself, with code.
func ended(tb testing.TB, r env.Result, err error, code int) {
	tb.Helper()
	if err != nil || r.ExitCode != code || r.TimedOut || r.Signal != "" {
		tb.Errorf("%+v, %v; want exit code %d", r, err, code)
	}
}

// TestTTYLineEditors checks that programs which read key by key end with their input, though they
// start after it has ended.
func TestTTYLineEditors(t *testing.T) {
	t.Parallel()
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	for _, tt := range []struct {
		name  string
		argv  []string
		input string
		want  string
	}{
		{"sh", []string{"sh"}, "", ""},
		{"bash", []string{"bash", "--norc", "-i"}, "", "exit"},
		{"bash with a command", []string{"bash", "--norc", "-i"}, "echo sum $((40+2))\n", "sum 42"},
		{
			"a line editor in bash",
			[]string{"bash", "--norc", "-c", `read -e -r line || echo no line`},
			"", "no line",
		},
		{"python", []string{"python3", "-i", "-c", "import readline; print(40 + 2)"}, "", "42"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.argv[0]); err != nil {
				t.Skip(tt.argv[0] + " is not installed")
			}
			var out screen
			vars := []string{"TERM=dumb", "HOME=" + t.TempDir(), "PS1=> "}
			cmd := onTTY(env.Command{Argv: tt.argv, Stdout: &out, Vars: vars})
			if tt.input != "" {
				cmd.Stdin = strings.NewReader(tt.input)
			}
			r, err := e.Exec(t.Context(), cmd)
			if err != nil || r.TimedOut || !strings.Contains(out.String(), tt.want) {
				t.Errorf("%+v, %v, screen %q", r, err, out.String())
			}
		})
	}
}

// TestTTYReopened checks that a terminal lives as long as its command, which here closes it and
// opens it again.
func TestTTYReopened(t *testing.T) {
	t.Parallel()
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	var out screen
	cmd := onTTY(sh(`exec </dev/null >/dev/null 2>&1; sleep 0.3; echo still here >/dev/tty; exit 3`))
	cmd.Stdout = &out
	r, err := e.Exec(t.Context(), cmd)
	ended(t, r, err, 3)
	if out.String() != "still here\r\n" || r.Detached {
		t.Errorf("screen %q, %+v", out.String(), r)
	}
}

// TestTTYSlowWriter checks that all output from before the exit is delivered, though a writer
// blocks for longer than Exec waits for the end and a descendant keeps the terminal open.
func TestTTYSlowWriter(t *testing.T) {
	needFull(t, "a writer blocks for longer than env.DrainTime")
	t.Parallel()
	needProc(t)
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	const size = 6000
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			mark := newMark(t)
			script := fmt.Sprintf("stty raw; printf '%%0%dd' 0", size)
			if held {
				script = "trap '' HUP; " + sleeper + "& " + script
			}
			got, pause := 0, env.DrainTime*5/4
			cmd := onTTY(withMark(sh(script), mark))
			cmd.Stdout = writerFunc(func(p []byte) (int, error) {
				time.Sleep(pause)
				pause = 0
				got += len(p)
				return len(p), nil
			})
			r, err := e.Exec(t.Context(), cmd)
			ended(t, r, err, 0)
			if got != size || r.Detached != held {
				t.Errorf("%d bytes of %d arrived, %+v", got, size, r)
			}
			if held && len(marked(t, mark)) == 0 {
				t.Error("the descendant, which ignores SIGHUP, died")
			}
		})
	}
}

// TestTTYHeldKeepsRunning checks that a descendant which floods the terminal after Exec has
// returned does not block, and that its output is discarded.
func TestTTYHeldKeepsRunning(t *testing.T) {
	t.Parallel()
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	var out screen
	cmd := onTTY(sh(`trap '' HUP; (until test -e go; do sleep 0.05; done; i=0; ` +
		`while [ $i -lt 20000 ]; do echo flood; i=$((i+1)); done; : >written) & echo first; exit 3`))
	cmd.Stdout = &out
	r, err := e.Exec(t.Context(), cmd)
	ended(t, r, err, 3)
	if !r.Detached {
		t.Errorf("%+v, want Detached", r)
	}
	write(t, e.Info().WorkDir+"/go", "", 0o644)
	eventually(t, "the end of the flood", func() bool {
		_, err := os.Stat(e.Info().WorkDir + "/written")
		return err == nil
	})
	if out.String() != "first\r\n" {
		t.Errorf("screen %q", out.String())
	}
}

// TestTTYPaste checks that a command and Exec end though nobody reads the input.
func TestTTYPaste(t *testing.T) {
	t.Parallel()
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	for name, input := range map[string]string{
		"lines":    strings.Repeat("line\n", 1<<20),
		"one line": strings.Repeat("x", 4<<20),
		"keys":     strings.Repeat("\x16\x7f\x15", 1<<20),
	} {
		for _, mode := range []string{"", "stty raw; ", "stty -echo; "} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				cmd := onTTY(sh(mode + "sleep 0.3; exit 3"))
				cmd.Stdin, cmd.Stdout = strings.NewReader(input), io.Discard
				r, err := e.Exec(t.Context(), cmd)
				ended(t, r, err, 3)
			})
		}
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out screen
		cmd := onTTY(sh("stty -echo; echo ready; sleep 1000"))
		cmd.Stdin, cmd.Stdout = strings.NewReader(strings.Repeat("line\n", 1<<20)), &out
		go func() {
			defer cancel()
			for deadline := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "ready") &&
				time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}()
		if r, err := e.Exec(ctx, cmd); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestTTYReaderFails checks that a reader that fails ends the input, and that its error is Exec's.
func TestTTYReaderFails(t *testing.T) {
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	boom := errors.New("boom")
	cmd := onTTY(sh("cat >copy; exit 3"))
	cmd.Stdin = io.MultiReader(strings.NewReader("head"), iotest.ErrReader(boom))
	r, err := e.Exec(t.Context(), cmd)
	if !errors.Is(err, boom) || r.ExitCode != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if data, err := os.ReadFile(e.Info().WorkDir + "/copy"); err != nil || string(data) != "head" {
		t.Errorf("the copy: %q, %v", data, err)
	}
}

// TestTTYEndOfInput checks when a reader gets the end of the input, and that the next reader does
// not get it again.
func TestTTYEndOfInput(t *testing.T) {
	t.Parallel()
	needTTY(t, newEnv(t, local.Config{}))
	for _, tt := range []struct{ name, stty, input, want string }{
		{"nothing", "", "", ""},
		{"a line", "", "a\n", "a\n"},
		{"unfinished", "", "a\nb", "a\nb"},
		{"carriage return", "", "a\r", "a\n"},
		{"carriage return, kept", "-icrnl", "a\r", "a\r"},
		{"pushed", "", "a\x04", "a"},
		{"discarded", "", "abc\x15", ""},
		{"another key", "eof ^G", "a\x04", "a\x04"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, local.Config{})
			ready := make(chan struct{})
			var out screen
			var once, ends sync.Once
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := onTTY(sh("stty -echo " + tt.stty + `; echo ready; cat >copy; stty sane; ` +
				`echo second; read -r line; echo third`))
			cmd.Stdout = writerFunc(func(p []byte) (int, error) {
				n, err := out.Write(p)
				if strings.Contains(out.String(), "ready") {
					once.Do(func() { close(ready) })
				}
				if strings.Contains(out.String(), "second\r\n") {
					// until then the second reader waits
					ends.Do(func() { time.AfterFunc(200*time.Millisecond, cancel) })
				}
				return n, err
			})
			cmd.Stdin = io.MultiReader(readerFunc(func([]byte) (int, error) { <-ready; return 0, io.EOF }),
				strings.NewReader(tt.input))
			r, err := e.Exec(ctx, cmd)
			if !errors.Is(err, context.Canceled) || out.String() != "ready\r\nsecond\r\n" {
				t.Errorf("%+v, %v, screen %q", r, err, out.String())
			}
			if data, err := os.ReadFile(e.Info().WorkDir + "/copy"); err != nil || string(data) != tt.want {
				t.Errorf("the copy: %q, %v; want %q", data, err, tt.want)
			}
		})
	}
}

// TestTTYLeavesNothing checks that no descriptor of a terminal stays open, neither after a good
// command nor after one that did not start, and that commands see no terminal of another one.
func TestTTYLeavesNothing(t *testing.T) {
	needProc(t)
	e := newEnv(t, local.Config{})
	needTTY(t, e)
	terminals := func() int {
		links, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, l := range links {
			if to, err := os.Readlink("/proc/self/fd/" + l.Name()); err == nil && (strings.HasPrefix(to,
				"/dev/pts/") || strings.HasPrefix(to, "/dev/ptmx")) {
				n++
			}
		}
		return n
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			var out screen
			cmd := onTTY(sh(`for f in /proc/$$/fd/*; do readlink "$f"; done | grep -c /dev/p; exit 0`))
			cmd.Stdout = &out
			r, err := e.Exec(t.Context(), cmd)
			ended(t, r, err, 0)
			// some shells keep one more for themselves
			if got := strings.TrimSpace(out.String()); got != "3" && got != "4" {
				t.Errorf("the command has %s descriptors of terminals", got)
			}
			if _, err := e.Exec(t.Context(), onTTY(env.Command{Argv: []string{"/"}})); err == nil {
				t.Error("a directory was run")
			}
		})
	}
	wg.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "no terminal", func() bool { return terminals() == 0 })
}
