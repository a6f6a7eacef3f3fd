package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestSubagentsEndWithTheirParent ends a session in every way while one sub-agent works and another
// one is idle.
func TestSubagentsEndWithTheirParent_9_10_4_9_11_5(t *testing.T) {
	tests := map[string]struct {
		end     func(s *agent.Session)
		timeOut bool
		status  agent.Status
	}{
		"its last text": {status: agent.StatusCompleted},
		"abort":         {end: (*agent.Session).Abort, status: agent.StatusAborted},
		"close": {
			end:    func(s *agent.Session) { go func() { _ = s.Close() }() },
			status: agent.StatusAborted,
		},
		"timeout": {timeOut: true, status: agent.StatusTimedOut},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			if !tt.timeOut {
				if started := endTree(t, tt.status, 0, tt.end); !started {
					t.Error("the sub-agents did not start")
				}
				return
			}
			for limit := 100 * time.Millisecond; !endTree(t, tt.status, limit, nil); limit *= 4 {
				if limit > time.Minute {
					t.Fatal("the sub-agents did not start")
				}
			}
		})
	}
}

// endTree reports whether the sub-agents had started when the session ended.
func endTree(
	t *testing.T, status agent.Status, limit time.Duration, end func(*agent.Session),
) bool {
	t.Helper()
	b := newBlocker()
	var s *agent.Session
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", nil)), calls(onAgent("wait", "agent_1")), calls(spawn("b", nil)),
			{text: "end", before: func(ctx context.Context, req llm.Request) {
				b.runs(1)(ctx, req)
				if end != nil {
					end(s)
				}
				if status != agent.StatusCompleted {
					<-ctx.Done()
				}
			}},
		},
		"agent_1": {{text: "ready"}},
		"agent_2": {calls(b.call("x"))},
	}}
	cfg := treeConfig(c, b.tool())
	cfg.Limits.MaxDuration = limit
	ev := watch(&cfg)
	s = newSession(t, cfg)
	var res agent.RunResult
	within(t, func() { res, _ = s.Submit(t.Context(), "go") })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if c.sent("agent_2") == 0 {
		return false
	}
	if res.Status != status {
		t.Fatalf("the run ended with %s, %v", res.Status, res.Err)
	}
	if len(res.Agents) != 2 || res.Agents[1].ID != "agent_2" ||
		res.Agents[1].Status != string(tool.AgentFailed) ||
		res.Agents[0].Status != string(tool.AgentCompleted) {
		t.Errorf("the result has %+v", res.Agents)
	}
	checkTreeEvents(t, ev, "agent_1", "agent_2")
	ended, run := ev.index(event.KindSessionEnd, "agent_2"), ev.index(event.KindProcessingEnd, "")
	if ended > run {
		t.Errorf("the sub-agent ended at %d, after the run at %d", ended, run)
	}
	if got := c.sent("agent_2"); got != 1 {
		t.Errorf("the sub-agent sent %d requests", got)
	}
	checkPairs(t, s.History())
	return true
}

// TestAgentsEndWithTheirRun starts a run after another ended while a sub-agent ran.
func TestAgentsEndWithTheirRun(t *testing.T) {
	b := newBlocker()
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", nil)),
			{text: "end", before: b.runs(1)},
			calls(onAgent("wait", "agent_1")), calls(spawn("b", nil)), calls(onAgent("wait", "agent_2")),
		},
		"agent_1": {calls(b.call("x"))},
		"agent_2": {{text: "new"}},
	}}
	s := newSession(t, treeConfig(c, b.tool()))
	submit(t, s, "go")
	res := submit(t, s, "again")
	c.returned(t, "", 3, 0, "is closed or was never started")
	if got := c.result(t, "", 5, 0); !strings.HasSuffix(got, "new") || len(res.Agents) != 1 {
		t.Errorf("the next agent returned %q, agents %+v", got, res.Agents)
	}
}

// TestSubagentEndings ends a sub-agent in different ways, and sends it another message.
func TestSubagentEndings(t *testing.T) {
	exit := func(code int) answer {
		return calls(call("x", "exit", object{"code": code, "reason": "because"}))
	}
	question := newTool("consult", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: "asked", Question: "left or right?"}, nil
	})
	tests := map[string]struct {
		script    []answer
		turns     int
		want      []string
		continues bool
	}{
		"text and exit": {
			[]answer{{text: "found", calls: exit(0).calls}},
			0,
			[]string{"status: completed", "output:\nfound\n\nbecause"},
			true,
		},
		"needs somebody": {[]answer{exit(2)}, 0, []string{
			"status: failed", "problem: it needs an answer: because",
		}, true},
		"question": {[]answer{calls(call("x", "consult", nil))}, 0, []string{
			"status: failed", "problem: it needs an answer: left or right?",
		}, true},
		"turns": {
			[]answer{calls(call("x", "missing", nil)), calls(call("y", "missing", nil))},
			2,
			[]string{"turns_used: 2\nproblem: the limit of turns was reached"},
			true,
		},
		"broken model": {
			[]answer{{err: &llm.Error{Kind: llm.KindAuth, Message: "bad key"}}},
			0,
			[]string{"status: failed", "bad key"},
			false,
		},
		"passing failure": {
			[]answer{{err: &llm.Error{Kind: llm.KindServer, Message: "busy"}}},
			0,
			[]string{"status: failed", "busy"},
			true,
		},
		"too long": {
			[]answer{{err: &llm.Error{Kind: llm.KindContextLength, Message: "full"}}},
			0,
			[]string{"status: failed", "full"},
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := object{}
			if tt.turns > 0 {
				args["max_turns"] = tt.turns
			}
			c := &cast{scripts: map[string][]answer{
				"": {
					calls(spawn("a", args)), calls(onAgent("wait", "agent_1")), calls(send("agent_1", "go on")),
				},
				"agent_1": tt.script,
			}}
			submit(t, newSession(t, treeConfig(c, tool.ExitTool(), question)), "go")
			got := c.result(t, "", 2, 0)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("wait returned %q, without %q", got, want)
				}
			}
			if strings.Contains(got, "agent: ") {
				t.Errorf("wait returned %q", got)
			}
			sent := c.result(t, "", 3, 0)
			if tt.continues != strings.Contains(sent, "status: running") ||
				tt.continues == strings.Contains(sent, "cannot continue") {
				t.Errorf("send_input returned %q", sent)
			}
		})
	}
}

// TestUndeliveredMessage sends a message to a sub-agent that gets no other request.
func TestUndeliveredMessage(t *testing.T) {
	began, sent := make(chan struct{}), make(chan struct{})
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", object{"max_turns": 1})),
			{
				calls:  []llm.ToolCall{send("agent_1", "look left")},
				before: func(context.Context, llm.Request) { <-began },
			},
			{
				calls:  []llm.ToolCall{onAgent("wait", "agent_1")},
				before: func(context.Context, llm.Request) { close(sent) },
			},
		},
		"agent_1": {{
			calls: []llm.ToolCall{call("x", "missing", nil)},
			before: func(context.Context, llm.Request) {
				close(began)
				<-sent
			},
		}},
	}}
	submit(t, newSession(t, treeConfig(c)), "go")
	want := "the limit of turns was reached; it did not get your last message"
	if got := c.result(t, "", 3, 0); !strings.Contains(got, want) {
		t.Errorf("wait returned %q", got)
	}
}

func TestLimitsOfAgents(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		b := newBlocker()
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("idle", nil)), calls(onAgent("wait", "agent_1")),
				calls(spawn("b", nil), spawn("c", nil), spawn("d", nil), send("agent_1", "more")),
				{text: "end", before: b.runs(2)},
			},
			"agent_2": {calls(b.call("x"))}, "agent_3": {calls(b.call("x"))},
		}}
		cfg := treeConfig(c, b.tool())
		cfg.Subagents.MaxRunning = 2
		submit(t, newSession(t, cfg), "go")
		for i, limited := range []bool{false, false, true, true} {
			if got := c.result(t, "", 3, i); limited != strings.Contains(got,
				"2 agents run already, which is the limit") {
				t.Errorf("result %d is %q", i, got)
			}
		}
	})
	t.Run("open", func(t *testing.T) {
		var script []answer
		for i := range 66 {
			script = append(script, calls(spawn(fmt.Sprint(i), nil)),
				calls(onAgent("wait", fmt.Sprintf("agent_%d", i+1))))
		}
		c := &cast{scripts: map[string][]answer{"": script}}
		submit(t, newSession(t, treeConfig(c)), "go")
		c.returned(t, "", 127, 0, "status: running")
		c.returned(t, "", 129, 0, "64 agents are open, which is the limit")
	})
}

// TestConcurrentSpawn uses the tools outside the loop, concurrently, while the session is aborted.
func TestConcurrentSpawn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b := newBlocker()
	c := &cast{scripts: map[string][]answer{"": {calls(b.call("hold"))}}}
	for i := range 100 {
		c.scripts[fmt.Sprintf("agent_%d", i)] = []answer{calls(b.call("x"))}
	}
	cfg := treeConfig(c, b.tool())
	cfg.Subagents.MaxRunning = 5
	refused := make(chan struct{}) // closed when 15 agents were refused
	cfg.Store = func(id string) (session.Store, error) {
		if strings.Contains(id, "agent") {
			select {
			case <-refused:
			case <-time.After(3 * time.Minute):
			}
		}
		return &recorder{}, nil
	}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	use := func(name, args string) (string, error) {
		t, _ := s.Tools().Get(name)
		r, err := t.Run(context.Background(), &tool.Call{Args: json.RawMessage(args)})
		return r.Text, err
	}
	if _, err := use("spawn_agent", `{"task": "early"}`); err == nil {
		t.Error("an agent started outside a run")
	}
	done := make(chan agent.RunResult)
	go func() {
		res, _ := s.Submit(context.Background(), "go")
		done <- res
	}()
	b.runs(1)(t.Context(), llm.Request{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	started, left := 0, 15
	for range 20 {
		wg.Go(func() {
			_, err := use("spawn_agent", `{"task": "t"}`)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				started++
			} else if left--; left == 0 {
				close(refused)
			}
		})
	}
	wg.Wait()
	if started != 5 {
		t.Errorf("%d agents were started", started)
	}
	for i := range 20 {
		args := fmt.Sprintf(`{"agent_id": "agent_%d", "message": "m", "task": "t"}`, i)
		for _, name := range []string{"wait", "send_input", "close_agent", "spawn_agent"} {
			wg.Go(func() { _, _ = use(name, args) })
		}
	}
	s.Abort()
	var res agent.RunResult
	within(t, func() { res = <-done; wg.Wait() })
	if res.Status != agent.StatusAborted {
		t.Errorf("the run ended with %s", res.Status)
	}
	_ = s.Close()
	if starts, ends := ev.count(event.KindSessionStart),
		ev.count(event.KindSessionEnd); starts != ends {
		t.Errorf("%d sessions started and %d ended", starts, ends)
	}
	if kinds := ev.kinds(); kinds[len(kinds)-1] != event.KindSessionEnd {
		t.Errorf("the last event is %s", kinds[len(kinds)-1])
	}
}

// TestSpawnDuringTheEndOfTheRun ends the run while Spawn creates an agent.
func TestSpawnDuringTheEndOfTheRun(t *testing.T) {
	b := newBlocker()
	c := &cast{scripts: map[string][]answer{"": {calls(b.call("hold"))}}}
	making, goOn := make(chan struct{}), make(chan struct{})
	cfg := treeConfig(c, b.tool())
	cfg.Store = func(id string) (session.Store, error) {
		if strings.Contains(id, "agent") {
			close(making)
			<-goOn
		}
		return &recorder{}, nil
	}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	spawned := make(chan error)
	go func() {
		<-b.running
		go func() { <-making; close(b.free) }()
		spawn, _ := s.Tools().Get("spawn_agent")
		_, err := spawn.Run(t.Context(), &tool.Call{Args: json.RawMessage(`{"task": "t"}`)})
		spawned <- err
	}()
	submit(t, s, "go")
	close(goOn)
	if err := <-spawned; !errors.Is(err, agent.ErrAborted) {
		t.Errorf("the agent was started: %v", err)
	}
	if err := s.Close(); err != nil || c.sent("agent_1") > 0 {
		t.Errorf("the agent sent %d requests, %v", c.sent("agent_1"), err)
	}
	checkTreeEvents(t, ev, "agent_1")
}

func TestRepeatedWaitIsNoLoop(t *testing.T) {
	script := []answer{calls(spawn("a", nil))}
	for range 15 {
		script = append(script, calls(onAgent("wait", "agent_1")))
	}
	c := &cast{scripts: map[string][]answer{"": script}}
	cfg := treeConfig(c)
	ev := watch(&cfg)
	submit(t, newSession(t, cfg), "go")
	if n := ev.count(event.KindLoopDetection); n > 0 {
		t.Errorf("%d warnings of a loop", n)
	}
}

// TestSubagentsEndBeforeVerify checks that no sub-agent runs during a check.
func TestSubagentsEndBeforeVerify(t *testing.T) {
	b := newBlocker()
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", nil)),
			{text: "end", before: b.runs(1)},
			calls(onAgent("wait", "agent_1")),
			{text: "end"},
		},
		"agent_1": {calls(b.call("x"))},
	}}
	cfg := treeConfigIn(t, t.TempDir(), c, b.tool())
	cfg.Verify = agent.Verify{Command: "exit 1", Attempts: 2}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	var res agent.RunResult
	within(t, func() { res, _ = s.Submit(t.Context(), "go") })
	if res.Status != agent.StatusVerifyFailed || len(res.Agents) != 1 {
		t.Errorf("the run ended with %s, agents %+v", res.Status, res.Agents)
	}
	ended, check := ev.index(event.KindSessionEnd, "agent_1"), ev.index(event.KindVerify, "")
	if ended < 0 || ended > check {
		t.Errorf("the agent ended at %d, the check at %d", ended, check)
	}
	c.returned(t, "", 3, 0, "no agent has this ID")
}
