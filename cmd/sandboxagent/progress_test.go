package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// TestPauseHoldsLines checks that lines during a question are written after it.
func TestPauseHoldsLines(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	defer p.close()
	p.pause(func() {
		p.observe(event.Event{Data: event.ToolCallEnd{Name: "ask_user", CallID: "c", Result: "asked"}})
		if b.Len() > 0 {
			t.Errorf("written during the question: %q", b.String())
		}
	})
	if !strings.HasPrefix(b.String(), "ok    ask_user") {
		t.Errorf("after the question: %q", b.String())
	}
}

// TestProgressOfAgents checks that lines name the agent of a call, where two agents use the same
// call IDs.
func TestProgressOfAgents(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	defer p.close()
	sub := event.Origin{AgentID: "agent_1"}
	for _, e := range []event.Event{
		{Data: event.ToolCallStart{
			Name: "read_file", CallID: "c",
			Arguments: `{"file_path":"of the parent"}`,
		}},
		{Origin: sub, Data: event.SessionStart{Model: "m", WorkDir: "/w/sub"}},
		{Origin: sub, Data: event.ToolCallStart{
			Name: "read_file", CallID: "c",
			Arguments: `{"file_path":"of the child"}`,
		}},
		{Origin: sub, Data: event.ToolCallEnd{
			Name: "read_file", CallID: "c", IsError: true,
			ErrorKind: "not_found",
		}},
		{Data: event.ToolCallEnd{Name: "read_file", CallID: "c"}},
		{Origin: sub, Data: event.Warning{Message: "beware"}},
		{Origin: sub, Data: event.ProcessingEnd{Status: "limit_reached"}},
		{Origin: sub, Data: event.ProcessingEnd{Status: "completed"}},
		{Data: event.ProcessingEnd{Status: "model_error"}}, // the summary reports the end of the run
	} {
		p.observe(e)
	}
	const want = `      agent_1: starts: m in /w/sub
fail  agent_1: read_file of the child (not_found, 0ms)
ok    read_file of the parent (0ms)
note  agent_1: beware
fail  agent_1: ended: limit reached
`
	if b.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", b.String(), want)
	}
}
