package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
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

// cast is a model that plays a script for each agent, by the agent's ID, which is "" for the root.
// After the last answer of a script it answers "done".
type cast struct {
	scripts map[string][]answer

	mu       sync.Mutex
	requests map[string][]llm.Request
}

// one returns a cast whose root starts an agent with the script, and waits for it.
func one(args object, script ...answer) *cast {
	return &cast{scripts: map[string][]answer{
		"": {calls(spawn("a", args)), calls(onAgent("wait", "agent_1"))}, "agent_1": script,
	}}
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

func (c *cast) sent(id string) int {
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
		t.Fatalf("the agent %q sent %d requests, not %d", id, len(c.requests[id]), n+1)
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

// returned checks that the text of result has a part.
func (c *cast) returned(t *testing.T, id string, n, i int, part string) {
	t.Helper()
	if got := c.result(t, id, n, i); !strings.Contains(got, part) {
		t.Errorf("result %d in request %d of %q is %q, without %q", i, n, id, got, part)
	}
}

func toolNames(req llm.Request) []string {
	var names []string
	for _, s := range req.Tools {
		names = append(names, s.Name)
	}
	return names
}

// treeConfig configures an agent that may start others.
func treeConfig(c *cast, tools ...tool.Tool) agent.Config {
	cfg := config(c, tools...)
	cfg.Subagents = agent.Subagents{}
	return cfg
}

// stores returns the stores of a session and of its only sub-agent.
func stores(own, agents session.Store) func(string) (session.Store, error) {
	return func(id string) (session.Store, error) {
		if strings.Contains(id, "agent") {
			return agents, nil
		}
		return own, nil
	}
}

func spawn(id string, args object) llm.ToolCall {
	all := object{"task": "the task of " + id}
	for k, v := range args {
		all[k] = v
	}
	return call(id, "spawn_agent", all)
}

func onAgent(name, agentID string) llm.ToolCall {
	return call(name+agentID, name, object{"agent_id": agentID})
}

func send(agentID, message string) llm.ToolCall {
	return call("send"+message, "send_input", object{"agent_id": agentID, "message": message})
}

// blocker is a tool that reports its calls and blocks until free is closed or the call is
// cancelled.
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

// runs waits until n more calls run, or the context ends.
func (b *blocker) runs(n int) func(context.Context, llm.Request) {
	return func(ctx context.Context, _ llm.Request) {
		for range n {
			select {
			case <-b.running:
			case <-ctx.Done():
				return
			case <-time.After(3 * time.Minute):
				return
			}
		}
	}
}

func (b *blocker) call(id string) llm.ToolCall { return call(id, "block", nil) }

func submit(t *testing.T, s *agent.Session, text string) agent.RunResult {
	t.Helper()
	res, err := s.Submit(t.Context(), text)
	if err != nil {
		t.Fatalf("%q ended with %s, %v", text, res.Status, err)
	}
	return res
}

func TestSubagentSpawnAndWait_9_9_1_9_9_3_9_9_5(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var n callLog
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
	cfg := treeConfig(c, n.tool("look", true), tool.AskUser())
	cfg.Settings.Instructions = "Be brief."
	ev := watch(&cfg)
	s := newSession(t, cfg)
	res := submit(t, s, "the user's question")

	want := "agent_id: agent_1\nagent_type: general\nstatus: running"
	if got := c.result(t, "", 1, 0); got != want {
		t.Errorf("spawn_agent returned %q, not %q", got, want)
	}
	want = "agent_id: agent_1\nagent_type: general\nstatus: completed\nsuccess: true\nturns_used: " +
		"2\noutput:\nit is blue"
	if got := c.result(t, "", 2, 0); got != want {
		t.Errorf("wait returned %q, not %q", got, want)
	}
	first := c.request(t, "agent_1", 0)
	if len(first.Messages) != 1 || first.Messages[0].Text() != "the task of a" {
		t.Errorf("the sub-agent started with %+v", first.Messages)
	}
	if got := toolNames(first); !slices.Equal(got, []string{"look"}) {
		t.Errorf("the sub-agent has the tools %v", got)
	}
	user, kind := strings.Index(first.System, "Be brief."), strings.Index(first.System,
		"You were started by another agent")
	if user < 0 || kind < user {
		t.Errorf("the user's instructions stand at %d, the kind's at %d", user, kind)
	}
	for _, turn := range s.History() {
		if strings.Contains(turn.Text(), "I look") {
			t.Error("the history of the parent has a turn of the sub-agent")
		}
	}
	agents := []event.AgentResult{{
		ID: "agent_1", Kind: "general", Status: string(tool.AgentCompleted),
		Turns: 2, Usage: llm.Usage{Input: 300, Output: 2},
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
	checkTreeEvents(t, ev, "agent_1")
}

// checkTreeEvents checks the events of a closed session with sub-agents.
func checkTreeEvents(t *testing.T, ev *events, ids ...string) {
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
				t.Errorf("%s started outside its parent %q", e.AgentID, e.ParentID)
			}
		case event.KindSessionEnd:
			delete(open, e.AgentID)
			if e.AgentID == "" && len(open) > 0 {
				t.Errorf("the session ended before its agents %v", open)
			}
		default:
			if !open[e.AgentID] {
				t.Errorf("%s of %q is outside its session", e.Kind(), e.AgentID)
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
		t.Errorf("the events are of %q, not of %q", seen, want)
	}
}

func TestJournalsOfSubagents(t *testing.T) {
	stores := map[string]*recorder{}
	c := one(object{"agent_type": "explore"}, answer{text: "the answer"})
	cfg := treeConfig(c)
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
	var entry session.AgentStarted
	if got := find(own, "agent"); len(got) != 1 || json.Unmarshal([]byte(got[0]), &entry) != nil {
		t.Fatalf("the entries of agents are %q", got)
	}
	if want := (session.AgentStarted{
		RunID: res.RunID, AgentID: "agent_1", SessionID: s.ID() + "-agent_1", Kind: "explore",
		Task: "the task of a",
	}); entry != want {
		t.Errorf("the entry of the agent is %+v, not %+v", entry, want)
	}
	if ended := find(own, "run_ended"); len(ended) != 1 ||
		!strings.Contains(ended[0], `"agents":[{"id":"agent_1"`) {
		t.Errorf("the run ended with %q", ended)
	}
	want := []string{
		"session", "surroundings", "state", "run_started", "turn", "state", "prompt", "model_request",
		"turn", "state", "run_ended", "session_ended",
	}
	if got := child.types(); !slices.Equal(got, want) {
		t.Errorf("the sub-agent's journal has %v", got)
	}
	if got := own.types(); got[len(got)-1] != "session_ended" {
		t.Errorf("the journal has %v", got)
	}
}

// TestMessageAtTheEndOfATask sends a message to an agent that takes no steering any more and still
// counts as running. The message is the next task.
func TestMessageAtTheEndOfATask(t *testing.T) {
	var s *agent.Session
	var once sync.Once
	sent := ""
	c := one(nil, answer{text: "one"}, answer{text: "two"})
	cfg := treeConfig(c)
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		if e.AgentID != "" && e.Kind() == event.KindProcessingEnd {
			once.Do(func() {
				send, _ := s.Tools().Get("send_input")
				args := json.RawMessage(`{"agent_id": "agent_1", "message": "too late?"}`)
				r, err := send.Run(t.Context(), &tool.Call{Args: args})
				sent = fmt.Sprint(r.Text, err)
			})
		}
		return nil
	})
	s = newSession(t, cfg)
	submit(t, s, "go")
	if !strings.Contains(sent, "status: running") {
		t.Fatalf("the test is wrong: send_input returns %q", sent)
	}
	msgs := c.request(t, "agent_1", 1).Messages
	if got := msgs[len(msgs)-1].Text(); got != "too late?" {
		t.Errorf("the next task is %q", got)
	}
	if got := c.result(t, "", 2, 0); !strings.HasSuffix(got, "\ntwo") {
		t.Errorf("wait returns %q", got)
	}
}
