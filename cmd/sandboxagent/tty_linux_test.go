package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// hold keeps the terminal open after the end of its program, so that a test can examine it, until
// the returned function is called.
func (s *screen) hold() (release func()) {
	s.t.Helper()
	var number int
	s.control(func(fd int) (err error) {
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tty.Close() })
	return func() { _ = tty.Close() }
}

func (s *screen) control(f func(fd int) error) {
	s.t.Helper()
	conn, err := s.pty.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	if cerr := conn.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil || err != nil {
		s.t.Fatal(cerr, err)
	}
}

// raw reports whether the terminal is in raw mode, and fails the test for a mixture of modes.
func (s *screen) raw() bool {
	s.t.Helper()
	var mode *unix.Termios
	s.control(func(fd int) (err error) {
		mode, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	const input = unix.ICANON | unix.ECHO | unix.ISIG
	switch got := mode.Lflag & input; {
	case got == 0 && mode.Oflag&unix.OPOST == 0:
		return true
	case got == input && mode.Oflag&unix.OPOST != 0 && mode.Iflag&unix.ICRNL != 0:
		return false
	}
	s.t.Errorf("the terminal is in a mode between: %+v", mode)
	return false
}

func (s *screen) resize(columns, rows uint16) {
	s.t.Helper()
	s.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

func TestExecTTY(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "exec", "-t", "--", "sh", "-c",
		`test -t 0 && test -t 1 && test -t 2 && printf 'a\033[2Jb %s\n' "$TERM"
		stty size; echo err >&2; exit 7`)
	s := openTerminal(t, p)
	if code, text := s.end(p); code != 7 || text != "a\x1b[2Jb xterm\n24 80\nerr\n" {
		t.Errorf("exit code %d, screen %q", code, text)
	}
}

func TestExecTTYResize(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "exec", "--tty", "--", "sh", "-c",
		`trap 'stty size' WINCH; stty size
		while :; do sleep 0.05; test "$(stty size)" != "31 101" || exit 3; done; : MARKER`)
	s := openTerminal(t, p)
	s.await("24 80\n")
	s.resize(132, 50)
	s.await("50 132\n")
	s.resize(101, 31)
	if code, _ := s.end(p); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// TestExecTTYKeys checks that all keys reach the command, and none the program.
func TestExecTTYKeys(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "exec", "-t", "--", "sh", "-c",
		`trap 'echo caught; caught=1' INT; stty -echo; echo ready
		until test -n "$caught"; do sleep 0.05; done
		stty raw; echo all; head -c 8 | od -An -tx1; exit 5; : MARKER`)
	s := openTerminal(t, p)
	s.await("ready")
	p.works(t)
	s.send("\x03")
	s.await("caught\n")
	s.await("all\n")
	s.send("\x03\x1a\x1c\x04\x13\x11\r\n")
	code, text := s.end(p)
	if code != 5 || !strings.Contains(text, "03 1a 1c 04 13 11 0d 0a") {
		t.Errorf("exit code %d, screen %q", code, text)
	}
	p.leavesNothing(t, false)
}

func TestExecTTYShell(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	p := newProcess(t, "exec", "-t", "--var=PS1=prompt>", "--", "bash", "--norc", "--noprofile")
	s := openTerminal(t, p)
	s.await("prompt>")
	// a separate job shows that the shell controls the terminal
	s.send("sleep 1000 & jobs; echo $((40+2))\r")
	s.await("42\n")
	s.send("exit 4\r")
	code, text := s.end(p)
	if code != 4 || !strings.Contains(text, "Running") || strings.Contains(text, "no job control") {
		t.Errorf("exit code %d, screen %q", code, text)
	}
}

// TestExecTTYRestores checks that the user's terminal is as before, whatever ends the program.
func TestExecTTYRestores(t *testing.T) {
	// Under nohup a started program would inherit that SIGHUP is ignored. For a signal that is caught
	// here it gets the default action.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	const wait = `echo ready; while :; do sleep 0.05; done; : MARKER`
	const stubborn = `trap '' TERM HUP; ` + wait
	for _, tt := range []struct {
		name    string
		args    []string
		signals []syscall.Signal
		want    int
		text    string
	}{
		{"end", []string{"--", "sh", "-c", "echo ready; exit 3"}, nil, 3, ""},
		{"signal", []string{"--", "sh", "-c", "echo ready; kill -9 $$"}, nil, 137, ""},
		{"mode of its own", []string{"--", "sh", "-c", "stty raw -echo; echo ready"}, nil, 0, ""},
		{
			"time",
			[]string{"--timeout=1s", "--", "sh", "-c", wait},
			nil, 124,
			"sandboxagent: the command was stopped after 1s (--timeout)\n",
		},
		{
			"no program",
			[]string{"--", "no-such-program-x"},
			nil, 127,
			"sandboxagent: start no-such-program-x",
		},
		{"read-only", []string{"--read-only", "--", "touch", "f"}, nil, 1, ""},
		{"interrupt", []string{"--", "sh", "-c", wait}, []syscall.Signal{syscall.SIGINT}, 130, ""},
		{"terminate", []string{"--", "sh", "-c", wait}, []syscall.Signal{syscall.SIGTERM}, 143, ""},
		{"hang up", []string{"--", "sh", "-c", wait}, []syscall.Signal{syscall.SIGHUP}, 143, ""},
		{
			"terminate, killed",
			[]string{"--", "sh", "-c", stubborn},
			[]syscall.Signal{syscall.SIGTERM},
			143, "",
		},
		{"terminate twice", []string{"--", "sh", "-c", stubborn}, []syscall.Signal{
			syscall.SIGTERM, syscall.SIGTERM,
		}, 143, ""},
		{"quit", []string{"--", "sh", "-c", wait}, []syscall.Signal{syscall.SIGQUIT}, 2, "SIGQUIT: quit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, append([]string{"exec", "-t"}, tt.args...)...)
			s := openTerminal(t, p)
			release := s.hold()
			if len(tt.signals) > 0 {
				s.await("ready")
				if !s.raw() {
					t.Error("the terminal does not pass all keys on")
				}
			}
			for i, signal := range tt.signals {
				if i > 0 {
					time.Sleep(100 * time.Millisecond) // two signals at once may be one to the kernel
				}
				if err := p.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			code := p.code(t)
			if s.raw() {
				t.Error("the terminal is left as it must not be")
			}
			release()
			<-s.done
			if code != tt.want || !strings.Contains(s.text(), tt.text) {
				t.Errorf("exit code %d, want %d; screen %q", code, tt.want, s.text())
			}
			if lone := strings.Count(s.buf.String(), "\n") - strings.Count(s.buf.String(),
				"\r\n"); tt.text != "" && tt.name != "quit" && lone > 0 {
				t.Errorf("a message comes while the terminal passes everything on: %q", s.buf.String())
			}
			// a program that quits can do nothing, but its terminals hang up
			p.leavesNothing(t, tt.name == "quit" || len(tt.signals) > 1)
		})
	}
}

type explodingRunner struct{}

func (explodingRunner) Exec(context.Context, env.Command) (env.Result, error) {
	panic("the environment exploded")
}

func TestExecTTYPanic(t *testing.T) {
	keys, tty, err := pty.Open()
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	defer keys.Close() //nolint:errcheck // nothing was written
	defer tty.Close()  //nolint:errcheck // nothing was written
	s := &screen{t: t, pty: keys}
	p := &program{std: newStreams(tty, tty, tty)}
	cmd := env.Command{Argv: []string{"true"}}
	if err := p.onTerminal(&cmd, nil); err != nil {
		t.Fatal(err)
	}
	if !s.raw() {
		t.Error("the terminal does not pass all keys on")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		p.execute(t.Context(), explodingRunner{}, cmd, nil)
	}()
	if s.raw() {
		t.Error("the terminal is left as it must not be")
	}
}

// TestExecTTYWithoutTerminal checks -t in a script: the command has a terminal, the program has
// none.
func TestExecTTYWithoutTerminal(t *testing.T) {
	for _, tt := range []struct {
		name, input, script string
		vars                []string
		want                int
		text                string
	}{
		{"size", "", "stty size; exit 3", nil, 3, "24 80\r\n"},
		{"input", "one\ntwo", "cat >copy; cat copy", nil, 0, "one\ntwo"},
		{"end of input", "", "cat; exit 4", nil, 4, ""},
		{
			"control sequences", "", `printf '\033[2J\033]0;x\007'; echo err >&2`, nil, 0,
			"\x1b[2J\x1b]0;x\x07err\r\n",
		},
		{"kind", "", `echo "kind $TERM"`, []string{"TERM=some-kind"}, 0, "kind some-kind\r\n"},
		{"no kind", "", `echo "kind $TERM"`, []string{"TERM="}, 0, "kind \r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "exec", "-t", "--", "sh", "-c", tt.script)
			p.Env = append(p.Env, tt.vars...)
			p.Stdin = strings.NewReader(tt.input)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			code := p.code(t)
			text := strings.ReplaceAll(p.stdout.String(), "one\r\ntwo", "one\ntwo")
			if code != tt.want || !strings.HasSuffix(text, tt.text) || p.stderr.Len() > 0 {
				t.Errorf("exit code %d, stdout %q", code, p.stdout.String())
			}
		})
	}
}

// TestExecTTYVariable checks that TERM is passed on unless a flag prevents it, and that the log
// records the terminal.
func TestExecTTYVariable(t *testing.T) {
	for _, tt := range []struct {
		name, flag, want string
		logged           bool
	}{
		{"passed on", "--inherit-vars=core", "xterm\r\n", true},
		{"given", "--var=TERM=vt100", "vt100\r\n", false},
		{"none", "--inherit-vars=none", "\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "exec", "-t", tt.flag, "--log=log", "--", "/bin/sh", "-c",
				`/bin/echo "$TERM"`)
			p.Env = append(p.Env, "TERM=xterm")
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if code := p.code(t); code != 0 || p.stdout.String() != tt.want {
				t.Errorf("exit code %d, stdout %q", code, p.stdout.String())
			}
			data, err := os.ReadFile(filepath.Join(p.dir, "log"))
			if err != nil {
				t.Fatal(err)
			}
			var record struct {
				TTY  bool
				Vars []string
			}
			_, calls, _ := strings.Cut(string(data), "\n") // the first record is about the environment
			first, _, _ := strings.Cut(calls, "\n")
			if err := json.Unmarshal([]byte(first), &record); err != nil || !record.TTY ||
				(len(record.Vars) == 1) != tt.logged {
				t.Errorf("%v: %s", err, first)
			}
		})
	}
}
