package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is a terminal that a program runs on.
type screen struct {
	t    *testing.T
	pty  *os.File
	done chan struct{}

	mu  sync.Mutex
	buf bytes.Buffer
}

// openTerminal makes a terminal of 80 by 24 characters the standard streams of p, unless it has
// another input, and starts it.
func openTerminal(t *testing.T, p *process, vars ...string) *screen {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	t.Cleanup(func() { _ = pty.Close() })
	var number int
	conn, err := pty.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{
			Row: 24,
			Col: 80,
		}); err != nil {
			return
		}
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	p.Stdout, p.Stderr = tty, tty
	if p.Stdin == nil {
		p.Stdin = tty
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	p.Env = append(append(p.Env, "TERM=xterm", "CI="), vars...)
	s := &screen{t: t, pty: pty, done: make(chan struct{})}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	go func() {
		defer close(s.done)
		b := make([]byte, 4096)
		for {
			n, err := pty.Read(b)
			s.mu.Lock()
			s.buf.Write(b[:n])
			s.mu.Unlock()
			if err != nil { // the last user of the terminal has gone
				return
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen: %q", s.text())
		}
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.buf.String(), "\r\n", "\n")
}

// await waits until the program has written something.
func (s *screen) await(text string) {
	s.t.Helper()
	await(s.t, "the text "+text, func() bool { return strings.Contains(s.text(), text) })
}

// send types text.
func (s *screen) send(text string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the program and returns its exit code and its output.
func (s *screen) end(p *process) (int, string) {
	s.t.Helper()
	code := p.code(s.t)
	<-s.done
	return code, s.text()
}

const allow = "Allow it? [y]es, [a]lways in this directory, [N]o: "

func TestConsent(t *testing.T) {
	tests := []struct {
		name, answer string
		want         int
		stored       bool
		text         string
	}{
		{"yes", "y\n", 0, false, "ok\n"},
		{"in full", "Yes\n", 0, false, "ok\n"},
		{"always", "a\n", 0, true, "ok\n"},
		{"no", "n\n", 2, false, "not allowed; nothing was done"},
		{"default", "\n", 2, false, "not allowed; nothing was done"},
		{"unclear at first", "what?\ny\n", 0, false, "ok\n"},
		{"end of input", "\x04", 2, false, "no answer: nothing was done"},
		{"interrupt", "\x03", 130, false, "interrupted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--sandbox=off", "--model=script:s.yaml", "a task")
			p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
			s := openTerminal(t, p)
			s.await(allow)
			s.send(tt.answer)
			code, text := s.end(p)
			if code != tt.want {
				t.Errorf("exit code %d, want %d", code, tt.want)
			}
			if !strings.Contains(text, tt.text) {
				t.Errorf("%q is missing", tt.text)
			}
			sessions, err := os.ReadDir(filepath.Join(p.dir, ".state", "sessions"))
			if tt.want != 0 && !errors.Is(err, fs.ErrNotExist) || tt.want == 0 && len(sessions) == 0 {
				t.Errorf("%d sessions: %v", len(sessions), err)
			}
			_, err = os.Stat(filepath.Join(p.dir, ".state", consentFile))
			if stored := err == nil; stored != tt.stored {
				t.Errorf("stored: %v, want %v", stored, tt.stored)
			}
		})
	}
}

// TestConsentIsKept checks that "always" counts for this directory, also without a terminal, and
// for no other.
func TestConsentIsKept(t *testing.T) {
	p := newProcess(t, "run", "--sandbox=off", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
	s := openTerminal(t, p)
	s.await(allow)
	s.send("always\n")
	if code, _ := s.end(p); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, tt := range []struct {
		name string
		same bool
		want int
	}{{"same directory", true, 0}, {"other directory", false, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			next := newProcess(t, "run", "--sandbox=off", "--model=script:s.yaml", "a task")
			next.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
			next.Env = append(next.Env, "SANDBOXAGENT_STATE_DIR="+filepath.Join(p.dir, ".state"))
			if tt.same {
				next.Dir = p.dir
			}
			if err := next.Start(); err != nil {
				t.Fatal(err)
			}
			if got := next.code(t); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}

// TestAskUser checks that a question of the model reaches the terminal, and the answer the model.
func TestAskUser(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: ask_user, args: {question: "Which \e]0;evil\acolour?"}}]
  - expect: {user: {contains: dark green}}
    text: I take it.
`)
	s := openTerminal(t, p)
	s.await("Question of the model: Which colour?\nYour answer: ")
	s.send("\ndark green\n")
	code, text := s.end(p)
	if code != 0 || !strings.HasSuffix(text, "I take it.\n") {
		t.Errorf("exit code %d", code)
	}
}

// TestAskUserHoldsProgress checks that nothing is written between a question and its late answer.
func TestAskUserHoldsProgress(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: ask_user, args: {question: "Which colour?"}}]
  - text: I take it.
`)
	s := openTerminal(t, p)
	s.await("Your answer: ")
	// Only time can show that nothing comes; two updates of the status line would be due.
	time.Sleep(2 * redrawEvery)
	if text := s.text(); !strings.HasSuffix(text, "Your answer: ") {
		t.Errorf("the end is %q", text[strings.Index(text, "Your answer: "):])
	}
	s.send("dark green\n")
	code, text := s.end(p)
	// The line of the call may come before the question or wait until after the answer, but never in
	// between.
	if code != 0 || !strings.Contains(text, "Your answer: dark green\n") ||
		!strings.Contains(drawing.ReplaceAllString(text, ""), "ok    ask_user Which colour?") {
		t.Errorf("exit code %d, in all %q", code, text)
	}
}

// TestAskUserUnanswered checks the end of a run whose question gets no answer.
func TestAskUserUnanswered(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		want      int
		status    string
	}{{"end of input", "\x04", 4, "awaiting_human"}, {"interrupt", "\x03", 130, "aborted"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", "--output=json", "--model=script:s.yaml", "a task")
			p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: ask_user, args: {question: "Which colour?"}}]
  - text: I take it.
`)
			s := openTerminal(t, p)
			s.await("Your answer: ")
			s.send(tt.key)
			code, text := s.end(p)
			if code != tt.want || !strings.Contains(text, `"status":"`+tt.status+`"`) {
				t.Errorf("exit code %d, want %d", code, tt.want)
			}
		})
	}
}

// TestInterruptRun checks the note after ^C on a terminal, that the second ^C leaves a clean line,
// and that the session goes on.
func TestInterruptRun(t *testing.T) {
	for _, twice := range []bool{false, true} {
		name := "once"
		if twice {
			name = "twice"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
			p.writeFile(t, "s.yaml", `turns:
  - calls:
      - tool: shell
        args:
          timeout_ms: 600000
          command: "trap : TERM; touch ready; until test -e go-on; do sleep 0.05; done; : MARKER"
`)
			s := openTerminal(t, p)
			p.awaitFile(t, "ready")
			s.await("> shell trap")
			s.send("\x03")
			s.await("note  stopping; ^C again kills\n")
			if twice {
				_, _ = s.pty.WriteString("\x03") // on a busy machine the run may have ended
			} else {
				p.writeFile(t, "go-on", "")
			}
			code, text := s.end(p)
			if code != 130 {
				t.Errorf("exit code %d", code)
			}
			if last := text[strings.LastIndex(text, "> "):]; !strings.Contains(last, "\r\x1b[K") {
				t.Errorf("the status line stays: %q", last)
			}
			p.leavesNothing(t, twice)
			next := newProcess(t, "session", "resume", "--last", "--yes", "--model=script:next.yaml")
			next.Dir, next.Env = p.Dir, p.Env
			p.writeFile(t, "next.yaml", `turns:
  - expect: {result: {tool: shell}, user: {contains: "goes on after its program ended"}}
    text: resumed
`)
			if err := next.Start(); err != nil {
				t.Fatal(err)
			}
			if code := next.code(t); code != codeDone || next.stdout.String() != "resumed\n" {
				t.Errorf("resumed: exit code %d, %q", code, next.stdout.String())
			}
		})
	}
}

// TestConsentWithoutHome checks that "always" is not offered if it cannot be stored, and that a run
// without consent leaves nothing behind.
func TestConsentWithoutHome(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--sandbox=off", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
	scratch := t.TempDir()
	p.Env = append(p.Env, "SANDBOXAGENT_STATE_DIR=", "XDG_STATE_HOME=", "HOME=", "TMPDIR="+scratch)
	s := openTerminal(t, p)
	s.await("Allow it? [y]es, [N]o: ")
	s.send("a\nn\n")
	code, text := s.end(p)
	if n := strings.Count(text, "Allow it? "); code != 2 || n != 2 {
		t.Errorf("exit code %d, asked %d times", code, n)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestDisplay(t *testing.T) {
	for _, plain := range []bool{false, true} {
		name := "colours"
		if plain {
			name = "NO_COLOR"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
			if plain {
				p.Env = append(p.Env, "NO_COLOR=1")
			}
			p.writeFile(t, "s.yaml", `turns:
  - text: "I \e[2J look"
    calls:
      - tool: shell
        args:
          command: |
            printf '\033[2J\033]52;c;aGk=\007'
            until test -e go-on; do sleep 0.05; done; false
    usage: {input: 12000, output: 345}
  - text: "Done \e[2J\e]0;evil\a\u009b31m\u202ereally."
`)
			s := openTerminal(t, p)
			s.await("> shell printf")
			s.await(" · 12.3k tokens")
			p.writeFile(t, "go-on", "")
			code, text := s.end(p)
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			rest := drawing.ReplaceAllString(text, "")
			if i := strings.IndexFunc(rest, func(r rune) bool {
				return r < ' ' && r != '\n' || r >= 0x7f &&
					r < 0xa0 || r == 0x202e
			}); i >= 0 {
				t.Errorf("something reaches the terminal: %q", rest[i:])
			}
			if coloured := strings.Contains(text, "\x1b[31mfail \x1b[0m shell"); coloured == plain {
				t.Errorf("coloured: %v", coloured)
			}
			// The status line is gone before the answer comes.
			last := text[strings.LastIndex(text, "> "):]
			if !strings.Contains(last, "\r\x1b[K") || !strings.Contains(last, "really.\n") {
				t.Errorf("the end is %q", last)
			}
			for line := range strings.Lines(rest) {
				if n := len([]rune(line)); !strings.Contains(line, "> ") && n > 81 &&
					!strings.Contains(line, "journal.jsonl") { // which is not cut
					t.Errorf("a line has %d characters: %q", n, line)
				}
			}
		})
	}
}

// TestInterruptKey checks that the first ^C interrupts the command once, and that the second ends
// it in order.
func TestInterruptKey(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "exec", "--", "sh", "-c",
		`n=0; trap 'n=$((n+1)); echo caught $n' INT; trap 'echo ended; exit 1' TERM; echo ready
		while :; do sleep 0.05; done; : MARKER`)
	s := openTerminal(t, p)
	s.await("ready")
	p.works(t)
	s.send("\x03")
	s.await("caught 1\n")
	s.send("\x03")
	code, text := s.end(p)
	if code != 130 || !strings.Contains(text, "ended\n") || strings.Contains(text, "caught 2") {
		t.Errorf("exit code %d, screen %q", code, text)
	}
	p.leavesNothing(t, false)
}
