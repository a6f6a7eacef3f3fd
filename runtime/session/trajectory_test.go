package session_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// trajectory has each kind of step.
func trajectory() *session.Record {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text := func(s string) []llm.Part { return []llm.Part{llm.Text(s)} }
	call := llm.ToolCall{ID: "c", Name: "shell", Arguments: `{"command":"x"}`}
	f := event.Failure{Kind: "shell_exit", CallID: "c", Learning: "no x"}
	return &session.Record{
		Conversation: []session.Turn{
			{Kind: session.TurnUser, Time: at, Parts: text("do it")},
			{Kind: session.TurnAssistant, Time: at, Parts: []llm.Part{
				{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: "hm"}},
				llm.Text("I try x."),
				{Kind: llm.PartToolCall, ToolCall: &call},
			}},
			{Kind: session.TurnToolResults, Results: []llm.ToolResult{
				{CallID: "c", Name: "shell", Parts: text("failed"), IsError: true},
			}},
			{Kind: session.TurnSteering, Time: at, Parts: text("find the cause")},
			{Kind: session.TurnAssistant, Time: at, Parts: text("x is missing"), Reflection: true},
			{Kind: session.TurnAssistant, Time: at, Parts: text("It cannot be done.")},
		},
		Failures: []session.Failure{{Failure: f}},
	}
}

func TestTrajectory(t *testing.T) {
	var got []string
	steps := trajectory().Trajectory()
	for i, s := range steps {
		got = append(got, fmt.Sprint(s.Kind, " ", s.Text, s.Arguments))
		if s.Number != i+1 {
			t.Errorf("step %d has the number %d", i, s.Number)
		}
	}
	want := []string{
		"input do it", "thought hm", "thought I try x.", `action {"command":"x"}`, "observation failed",
		"steering find the cause", "reflection x is missing", "answer It cannot be done.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if o := steps[4]; o.CallID != "c" || o.Tool != "shell" || !o.IsError || o.Failure == nil ||
		o.Failure.Learning != "no x" {
		t.Errorf("%+v", o)
	}
}

func TestTrajectoryIsReadBack(t *testing.T) {
	steps := trajectory().Trajectory()
	var b bytes.Buffer
	if err := session.WriteTrajectory(&b, "id", steps); err != nil {
		t.Fatal(err)
	}
	whole := b.String()
	id, got, err := session.ReadTrajectory(&b)
	if diff := cmp.Diff(steps, got); id != "id" || err != nil || diff != "" {
		t.Errorf("%s, %v\n%s", id, err, diff)
	}
	lines := slices.Collect(strings.Lines(whole))
	for name, text := range map[string]string{
		"nothing": "", "no header": strings.Join(lines[1:], ""),
		"a line less": strings.Join(lines[:8], ""),
		"half a line": whole[:len(whole)-20], "another format": `{"format":"x/1"}`,
	} {
		if _, _, err := session.ReadTrajectory(strings.NewReader(text)); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

func FuzzReadTrajectory(f *testing.F) {
	var b bytes.Buffer
	if err := session.WriteTrajectory(&b, "id", trajectory().Trajectory()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		id, steps, err := session.ReadTrajectory(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := session.WriteTrajectory(&b, id, steps); err != nil {
			t.Fatal(err)
		}
		if again, more, err := session.ReadTrajectory(&b); err != nil || again != id ||
			len(more) != len(steps) {
			t.Errorf("%q, %d steps, %v", again, len(more), err)
		}
	})
}
