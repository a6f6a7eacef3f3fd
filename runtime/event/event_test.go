package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

var update = flag.Bool("update", false, "write the golden file")

// everyKind holds an event of each kind.
func everyKind() []event.Event {
	usage := llm.Usage{Input: 10, Output: 5, Reasoning: 2, CacheRead: 100, CacheWrite: 7}
	guarantees := []env.Guarantee{{Name: env.Isolation, Strength: env.BestEffort, By: "a fence"}}
	data := []event.Data{
		event.SessionStart{
			Profile: "openai", Model: "gpt-5", Backend: "local", WorkDir: "/w",
			Tools: []string{"shell"}, Guarantees: guarantees,
		},
		event.UserInput{Text: "fix it\n<now> & \"well\""},
		event.Status{From: "idle", Signal: "start", To: "preparing"},
		event.PermissionAsked{CallID: "c1", Tool: "shell", Parts: []event.PermissionPart{
			{
				Permission: "shell", Subject: "make", Decision: "ask", Rule: "ask shell:make *",
				Source: "p.yaml:3",
			},
			{Permission: "write", Subject: "/etc/x", Decision: "deny", Reason: "no rule matches"},
		}},
		event.PermissionReplied{CallID: "c1", Answer: "deny", By: "human", Message: "not today"},
		event.ModeChanged{Mode: "plan"},
		event.TextStart{},
		event.ReasoningDelta{Text: "hm"},
		event.TextDelta{Text: "I "},
		event.ContextUpdated{
			Action: event.ContextPruned, Before: 180_000, After: 90_000, Outputs: 12,
		},
		event.Retry{Attempt: 2, DelayMS: 500, Error: "openai: server (HTTP 500): oops"},
		event.TextEnd{Text: "I look", Reasoning: "hm", ToolCalls: 1, Model: "gpt-5", Usage: usage},
		event.ToolCallStart{CallID: "c1", Name: "shell", Arguments: `{"command":"ls"}`},
		event.ToolOutputDelta{CallID: "c1", Text: "a.go\n"},
		event.ToolCallEnd{
			CallID: "c1", Name: "shell", Result: "a.go\n", Output: event.InlineOutput([]byte("a.go\n")),
			DurationMS: 3, Changes: []event.FileChange{{Path: "a.go", Kind: event.FileModified}},
		},
		event.ToolCallEnd{
			CallID: "c2", Name: "shell", IsError: true, ErrorKind: "shell_exit",
			Result: "\uFFFD", Output: event.InlineOutput([]byte{0xff, 0}),
		},
		event.ToolCallEnd{
			CallID: "c3", Name: "shell", Result: "cut", Truncated: true,
			Output: event.Output{Size: 1 << 21, SHA256: "ab", File: "/s/outputs/1"},
		},
		event.SteeringInjected{Text: "left"},
		event.LoopDetection{Message: "again"},
		event.TurnLimit{Limit: "turns", Value: 5},
		event.Verify{Command: "go test", Passed: false, ExitCode: 1, Attempt: 1, DurationMS: 9},
		event.Warning{Code: "context_usage", Message: "80%"},
		event.Error{Code: "auth", Message: "no"},
		event.ProcessingEnd{
			Status: "completed", Usage: usage, ModelCalls: 2, ToolCalls: 1, DurationMS: 12,
		},
		event.Gap{Missed: 3},
		event.SessionEnd{State: "closed", Reason: "closed"},
		event.Result{
			Status: "completed", Text: "done", Model: "gpt-5", SessionID: "s1", SessionDir: "/s",
			Journal: "/s/journal.jsonl", Turns: 4, ModelCalls: 2, ToolCalls: 1, Usage: usage,
			Changes: []event.FileChange{
				{Path: "b", Kind: event.FileCreated},
				{Path: "c", Kind: event.FileModified, Insertions: 2, Deletions: 1},
			},
			ChangesIncomplete: "too large",
			Guarantees:        guarantees, DurationMS: 12, Agents: []event.AgentResult{{
				ID: "agent_1", Kind: "explore", Status: "completed", Turns: 4, Usage: usage,
			}},
		},
	}
	events := make([]event.Event, len(data))
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	for i, d := range data {
		events[i] = event.Event{Seq: int64(i + 1), Time: at, SessionID: "s1", RunID: "r1", Data: d}
	}
	return events
}

func TestGolden(t *testing.T) {
	var got bytes.Buffer
	enc := event.NewEncoder(&got)
	for _, e := range everyKind() {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join("testdata", "events.jsonl")
	if *update {
		if err := os.WriteFile(name, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the JSON format is public; new fields may be added (-want +got):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, want := range everyKind() {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(b, "\n\r\x00\x1b") {
			t.Errorf("%s is not one plain line: %q", want.Kind(), b)
		}
		var got event.Event
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(event.Output{}, "OpenFile"),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Kind(), diff)
		}
	}
}

func TestUnknownTypeIsAnError(t *testing.T) {
	for _, line := range []string{
		`{"type":"no_such_thing","seq":1,"data":{}}`, `{"seq":1}`, `[]`, `{"type":"warning","data":3}`,
	} {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			t.Errorf("%s was accepted", line)
		}
	}
}

func TestOutput(t *testing.T) {
	read := func(o event.Output) string {
		r, err := o.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close() //nolint:errcheck // it was only read
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(event.Output{}); got != "" {
		t.Errorf("the empty output holds %q", got)
	}
	if got := read(event.InlineOutput([]byte("abc"))); got != "abc" {
		t.Errorf("got %q", got)
	}
	stored := event.Output{Size: 4, OpenFile: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("file")), nil
	}}
	if got := read(stored); got != "file" {
		t.Errorf("got %q", got)
	}
	if _, err := (event.Output{Size: 9, File: "missing"}).Open(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an output that is not stored: %v", err)
	}
}
