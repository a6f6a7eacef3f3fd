package agent_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

var update = flag.Bool("update", false, "write testdata/trace.golden")

// trace is a store and a sink that write journal entries and events into one list.
type trace struct {
	recorder
	mu    sync.Mutex
	lines []string
}

func (r *trace) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, duration.ReplaceAllString(line, `"duration_ms":0`))
}

var duration = regexp.MustCompile(`"duration_ms":\d+`)

func (r *trace) Append(typ string, data any) error {
	b, err := json.Marshal(data)
	r.add("journal " + typ + " " + string(b))
	return err
}

func (r *trace) Sync() error {
	r.add("sync")
	return nil
}

func (r *trace) sink(e event.Event) error {
	b, err := json.Marshal(e)
	r.add("event " + string(b))
	return err
}

// TestTrace compares every event, journal entry and sync of a session, in their order, with a
// golden file. The event stream and the journal are public formats.
func TestTrace(t *testing.T) {
	var n callLog
	exit := newTool("exit", false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		return tool.Result{Exit: &tool.Exit{Code: 1, Reason: "no way"}}, nil
	})
	ask := newTool("ask_user", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Question: "which one?"}, nil
	})
	touch := newTool("touch", false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		_, err := c.Out.Write([]byte("né"))
		return tool.Result{Changes: []event.FileChange{{Path: "f", Kind: event.FileCreated}}}, err
	})
	usage := llm.Usage{Input: 400, Output: 20}
	m := &model{answers: []answer{
		{
			text: "reading", usage: usage,
			calls: []llm.ToolCall{call("a", "look", nil), call("a", "look", nil)},
		},
		{calls: []llm.ToolCall{call("", "touch", nil), call("x", "missing", nil)}, usage: usage},
		{calls: []llm.ToolCall{call("q", "ask_user", nil), call("r", "touch", nil)}},
		{},
		{text: "done", usage: llm.Usage{Input: 900, Output: 1}},
		calls(call("l", "look", nil), call("l2", "look", nil), call("l3", "look", nil)),
		calls(call("e", "exit", nil), call("f", "touch", nil)),
		calls(call("g", "touch", nil)),
		{text: "so far", usage: usage},
		{err: &llm.Error{Kind: llm.KindAuth, Message: "no"}},
	}}
	log := &trace{}
	cfg := config(m, n.tool("look", true), touch, ask, exit)
	cfg.Profile.SupportsParallelToolCalls = false
	cfg.Limits.LoopWindow, cfg.FinalAnswer = 3, true
	cfg.Store = func(string) (session.Store, error) { return log, nil }
	cfg.Sinks = append(cfg.Sinks, log.sink)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg.Clock = &movable{now: &now}
	cfg.Answer = func(context.Context, string) (string, error) { return "the left one", nil }
	var s *agent.Session
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		if input, ok := e.Data.(event.UserInput); ok && input.Text == "start" {
			return s.Steer("be careful")
		}
		return nil
	})
	s = newSession(t, cfg)
	s.FollowUp("go on")
	inputs := []agent.Input{
		{Text: "start", Hints: []string{"a hint"}},
		{Text: "limited", Limits: &agent.Limits{MaxToolCalls: 1}},
		{Text: "fail", Instructions: "be brief"},
	}
	for _, in := range inputs {
		res, _ := s.Run(t.Context(), in)
		log.add("status " + string(res.Status))
	}
	_ = s.Close()
	got := strings.Join(log.lines, "\n") + "\n"
	const golden = "testdata/trace.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
