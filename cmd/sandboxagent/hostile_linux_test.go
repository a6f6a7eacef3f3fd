package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// sequences are texts that a terminal obeys, or that hide text from a reader.
var sequences = []string{
	"\x1b]0;title\x07", "\x1b]52;c;aGk=\x1b\\", "\x1b[2J", "\x1b[1;1H", "\x1b[?1049h", "\x1b[8m",
	"\x1bc",
	"\x1b(0", "\x1bP+q544e\x1b\\", "\x1b]8;;http://x\x07", "\x1b_x\x1b\\", "\x1b", "\x1b[", "\x1b]",
	"\u009b2J", "\u009d0;x\u009c", "\u0090", "\u0085", "\r", "\b\b\b", "\x07", "\x00", "\x0e", "\x7f",
	"\u202e", "\u2066", "\x1b\x1b[5n", "\x1b[6n\n\x1b[c",
}

// hostile returns texts with sequences in random places.
type hostile struct{ *rand.Rand }

func (h hostile) text() string {
	var b strings.Builder
	for range 1 + h.IntN(12) {
		b.WriteString(sequences[h.IntN(len(sequences))])
		if h.IntN(3) > 0 {
			b.WriteString([]string{"a", " word ", "é", "日本", "/"}[h.IntN(5)])
		}
	}
	return b.String()
}

// args returns arguments as JSON, whose values stay hostile when they are decoded.
func (h hostile) args(pairs ...string) string {
	fields := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// answers returns a model that ends a run with an answer, the reason of an exit or an error, all of
// whose texts are hostile. dir is the name of a directory.
func (h hostile) answers(dir, end string) llmtest.Brain {
	call := func(name, args string) llmtest.Call {
		return llmtest.Call{ID: h.text(), Name: name, Arguments: args}
	}
	script := "printf '%s\\n' '" + strings.ReplaceAll(h.text(), "\x00", "") + "'; false"
	round := llmtest.Use(
		call(h.text(), h.args("command", h.text())),
		call("shell"+h.text(), h.text()),
		call("shell", h.args("command", script)),
		call("read_file", h.args("file_path", h.text())),
		call("grep", h.args("pattern", h.text(), "path", h.text())),
		call("apply_patch", h.args("patch", "*** Begin Patch\n*** Add File: "+h.text())),
		call("spawn_agent", h.args("task", h.text(), "working_dir", dir)),
		call("spawn_agent", h.args("task", h.text(), "working_dir", h.text(), "name", h.text())),
		call("wait", `{}`),
	)
	round.Text, round.Reasoning, round.Model = h.text(), h.text(), h.text()
	last := llmtest.Reply{Text: h.text(), Model: h.text()}
	reason, err := json.Marshal(h.text())
	if err != nil {
		panic(err)
	}
	switch end {
	case "exit":
		last.Calls = []llmtest.Call{call("exit", `{"code":1,"reason":`+string(reason)+`}`)}
	case "error":
		last.Fault = llmtest.Fault{Status: 400, Code: h.text(), Type: h.text(), Message: h.text()}
	case "raw error":
		last.Fault = llmtest.Fault{Status: 404, Body: h.text() + "\xff\x9b2J"}
	case "error in a stream":
		last.Fault = llmtest.Fault{Fail: llmtest.AtText, Code: "invalid_request_error", Message: h.text()}
	}
	rounds := 0
	return func(r *llmtest.Request) llmtest.Reply {
		switch rounds++; {
		case rounds == 1:
			return llmtest.Reply{Fault: llmtest.Fault{Status: 503, Message: h.text(), Body: h.text()}}
		case rounds == 2:
			return round
		case len(r.Messages) == 1:
			return llmtest.Text(h.text()) // of a sub-agent
		}
		return last
	}
}

// TestHostileModel checks that nothing of an answer makes a terminal do anything, whichever text of
// the answer has it, and that standard error has no such text for a terminal that shows it later.
func TestHostileModel(t *testing.T) {
	for i, end := range []string{"answer", "exit", "error", "raw error", "error in a stream"} {
		for _, onTerminal := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, terminal: %t", end, onTerminal), func(t *testing.T) {
				h := hostile{rand.New(rand.NewPCG(uint64(i), 0))}
				dir := "d\x1b]0;dir\x07\x1b[2J\u009b2J"
				server := llmtest.NewServer(t, h.answers(dir, end))
				p := newProcess(t, "run", "--yes", "--sandbox=off", "--model=openai-compatible/m",
					"--base-url="+server.URL(), "a task")
				p.Env = append(p.Env, "SANDBOXAGENT_API_KEY="+server.Key())
				if err := os.Mkdir(filepath.Join(p.dir, dir), 0o700); err != nil {
					t.Fatal(err)
				}
				text := ""
				if onTerminal {
					_, text = openTerminal(t, p).end(p)
					text = drawing.ReplaceAllString(text, "")
				} else {
					if err := p.Start(); err != nil {
						t.Fatal(err)
					}
					p.code(t)
					text = p.stderr.String()
				}
				if part := obeyed(text); part != "" {
					t.Errorf("a terminal obeys %q", part)
				}
				if !strings.Contains(text, "agent_1: starts") {
					t.Errorf("the run did not get far: %q", text)
				}
			})
		}
	}
}

// TestLargeAnswer checks that a run ends with a model error that names the bound of an answer.
func TestLargeAnswer(t *testing.T) {
	many := make([]llmtest.Call, llm.MaxToolCalls+1)
	for i := range many {
		many[i] = llmtest.Call{Name: "list_dir", Arguments: `{"path":"."}`}
	}
	content := strings.Repeat("x", llm.MaxArguments)
	for name, tt := range map[string]struct {
		reply llmtest.Reply
		want  string
	}{
		"calls": {llmtest.Use(many...), "more than 256 tool calls"},
		"arguments": {llmtest.Use(llmtest.Call{
			Name: "write_file", Arguments: `{"file_path":"f","content":"` + content + `"}`,
		}), "the arguments of a tool call are longer than 4 MiB"},
		"answer": {llmtest.Text(strings.Repeat(content, 9)), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			server := llmtest.NewServer(t, llmtest.Sequence(tt.reply))
			p := newProcess(t, "run", "--yes", "--sandbox=off", "--model=openai-compatible/m",
				"--base-url="+server.URL(), "--output=json", "a task")
			p.Env = append(p.Env, "SANDBOXAGENT_API_KEY="+server.Key())
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			code := p.code(t)
			if n := len(server.Requests()); code != codeModel || n != 1 {
				t.Errorf("exit code %d after %d requests", code, n)
			}
			for _, text := range []string{p.stdout.String(), p.stderr.String()} {
				if !strings.Contains(text, tt.want) {
					t.Errorf("%q is not in %.500s", tt.want, text)
				}
			}
		})
	}
}
