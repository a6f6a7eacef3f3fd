package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// cast is a model that plays a script for each agent, by the agent's ID; that of the session's own
// agent is "". After the last answer of a script it says "done".
type cast struct {
	scripts map[string][]answer

	mu       sync.Mutex
	requests map[string][]llm.Request
}

func (c *cast) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	_, id, _ := strings.Cut(req.SessionID, "-")
	if i := strings.LastIndex(id, "-"); i >= 0 {
		id = id[i+1:]
	}
	c.mu.Lock()
	if c.requests == nil {
		c.requests = map[string][]llm.Request{}
	}
	a := answer{text: "done"}
	if n := len(c.requests[id]); n < len(c.scripts[id]) {
		a = c.scripts[id][n]
	}
	req.Messages = slices.Clone(req.Messages)
	c.requests[id] = append(c.requests[id], req)
	c.mu.Unlock()
	return (&model{answers: []answer{a}}).Stream(ctx, req)
}

func (c *cast) asked(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests[id])
}

// request is request n of an agent.
func (c *cast) request(t *testing.T, id string, n int) llm.Request {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n >= len(c.requests[id]) {
		t.Fatalf("the agent %q asked the model %d times, not %d", id, len(c.requests[id]), n+1)
	}
	return c.requests[id][n]
}

// result is the text of result i of the tool calls that request n of an agent ends with.
func (c *cast) result(t *testing.T, id string, n, i int) string {
	t.Helper()
	msgs := c.request(t, id, n).Messages
	last := msgs[len(msgs)-1]
	for last.Role != llm.RoleTool && len(msgs) > 1 { // a steering message may follow
		msgs = msgs[:len(msgs)-1]
		last = msgs[len(msgs)-1]
	}
	if i >= len(last.Parts) || last.Parts[i].ToolResult == nil {
		t.Fatalf("request %d of %q does not end with %d results: %+v", n, id, i+1, last)
	}
	return last.Parts[i].ToolResult.Text()
}

func toolNames(req llm.Request) []string {
	var names []string
	for _, s := range req.Tools {
		names = append(names, s.Name)
	}
	return names
}

// family is a configuration whose agents may start others.
func family(c *cast, tools ...tool.Tool) agent.Config {
	cfg := config(c, tools...)
	cfg.Subagents = agent.Subagents{}
	return cfg
}

func spawn(id string, args map[string]any) llm.ToolCall {
	all := map[string]any{"task": "the task of " + id}
	for k, v := range args {
		all[k] = v
	}
	return call(id, "spawn_agent", all)
}

func onAgent(name, agentID string) llm.ToolCall {
	return call(name+agentID, name, map[string]any{"agent_id": agentID})
}

func send(agentID, message string) llm.ToolCall {
	return call("send"+message, "send_input", map[string]any{"agent_id": agentID, "message": message})
}

// blocker is a tool that tells when it runs and waits until it is let go, or its call is stopped.
type blocker struct {
	running chan string
	free    chan struct{}
}

func newBlocker() *blocker {
	return &blocker{running: make(chan string, 100), free: make(chan struct{})}
}

func (b *blocker) tool() tool.Tool {
	return newTool("block", false, func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		b.running <- c.ID
		select {
		case <-b.free:
			return tool.Result{Text: "free"}, nil
		case <-ctx.Done():
			return tool.Result{}, context.Cause(ctx)
		}
	})
}

// runs waits until n more calls run, or nobody wants them to.
func (b *blocker) runs(n int) func(context.Context, llm.Request) {
	return func(ctx context.Context, _ llm.Request) {
		for range n {
			select {
			case <-b.running:
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Second):
				return
			}
		}
	}
}

func (b *blocker) call(id string) llm.ToolCall { return call(id, "block", nil) }

func submit(t *testing.T, s *agent.Session, text string) agent.Result {
	t.Helper()
	res, err := s.Submit(t.Context(), text)
	if err != nil {
		t.Fatalf("%q ended with %s, %v", text, res.Status, err)
	}
	return res
}

func TestSubagentSpawnAndWait_9_9_1_9_9_3_9_9_5(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var n note
	usage := func(in int64) llm.Usage { return llm.Usage{Input: in, Output: 1} }
	c := &cast{scripts: map[string][]answer{
		"": {
			{calls: []llm.ToolCall{spawn("a", nil)}, usage: usage(10)},
			{calls: []llm.ToolCall{onAgent("wait", "agent_1")}, usage: usage(20)},
			{text: "all done", usage: usage(30)},
		},
		"agent_1": {
			{text: "I look", calls: []llm.ToolCall{call("x", "look", nil)}, usage: usage(100)},
			{text: "it is blue", usage: usage(200)},
		},
	}}
	ev := &events{}
	cfg := family(c, n.tool("look", true), tool.AskUser())
	cfg.Settings.Instructions = "Be brief."
	cfg.Sinks = append(cfg.Sinks, ev.sink)
	s := newSession(t, cfg)
	res := submit(t, s, "the user's question")

	if got, want := c.result(t, "", 1, 0), "agent_id: agent_1\nagent_type: general\nstatus: running"; got != want {
		t.Errorf("spawn_agent said %q, not %q", got, want)
	}
	want := "agent_id: agent_1\nagent_type: general\nstatus: completed\nsuccess: true\nturns_used: " +
		"4\noutput:\nit is blue"
	if got := c.result(t, "", 2, 0); got != want {
		t.Errorf("wait said %q, not %q", got, want)
	}
	first := c.request(t, "agent_1", 0)
	if len(first.Messages) != 1 || first.Messages[0].Text() != "the task of a" {
		t.Errorf("the sub-agent began with %+v", first.Messages)
	}
	if got := toolNames(first); !slices.Equal(got, []string{"look"}) {
		t.Errorf("the sub-agent has the tools %v", got)
	}
	own, kind := strings.Index(first.System, "Be brief."), strings.Index(first.System,
		"You were started by another agent")
	if own < 0 || kind < own {
		t.Errorf("the user's instructions stand at %d, the kind's at %d", own, kind)
	}
	for _, turn := range s.History() {
		if strings.Contains(turn.Text(), "I look") {
			t.Error("the history of the sub-agent is in that of its parent")
		}
	}
	agents := []event.AgentResult{{
		ID: "agent_1", Kind: "general", Status: string(tool.AgentCompleted),
		Turns: 4, Usage: llm.Usage{Input: 300, Output: 2},
	}}
	if diff := cmp.Diff(agents, res.Agents); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	if all := (llm.Usage{Input: 360, Output: 5}); res.Usage != all || s.Usage() != all ||
		res.ModelCalls != 3 {
		t.Errorf("the run used %+v in %d calls, the session %+v, not %+v", res.Usage, res.ModelCalls,
			s.Usage(), all)
	}
	checkPairs(t, s.History())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkFamilyEvents(t, ev, "agent_1")
}

// checkFamilyEvents checks what holds for the events of every closed session with sub-agents.
func checkFamilyEvents(t *testing.T, ev *events, ids ...string) {
	t.Helper()
	ev.mu.Lock()
	defer ev.mu.Unlock()
	open := map[string]bool{}
	var seen []string
	for i, e := range ev.all {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has the number %d", i+1, e.Seq)
		}
		if e.SessionID != ev.all[0].SessionID {
			t.Errorf("event %d is of the session %s", i, e.SessionID)
		}
		switch e.Kind() {
		case event.KindSessionStart:
			open[e.AgentID] = true
			seen = append(seen, e.AgentID)
			if e.AgentID != "" && !open[e.ParentID] {
				t.Errorf("%s began outside of its parent %q", e.AgentID, e.ParentID)
			}
		case event.KindSessionEnd:
			delete(open, e.AgentID)
			if e.AgentID == "" && len(open) > 0 {
				t.Errorf("the session ended before its agents %v", open)
			}
		default:
			if !open[e.AgentID] {
				t.Errorf("%s of %q is outside of its session", e.Kind(), e.AgentID)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("no session_end of %v", open)
	}
	if last := ev.all[len(ev.all)-1]; last.Kind() != event.KindSessionEnd || last.AgentID != "" {
		t.Errorf("the last event is %s of %q", last.Kind(), last.AgentID)
	}
	slices.Sort(seen)
	if want := append([]string{""}, ids...); !slices.Equal(seen, want) {
		t.Errorf("there are events of %q, not of %q", seen, want)
	}
}

func TestSubagentsAreKept(t *testing.T) {
	stores := map[string]*recorder{}
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", map[string]any{"agent_type": "explore"})),
			calls(onAgent("wait", "agent_1")),
		},
		"agent_1": {{text: "the answer"}},
	}}
	cfg := family(c)
	cfg.Store = func(id string) (session.Store, error) {
		stores[id] = &recorder{}
		return stores[id], nil
	}
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	own, child := stores[s.ID()], stores[s.ID()+"-agent_1"]
	if own == nil || child == nil {
		t.Fatalf("the stores are %v", stores)
	}
	find := func(r *recorder, typ string) (found []string) {
		for _, e := range r.entries {
			if e.typ == typ {
				found = append(found, e.data)
			}
		}
		return found
	}
	var entry struct {
		RunID     string `json:"run_id"`
		AgentID   string `json:"agent_id"`
		SessionID string `json:"session_id"`
		Kind      string
		Task      string
	}
	if got := find(own, "agent"); len(got) != 1 || json.Unmarshal([]byte(got[0]), &entry) != nil {
		t.Fatalf("the entries of agents are %q", got)
	}
	if entry.RunID != res.RunID || entry.AgentID != "agent_1" ||
		entry.SessionID != s.ID()+"-agent_1" || entry.Kind != "explore" || entry.Task != "the task of a" {
		t.Errorf("the entry of the agent is %+v", entry)
	}
	if ended := find(own, "run_ended"); len(ended) != 1 || !strings.Contains(ended[0],
		`"agents":[{"id":"agent_1"`) {
		t.Errorf("the run ended with %q", ended)
	}
	want := []string{
		"session", "surroundings", "run_started", "turn", "prompt", "turn", "run_ended",
		"session_ended",
	}
	if got := child.types(); !slices.Equal(got, want) {
		t.Errorf("the sub-agent's journal has %v", got)
	}
	if got := own.types(); got[len(got)-1] != "session_ended" {
		t.Errorf("the journal has %v", got)
	}
}

func TestSubagentsOnDiskCanBeReadBack(t *testing.T) {
	dir := t.TempDir()
	c := &cast{scripts: map[string][]answer{"": {
		calls(spawn("a", nil)),
		calls(onAgent("wait", "agent_1")),
	}}}
	cfg := family(c)
	cfg.Store = session.OnDisk(dir)
	s := newSession(t, cfg)
	submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{s.ID(), s.ID() + "-agent_1"} {
		if found, err := filepath.Glob(filepath.Join(dir, id, "*")); err != nil || len(found) == 0 {
			t.Errorf("nothing is kept of %s: %v", id, err)
		}
	}
}

func TestSubagentDepth_9_9_4(t *testing.T) {
	names := []string{"spawn_agent", "send_input", "wait", "close_agent"}
	tests := map[int]struct{ own, child, grandchild []string }{
		-1: {},
		0:  {own: names},
		1:  {own: names},
		2:  {own: names, child: names},
		3:  {own: names, child: names, grandchild: names},
	}
	for depth, want := range tests {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			u := llm.Usage{Input: 1}
			c := &cast{scripts: map[string][]answer{
				"": {
					{calls: []llm.ToolCall{spawn("a", nil)}, usage: u},
					{calls: []llm.ToolCall{onAgent("wait", "agent_1")}, usage: u},
					{text: "ok", usage: u},
				},
				"agent_1": {
					{calls: []llm.ToolCall{spawn("b", nil)}, usage: u},
					{calls: []llm.ToolCall{onAgent("wait", "agent_1_1")}, usage: u},
					{text: "ok", usage: u},
				},
				"agent_1_1": {{text: "deep", usage: u}},
			}}
			ev := &events{}
			cfg := family(c)
			cfg.Subagents.MaxDepth = depth
			cfg.Sinks = append(cfg.Sinks, ev.sink)
			s := newSession(t, cfg)
			res := submit(t, s, "go")
			_ = s.Close()
			if got := toolNames(c.request(t, "", 0)); !slices.Equal(got, want.own) {
				t.Errorf("the tools are %v", got)
			}
			if depth < 0 {
				return
			}
			if got := toolNames(c.request(t, "agent_1", 0)); !slices.Equal(got, want.child) {
				t.Errorf("the sub-agent's tools are %v", got)
			}
			if depth < 2 {
				if got := c.result(t, "agent_1", 1, 0); !strings.Contains(got, "spawn_agent") ||
					c.asked("agent_1_1") > 0 {
					t.Errorf("a sub-agent that starts another was told %q", got)
				}
				return
			}
			if got := toolNames(c.request(t, "agent_1_1", 0)); !slices.Equal(got, want.grandchild) {
				t.Errorf("the tools of the sub-agent's own are %v", got)
			}
			if got := c.result(t, "agent_1", 2, 0); !strings.Contains(got, "agent_id: agent_1_1\n") ||
				!strings.Contains(got, "deep") {
				t.Errorf("the sub-agent was told %q", got)
			}
			if all := (llm.Usage{Input: 7}); res.Usage != all || s.Usage() != all {
				t.Errorf("the run used %+v, the session %+v", res.Usage, s.Usage())
			}
			var ended []string
			for _, a := range res.Agents {
				ended = append(ended, a.ParentID+">"+a.ID)
			}
			if !slices.Equal(ended, []string{"agent_1>agent_1_1", ">agent_1"}) {
				t.Errorf("the agents ended in the order %v", ended)
			}
			checkFamilyEvents(t, ev, "agent_1", "agent_1_1")
			for _, e := range ev.all {
				if e.AgentID == "agent_1_1" && e.ParentID != "agent_1" {
					t.Fatalf("an event of agent_1_1 has the parent %q", e.ParentID)
				}
			}
		})
	}
}

// TestSubagentsWorkBesideEachOther ends only if two sub-agents run at once and both are waited for
// at once.
func TestSubagentsWorkBesideEachOther(t *testing.T) {
	var met sync.WaitGroup
	met.Add(2)
	meet := newTool("meet", false, func(context.Context, *tool.Call) (tool.Result, error) {
		met.Done()
		met.Wait()
		return tool.Result{Text: "met"}, nil
	})
	c := &cast{scripts: map[string][]answer{
		"": {calls(spawn("a", nil), spawn("b", nil)), calls(onAgent("wait", "agent_2"),
			onAgent("wait", "agent_1"))},
		"agent_1": {calls(call("x", "meet", nil)), {text: "first"}},
		"agent_2": {calls(call("x", "meet", nil)), {text: "second"}},
	}}
	ev := &events{}
	cfg := family(c, meet)
	cfg.Sinks = append(cfg.Sinks, ev.sink)
	s := newSession(t, cfg)
	within(t, func() { submit(t, s, "go") })
	for i, want := range []string{"second", "first"} {
		if got := c.result(t, "", 2, i); !strings.HasSuffix(got, want) {
			t.Errorf("result %d is %q", i, got)
		}
	}
	_ = s.Close()
	checkFamilyEvents(t, ev, "agent_1", "agent_2")
}
