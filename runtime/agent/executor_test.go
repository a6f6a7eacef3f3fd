package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestExecutor replaces the execution of tools: the executor gets each offered call, and its
// outcome is the result of that call, whatever IDs it has.
func TestExecutor(t *testing.T) {
	var ran callLog
	m := &model{answers: []answer{
		calls(call("a", "look", nil), call("b", "touch", nil), call("c", "missing", nil)),
	}}
	cfg := config(m, ran.tool("look", true), ran.tool("touch", false))
	var got []string
	cfg.Executor = func(
		ctx context.Context, tools *tool.Registry, s tool.Scope, c llm.ToolCall,
	) tool.Outcome {
		got = append(got, c.ID)
		if c.Name == "look" {
			return tool.Outcome{Result: llm.ToolResult{
				CallID: "other", Parts: []llm.Part{llm.Text("seen by the executor")},
			}}
		}
		return tools.Run(ctx, s, c)
	}
	s := newSession(t, cfg)
	if _, err := s.Submit(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"b"}; !slices.Equal(ran.calls(), want) {
		t.Errorf("the tools ran %v, want %v", ran.calls(), want)
	}
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the executor got %v, want %v", got, want)
	}
	results := m.request(t, 1).Messages[2].Parts
	if r := results[0].ToolResult; r.CallID != "a" || r.Name != "look" ||
		r.Text() != "seen by the executor" {
		t.Errorf("the result is %+v", r)
	}
}

// TestSessionOptions gives a session an ID and surroundings.
func TestSessionOptions(t *testing.T) {
	m := &model{}
	s, err := newAgent(t, config(m)).NewSession(t.Context(), agent.SessionOptions{
		ID: "mine", Surroundings: &profile.Surroundings{Date: "2001-02-03", Model: "m"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Submit(t.Context(), "go"); err != nil || s.ID() != "mine" {
		t.Errorf("session %q: %v", s.ID(), err)
	}
	if system := m.request(t, 0).System; !strings.Contains(system, "2001-02-03") {
		t.Errorf("the system prompt is %s", system)
	}
}
