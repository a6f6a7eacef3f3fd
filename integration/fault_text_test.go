package integration_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// noText is NUL, bytes that are no UTF-8 and half of a surrogate pair; noTextShown is its form for
// a model.
const (
	noText      = "a\x00b\xff\xfec\xed\xa0\x80d\n"
	noTextShown = "a\u2400b\ufffd\ufffdc\ufffd\ufffd\ufffdd\n"
)

// noTextCommand prints noText.
const noTextCommand = `printf 'a\000b\377\376c\355\240\200d\n'`

// splitCommand prints noText, and then characters in two writes each: it goes on when a file
// exists.
const splitCommand = noTextCommand + `
printf 'gr\303\274n \342'
until test -e one; do sleep 0.01; done
printf '\202\254 \360\237'
until test -e two; do sleep 0.01; done
printf '\230\200 end \303'`

const (
	splitText  = "gr\u00fcn \u20ac \U0001f600 end "
	splitBytes = noText + splitText + "\xc3"
)

func proveBytes(t *testing.T, w wire) {
	calls := []llmtest.Call{
		shell("echo neighbour äöü"),
		shell(splitCommand),
		shell("head -c 1500000 /dev/urandom | tee random"),
		use("read_file", map[string]any{"file_path": "latin1"}),
		use("grep", map[string]any{"pattern": "caf"}),
		{Name: "write_file", Arguments: `{"file_path":"halves","content":"x\ud800y\udc00z ü"}`},
		use("read_file", map[string]any{"file_path": "image"}),
		shell("echo neighbour äöü"),
	}
	var s *session
	text, split := "", ""
	s = wireSession(t, w, llmtest.Sequence(llmtest.Use(calls...), llmtest.Text("ok")),
		func(c *agent.Config) {
			c.Sinks = append(c.Sinks, func(e event.Event) error {
				if start, ok := e.Data.(event.ToolCallStart); ok && strings.Contains(start.Arguments,
					"until test") {
					split = start.CallID
				}
				d, ok := e.Data.(event.ToolOutputDelta)
				if !ok {
					return nil
				}
				if !utf8.ValidString(d.Text) {
					t.Errorf("a piece of output is no text: %q", d.Text)
				}
				if d.CallID != split {
					return nil
				}
				text += d.Text
				// The first part of the next character has been written by now, or will be before the second.
				for name, seen := range map[string]string{"one": "gr\u00fcn ", "two": "\u20ac "} {
					if strings.Contains(text, seen) {
						s.write(name, "")
					}
				}
				return nil
			})
		})
	s.write("latin1", "caf\xe9 ol\xe9 ü\nnext line\n")
	s.write("image", "GIF8\x00\x01\x02\xff\xfe"+strings.Repeat("\x00", 100))
	s.submit("go")

	shown := s.shown(1)
	if len(shown) != len(calls) {
		t.Fatalf("%d results", len(shown))
	}
	for i, text := range shown {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Errorf("result %d is no text: %.200q", i, text)
		}
	}
	wantContains(t, "the first neighbour", shown[0], "neighbour äöü\n")
	wantContains(t, "the result", shown[1], noTextShown+splitText+"\ufffd\n[exit code 0")
	wantContains(t, "the file", shown[3], "caf\ufffd ol\ufffd ü", "next line")
	wantContains(t, "the matches", shown[4], "caf\ufffd ol\ufffd ü")
	wantContains(t, "the last neighbour", shown[7], "neighbour äöü\n")
	wantContains(t, "the pieces", text, splitText)
	if got := s.read("halves"); got != "x\ufffdy\ufffdz ü" {
		t.Errorf("the file holds %q", got)
	}
	for i, r := range s.server.Requests() {
		if !utf8.Valid(r.Body) || !json.Valid(r.Body) || bytes.Contains(r.Body, []byte(`\u0000`)) {
			t.Errorf("request %d is no JSON text without NUL", i)
		}
	}
	ends := data[event.ToolCallEnd](s)
	wantBytes(t, ends[1].Output, []byte(splitBytes))
	wantBytes(t, ends[2].Output, []byte(s.read("random")))
	if ends[2].Output.File == "" {
		t.Error("more than a megabyte is held in memory")
	}
	checkLines(t, s)
}

// wantBytes checks that an output begins with raw; a summary of the tool follows.
func wantBytes(t *testing.T, o event.Output, raw []byte) {
	t.Helper()
	r, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	all, err := io.ReadAll(r)
	if err != nil || int64(len(all)) != o.Size || !bytes.HasPrefix(all, raw) {
		t.Errorf("the output of %d bytes, %v, does not begin with the %d bytes that were written",
			len(all), err, len(raw))
	}
}

// checkLines checks that the events survive encoding and decoding as lines of JSON.
func checkLines(t *testing.T, s *session) {
	t.Helper()
	var lines bytes.Buffer
	enc := event.NewEncoder(&lines)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for line := range bytes.Lines(lines.Bytes()) {
		var back event.Event
		if err := json.Unmarshal(line, &back); err != nil || !utf8.Valid(line) {
			t.Fatalf("line %d is no event: %v", n, err)
		}
		was, isEnd := s.events[n].Data.(event.ToolCallEnd)
		if is, ok := back.Data.(event.ToolCallEnd); isEnd && (!ok || !bytes.Equal(is.Output.Inline,
			was.Output.Inline) || is.Output.SHA256 != was.Output.SHA256) {
			t.Errorf("line %d lost bytes of the output", n)
		}
		n++
	}
	if n != len(s.events) {
		t.Errorf("%d events made %d lines", len(s.events), n)
	}
}

// control has the sequences that a terminal acts on: the clipboard, a link, a device control
// string, an erased screen, a title, C1 controls, a line written over, the writing direction, a
// bell and a backspace. controlCommand prints it.
const (
	control = "\x1b]52;c;aGk=\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;" +
		"\x1b\\\x1bPq#0\x1b\\\x1b[2J\x1b[H\x1b]0;evil\x07" +
		"\u009b31m\u0085over\rseen\u202ecod.exe\u2066x\x07\x08\x7f"
	controlCommand = `printf '\033]52;c;aGk=\007\033]8;;http://evil.example\033\\link\033]8;;` +
		`\033\\\033Pq#0\033\\\033[2J\033[H\033]0;evil\007` +
		`\302\23331m\302\205over\rseen\342\200\256cod.exe\342\201\246x\007\010\177\233\n'`
)

// controls returns where text has something that a terminal acts on, but for line break and tab; -1
// if nowhere.
func controls(text string) int {
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\n' || r == '\t':
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 &&
			r <= 0x2069, r == utf8.RuneError && size == 1:
			return i
		}
	}
	return -1
}

// controlAnswers has control sequences in all texts of a model.
func controlAnswers() llmtest.Brain {
	answer := llmtest.Use(shell(controlCommand), shell("echo neighbour"))
	answer.Text, answer.Reasoning = "I look"+control, "I think"+control
	return llmtest.Sequence(answer, llmtest.Text("done"+control))
}

func proveControl(t *testing.T, w wire) {
	s := wireSession(t, w, controlAnswers())
	s.submit("go")
	shown := s.shown(1)
	if i := controls(shown[0]); i >= 0 {
		t.Errorf("the model is shown %q", shown[0][i:])
	}
	wantContains(t, "the result", shown[0], "seen", "cod.exe", "[exit code 0")
	wantContains(t, "the neighbour", shown[1], "neighbour\n")
	for _, secret := range []string{"aGk=", "evil", "over"} {
		if strings.Contains(shown[0], secret) {
			t.Errorf("the model is shown the content of a sequence, %q: %q", secret, shown[0])
		}
	}
}
