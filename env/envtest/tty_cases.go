package envtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func ttyCases() []testCase {
	return []testCase{
		{name: "is_a_terminal", rule: ruleTTY, run: ttyIsTerminal},
		{name: "exit", rule: ruleExit, run: ttyExit},
		{name: "start_errors", rule: ruleStart, run: ttyStartErrors},
		{name: "size", rule: ruleTTYSize, run: ttySize},
		{name: "resize", rule: ruleTTYSize, run: ttyResize},
		{name: "resize_is_not_waited_for", rule: ruleTTYResize, run: ttyResizeEnds},
		{name: "interrupt_key", rule: ruleTTYTyped, run: ttyInterrupt},
		{name: "input_exact", rule: ruleTTYTyped, run: ttyInput},
		{name: "input_unread", rule: ruleStdinUnread, run: ttyUnread},
		{name: "end_of_input", rule: ruleTTYEnd, run: ttyEndOfInput},
		{name: "no_input", rule: ruleTTYEnd, run: ttyNoInput},
		{name: "order", rule: ruleTTYOutput, run: ttyOrder},
		{name: "output_exact", rule: ruleTTYOutput, run: ttyOutput},
		{name: "stderr_refused", rule: ruleTTYOutput, run: ttyStderr},
		{name: "discarded", rule: ruleTTYOutput, run: ttyDiscarded},
		{name: "child_holding_terminal", rule: ruleReturns, run: ttyChild},
		{name: "timeout", rule: ruleTreeDead, run: timeOutKills((*caseT).ttyFamily)},
		{name: "cancel", rule: ruleTreeDead, run: cancelKills((*caseT).ttyFamily)},
		{name: "close_during_exec", rule: ruleCloseEnds, run: ttyClose, fresh: true},
	}
}

// onTerminal returns a command that runs text in sh on a terminal, with args as $1 and so on. A
// command that does not end when it has to times out. A case in an environment without terminals
// ends here.
func (c *caseT) onTerminal(text string, args ...string) env.Command {
	probe := c.script("exit 0")
	probe.TTY = new(env.TTY)
	if r := c.exec(probe); errors.Is(r.err, errors.ErrUnsupported) {
		if c.opts.NoTerminals {
			c.pointless("the environment has no terminals: %v", r.err)
		}
		c.missing("the environment has no terminals: %v", r.err)
	}
	cmd := c.script(text, args...)
	cmd.TTY, cmd.Timeout = new(env.TTY), c.patience()
	return cmd
}

// A screen keeps the output of a terminal, on which a command runs that the case types to.
type screen struct {
	c      *caseT
	out    lockedBuffer
	keys   *io.PipeWriter
	result chan ran
	seen   string
}

// run starts cmd with a keyboard and a screen.
func (c *caseT) run(cmd env.Command) *screen {
	r, w := io.Pipe()
	s := &screen{c: c, keys: w, result: make(chan ran, 1)}
	cmd.Stdin, cmd.Stdout = r, &s.out
	go func() {
		result := c.exec(cmd)
		_ = r.Close() // Later input goes nowhere.
		s.result <- result
	}()
	c.cleanup(func() { _ = w.Close() })
	return s
}

// shows waits until the command has written text, or has ended without it.
func (s *screen) shows(text string) {
	s.c.poll(fmt.Sprintf("%q on the screen", text), func() bool {
		ended := len(s.result) > 0
		s.seen += s.out.take()
		if !strings.Contains(s.seen, text) && ended {
			s.c.fatalf("the command ended before it had written %q; it wrote %q", text, s.seen)
		}
		return strings.Contains(s.seen, text)
	})
}

// types types text in the background, because a terminal may take it only when its command reads.
func (s *screen) types(text string, last bool) {
	go func() {
		// The effect on the command shows that no process takes it.
		_, _ = io.WriteString(s.keys, text)
		if last {
			_ = s.keys.Close()
		}
	}()
}

// end waits for the command and returns its result, with the text on the screen.
func (s *screen) end() ran {
	r := <-s.result
	r.stdout = s.seen + s.out.take()
	return r
}

// shown is s as a terminal shows it.
func shown(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func ttyIsTerminal(c *caseT) {
	const text = `for i in 0 1 2; do test -t $i && echo "$i is one"; done; echo controls >/dev/tty`
	r := c.exec(c.onTerminal(text))
	c.wantExit("a command on a terminal", r, 0)
	c.equal("its output", r.stdout, shown("0 is one\n1 is one\n2 is one\ncontrols\n"))
	r = c.exec(c.script(`for i in 0 1 2; do test -t $i && exit 9; done; exit 3`))
	c.wantExit("a command without a terminal", r, 3)
}

func ttyExit(c *caseT) {
	for text, code := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 143": 143,
		"exit 255": 255,
	} {
		c.wantExit(text, c.exec(c.onTerminal(text)), code)
	}
	r := c.exec(c.onTerminal(`kill -KILL $$`))
	if r.err != nil || r.ExitCode != 137 || r.Signal != "SIGKILL" || r.TimedOut {
		c.errorf("a command that SIGKILL ended: %+v, error %v; want exit code 137 and SIGKILL", r.Result,
			r.err)
	}
}

func ttyStartErrors(c *caseT) {
	cmd := c.onTerminal("exit 0")
	cmd.Argv = []string{"envtest-no-such-program"}
	var start *env.StartError
	if r := c.exec(cmd); !errors.As(r.err, &start) || !errors.Is(r.err, fs.ErrNotExist) {
		c.errorf("a missing program on a terminal: %+v, error %v; want a *StartError with fs.ErrNotExist",
			r.Result, r.err)
	}
}

func ttySize(c *caseT) {
	c.tool("stty")
	for size, want := range map[env.TTYSize]string{
		{}: "24 80", {Columns: 132, Rows: 50}: "50 132", {Columns: 2, Rows: 2}: "2 2", {
			Columns: 1000,
			Rows:    500,
		}: "500 1000",
		{Columns: 132}: "24 132", {Rows: 50}: "50 80",
	} {
		cmd := c.onTerminal("stty size")
		cmd.TTY.Size = size
		r := c.exec(cmd)
		c.equal(fmt.Sprintf("stty size on a terminal that is to be %+v", size), r.stdout, want+"\r\n")
	}
}

func ttyResize(c *caseT) {
	c.tool("stty")
	sizes := make(chan env.TTYSize)
	cmd := c.onTerminal(`trap 'echo "size $(stty size)"' WINCH; echo ready
until test -f "$1"; do sleep 0.1 2>/dev/null || sleep 1; done; echo "now $(stty size)"; exit 3`,
		c.abs("go"))
	cmd.TTY.Resize = sizes
	resize := func(size env.TTYSize) {
		select {
		case sizes <- size:
		case <-time.After(c.patience()):
			c.fatalf("Exec does not receive from Resize while the command runs")
		}
	}
	s := c.run(cmd)
	s.shows("ready")
	resize(env.TTYSize{Columns: 100, Rows: 30})
	s.shows("size 30 100")
	for _, ignored := range []env.TTYSize{{}, {Columns: 101}, {Rows: 31}, {}} {
		resize(ignored)
	}
	c.write(c.name("go"), "")
	r := s.end()
	c.wantExit("a command whose terminal changes its size", r, 3)
	if !strings.HasSuffix(r.stdout, "now 30 100\r\n") {
		c.errorf("a size with a zero in it was not ignored: the screen shows %q", r.stdout)
	}
}

func ttyResizeEnds(c *caseT) {
	closed := make(chan env.TTYSize)
	close(closed)
	buffered := make(chan env.TTYSize, 1)
	buffered <- env.TTYSize{Columns: 100, Rows: 30}
	silent := make(chan env.TTYSize)
	for what, sizes := range map[string]<-chan env.TTYSize{
		"is closed":                closed,
		"has a size and then none": buffered, "gives none": silent,
	} {
		cmd := c.onTerminal("exit 3")
		cmd.TTY.Resize = sizes
		var r ran
		c.within("a command with a Resize that "+what, func() { r = c.exec(cmd) })
		c.wantExit("a command with a Resize that "+what, r, 3)
	}
	// Whoever still received could do it at any time; a receiver that waits is met at once.
	for range 20 {
		select {
		case silent <- env.TTYSize{Columns: 100, Rows: 30}:
			c.fatalf("a value was received from Resize after Exec had returned")
		case <-time.After(time.Millisecond):
		}
	}
}

// ttyInterrupt types ^C, which reaches the whole foreground: here a shell that survives it, and its
// child.
func ttyInterrupt(c *caseT) {
	cmd, m := c.onTerminalSleepers(1,
		`trap 'echo caught' INT; echo ready; sleep "$1"; echo "status $?"; exit 5`)
	s := c.run(cmd)
	s.shows("ready")
	c.poll("the child", func() bool { return len(s.result) > 0 || c.allAlive(1, m) })
	s.types("\x03", false)
	r := s.end()
	c.gone(c.subject, m)
	c.wantExit("a shell whose child was interrupted", r, 5)
	if !strings.Contains(r.stdout, "caught\r\n") || !strings.Contains(r.stdout, "status 130\r\n") {
		c.errorf("the screen shows %q, want the trap's text and the status 130 of the child", r.stdout)
	}
}

// ttyInput types into a terminal in raw mode, where no key has a meaning.
func ttyInput(c *caseT) {
	c.tool("stty")
	c.tool("head")
	text := allBytes + randomText(c.size(1<<20, 64<<10))
	s := c.run(c.onTerminal(`stty raw -echo && echo ready && head -c "$1" >"$2"`,
		fmt.Sprint(len(text)), c.abs("copy")))
	s.shows("ready")
	s.types(text, true)
	c.wantExit("a command that reads a terminal", s.end(), 0)
	c.equal("the input of a terminal in raw mode", c.read(c.name("copy")), text)

	s = c.run(c.onTerminal(`stty -echo; echo ready; read -r line; echo "first $line"
read -r line; echo "second $line"; exit 3`))
	s.shows("ready")
	s.types("one\n", false)
	s.shows("first one")
	s.types("two\n", false)
	r := s.end()
	c.wantExit("a command that is typed to while it runs", r, 3)
	c.equal("the screen", r.stdout, shown("ready\nfirst one\nsecond two\n"))
}

func ttyUnread(c *caseT) {
	for text, code := range map[string]int{"exit 0": 0, "exit 3": 3, "sleep 1; exit 5": 5} {
		for _, input := range []string{strings.Repeat("line\n", 1<<20), strings.Repeat("x", 1<<20)} {
			cmd := c.onTerminal(text)
			cmd.Stdin = strings.NewReader(input)
			c.wantExit(text, c.exec(cmd), code)
		}
	}
	r, w := io.Pipe()
	c.cleanup(func() { _ = w.Close() })
	cmd := c.onTerminal("exit 3")
	cmd.Stdin = r
	var result ran
	c.within("Exec with a reader that blocks after the command has exited",
		func() { result = c.exec(cmd) })
	c.wantExit("a command with a reader that blocks", result, 3)
}

func ttyEndOfInput(c *caseT) {
	c.tool("stty")
	for what, input := range map[string]string{
		"nothing": "", "lines": "one\ntwo\n", "a line without its end": "one\ntwo", "an empty line": "\n",
		"more than a terminal holds": strings.Repeat("a line of text\n", 5000),
	} {
		s := c.run(c.onTerminal("stty -echo; echo ready; cat; echo end"))
		s.shows("ready")
		s.types(input, true)
		r := s.end()
		c.wantExit("cat of "+what, r, 0)
		c.equal("the screen after "+what, r.stdout, shown("ready\n"+input+"end\n"))
	}
}

func ttyNoInput(c *caseT) {
	r := c.exec(c.onTerminal("cat; echo end"))
	c.wantExit("cat without Stdin", r, 0)
	if !strings.HasSuffix(r.stdout, "end\r\n") {
		c.errorf("cat without Stdin writes %q", r.stdout)
	}
	cmd := c.onTerminal("exit 0")
	cmd.Argv = []string{"sh"}
	c.wantExit("a shell without Stdin", c.exec(cmd), 0)
}

func ttyOrder(c *caseT) {
	r := c.exec(c.onTerminal(`i=0; while [ $i -lt 1000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done`))
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "%d\r\ne%d\r\n", i, i)
	}
	c.equal("the screen", r.stdout, want.String())
}

func ttyOutput(c *caseT) {
	c.tool("stty")
	size := c.size(1<<20, 256<<10)
	for what, s := range map[string]string{
		"text":  strings.Repeat("añ€😀 and more\n", size/20),
		"bytes": allBytes + randomText(size),
	} {
		c.write(c.name(what), s)
		c.equal(what+" through a terminal", c.exec(c.onTerminal(`cat "$1"`, c.abs(what))).stdout,
			shown(s))
		c.equal(what+" through a terminal in raw mode", c.exec(c.onTerminal(`stty raw -echo; cat "$1"`,
			c.abs(what))).stdout, s)
	}
}

func ttyStderr(c *caseT) {
	var both lockedBuffer
	for what, stdout := range map[string]io.Writer{
		"no Stdout": nil, "Stdout": io.Discard,
		"the same Stdout": &both,
	} {
		cmd := c.onTerminal(`: >"$1"`, c.abs("ran"))
		cmd.Stdout, cmd.Stderr = stdout, &both
		_, err := c.e.Exec(c.ctx, cmd)
		var start *env.StartError
		if !errors.As(err, &start) || !errors.Is(err, fs.ErrInvalid) {
			c.errorf("a command on a terminal, with Stderr and %s: error %v, want a *StartError with "+
				"fs.ErrInvalid", what, err)
		}
	}
	if _, err := c.e.Stat(c.ctx, c.name("ran")); err == nil {
		c.errorf("the command ran")
	}
}

func ttyDiscarded(c *caseT) {
	cmd := c.onTerminal(`i=0; while [ $i -lt 20000 ]; do echo more; i=$((i+1)); done; exit 3`)
	res, err := c.e.Exec(c.ctx, cmd)
	c.wantExit("a command without a writer", ran{Result: res, err: err}, 3)
}

// ttyChild leaves a child on the terminal that does not mind that it hangs up.
func ttyChild(c *caseT) {
	var r ran
	cmd, m := c.onTerminalSleepers(1, `trap '' HUP; sleep "$1" & echo out; exit 3`)
	c.within("Exec with a child that holds the terminal", func() { r = c.exec(cmd) })
	c.wantExit("a command with a child that holds the terminal", r, 3)
	c.equal("the screen", r.stdout, "out\r\n")
	c.stays(m)
	if !r.Detached {
		c.errorf("a descendant holds the terminal, but Detached is not set: %+v", r.Result)
	}
}

// onTerminalSleepers is sleepers on a terminal.
func (c *caseT) onTerminalSleepers(n int, text string) (env.Command, []marker) {
	cmd, m := c.sleepers(n, text)
	on := c.onTerminal("")
	on.Argv = cmd.Argv
	return on, m
}

// ttyFamily is a shell on a terminal with children in its foreground, in other process groups and
// in another session.
func (c *caseT) ttyFamily() (env.Command, []marker) {
	cmd, m := c.onTerminalSleepers(3, `set -m; sleep "$1" & (trap '' HUP; `+c.setsid()+
		` sleep "$2" &); sleep "$3"; echo unreachable`)
	cmd.Timeout = 0
	return cmd, m
}

func ttyClose(c *caseT) {
	cmd, m := c.onTerminalSleepers(1, `trap '' TERM HUP; sleep "$1"`)
	cmd.Timeout = 0
	s := c.run(cmd)
	c.alive(m)
	c.closeSeen(m)
	c.wantClosed(s.result)
}
