package integration_test

import (
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// TestFaultsOnTerminal has a model and commands whose output controls terminals.
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

// onTerminal runs p on a terminal that changes no output, with stderr too if all is set. It returns
// the exit code and the screen.
func onTerminal(t *testing.T, p *program, all bool) (int, string) {
	t.Helper()
	screen, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminals: %v", err)
	}
	defer screen.Close() //nolint:errcheck // the program has ended
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.Stdout = tty, tty
	if all {
		p.Stderr = tty
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.Env = append(p.Env, "TERM=xterm", "CI=")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close() // the program has its own
	seen, done := readScreen(screen)
	code := p.end(t)
	<-done
	return code, seen.String()
}

// readScreen reads a terminal until its last user has gone.
func readScreen(screen io.Reader) (seen *lockedBuffer, done chan struct{}) {
	seen, done = &lockedBuffer{}, make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(seen, screen) // the end of the other side is an error of a terminal
	}()
	return seen, done
}

// wantNoControls checks that text controls no terminal, but for line breaks and tabs.
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
			t.Errorf("the content of a sequence is shown: %q", secret)
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
	return llmtest.Sequence(answer, llmtest.Text("It is "+control+" done.\x1b[2J\x1b]0;ev"))
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

// displaySequences are those of the program itself: it removes the status line and the rows below
// it, and colours words.
var displaySequences = regexp.MustCompile("\r\x1b\\[K|\x1b\\[A\x1b\\[K|\x1b\\[(?:0|31|32)m")

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
