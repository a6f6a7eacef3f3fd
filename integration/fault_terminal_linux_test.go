package integration_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// TestFaultsOnTerminal has a model and commands that want to take over the terminal.
func TestFaultsOnTerminal(t *testing.T) {
	for _, format := range []string{"text", "json", "stream-json"} {
		t.Run("F16_standard_output_"+format, func(t *testing.T) {
			onFirstWire(t, func(t *testing.T, w wire) { proveTerminalOutput(t, w, format) })
		})
	}
	t.Run("F16_whole_screen", func(t *testing.T) { onFirstWire(t, proveScreen) })
	t.Run("F16_error_of_the_server", func(t *testing.T) { onFirstWire(t, proveServerErrorOnScreen) })
	t.Run("F16_exec", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t)
		p.Args = append(p.Args[:1], "exec", "--", "sh", "-c", controlCommand+"; "+controlCommand+" >&2")
		code, text := onTerminal(t, p, true)
		wantNoControls(t, code, 0, text)
		wantContains(t, "the screen", text, "over\nseen", "cod.exe")
	})
	t.Run("F16_tool", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t)
		p.Args = append(p.Args[:1], "tool", "shell", "--args", use("shell",
			map[string]any{"command": controlCommand}).Arguments)
		code, text := onTerminal(t, p, true)
		wantNoControls(t, code, 0, text)
		wantContains(t, "the screen", text, "seen", "cod.exe")
	})
}

// onTerminal runs p on a terminal that passes on everything as it is, standard error too if all is
// set. It returns the exit code and the screen.
func onTerminal(t *testing.T, p *program, all bool) (int, string) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	defer pty.Close() //nolint:errcheck // the program has ended
	conn, err := pty.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var tty *os.File
	ctlErr := conn.Control(func(fd uintptr) {
		var number int
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err != nil {
			return
		}
		if tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY,
			0); err != nil {
			return
		}
		var mode *unix.Termios
		if mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
			mode.Oflag &^= unix.OPOST
			err = unix.IoctlSetTermios(int(fd), unix.TCSETS, mode)
		}
	})
	if err != nil || ctlErr != nil {
		t.Skipf("there are no terminals here: %v, %v", err, ctlErr)
	}
	p.Stdin, p.Stdout = tty, tty
	if all {
		p.Stderr = tty
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.Env = append(p.Env, "TERM=xterm")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close() // the program has its own
	done := make(chan struct{})
	var screen lockedBuffer
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := pty.Read(b)
			_, _ = screen.Write(b[:n])
			if err != nil { // the last user of the terminal has gone
				return
			}
		}
	}()
	code := p.end(t)
	<-done
	return code, screen.String()
}

// wantNoControls checks that nothing in text is for the terminal, but for line breaks and tabs.
func wantNoControls(t *testing.T, code, wantCode int, text string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d: %q", code, wantCode, text)
	}
	if i := controls(text); i >= 0 {
		t.Errorf("something reaches the terminal: %.200q", text[i:])
	}
	for _, secret := range []string{"]52;", "aGk=", "evil", "]8;"} {
		if strings.Contains(text, secret) && !strings.HasPrefix(text, "{") {
			t.Errorf("what a sequence carries is shown: %q", secret)
		}
	}
}

// controlBrain is a model whose texts, names of files and commands hold control sequences.
func controlBrain(w wire) llmtest.Brain {
	answer := llmtest.Use(shell(controlCommand+"; : "+control), use("write_file",
		map[string]any{"file_path": "f" + control, "content": control}),
		llmtest.Call{Name: "shell", Arguments: `{"command": ` + control}, use("nobody",
			map[string]any{"x": control}))
	answer.Calls = slices.DeleteFunc(answer.Calls, func(c llmtest.Call) bool { return !w.passes(c) })
	answer.Text, answer.Reasoning = "I look"+control, "I think"+control
	return llmtest.Sequence(answer, llmtest.Say("It is "+control+" done.\x1b[2J\x1b]0;ev"))
}

// proveTerminalOutput has standard output alone on the terminal.
func proveTerminalOutput(t *testing.T, w wire, format string) {
	p := newProgram(t)
	p.Args = append(p.Args, "--output="+format)
	p.useModel(t, w, controlBrain(w))
	code, text := onTerminal(t, p, false)
	wantNoControls(t, code, 0, text)
	if i := controls(p.stderr.String()); i >= 0 {
		t.Errorf("the progress has %q", p.stderr.String()[i:])
	}
	if format == "text" {
		wantContains(t, "the answer", text, "seen", " done.")
		return
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is no JSON: %q", line)
		}
	}
	wantContains(t, "the record", text, `\u001b]52;c;aGk=`)
}

// displaySequences is what the program itself sends to a terminal beside text: it removes the
// status line and colours words.
var displaySequences = regexp.MustCompile("\r\x1b\\[K|\x1b\\[(?:0|31|32)m")

// proveScreen has everything on the terminal, the display of the progress too.
func proveScreen(t *testing.T, w wire) {
	p := newProgram(t)
	p.Args = append(p.Args, "--output=text", "--verify=true")
	p.useModel(t, w, controlBrain(w))
	code, text := onTerminal(t, p, true)
	wantNoControls(t, code, 0, displaySequences.ReplaceAllString(text, ""))
	wantContains(t, "the screen", text, "> shell", "> write_file", "> nobody", " done.")
}

func proveServerErrorOnScreen(t *testing.T, w wire) {
	p := newProgram(t)
	p.Args = append(p.Args, "--output=text")
	p.useModel(t, w, llmtest.Storm(1, llmtest.Fault{
		Status: 503, Message: "busy" + control,
		Header: map[string][]string{"Retry-After-Ms": {"1"}},
	},
		llmtest.Sequence(llmtest.Reply{Fault: llmtest.Fault{Status: 400, Code: control, Message: "no" +
			control}})))
	code, text := onTerminal(t, p, true)
	if code != 5 {
		t.Errorf("exit code %d", code)
	}
	if i := controls(displaySequences.ReplaceAllString(text, "")); i >= 0 {
		t.Errorf("something reaches the terminal: %.200q", text[i:])
	}
	wantContains(t, "the screen", text, "HTTP 400", "seen")
}
