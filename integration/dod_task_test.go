package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// proveParallelCalls has three calls that wait for each other, then calls of several tools, and
// then two that change something, which must not overlap.
func proveParallelCalls(t *testing.T, p provider) {
	var together sync.WaitGroup
	together.Add(3)
	meet := custom("meet", "")
	meet.ReadOnly = true
	meet.Run = func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		var args struct{ Target string }
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return tool.Result{}, err
		}
		together.Done()
		all := make(chan struct{})
		go func() { together.Wait(); close(all) }()
		select {
		case <-all:
			return tool.Result{Text: args.Target + " met the others"}, nil
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		case <-time.After(3 * time.Minute):
			return tool.Result{}, errors.New("the other calls do not run at the same time")
		}
	}
	target := func(name string) llmtest.Call { return use("meet", map[string]any{"target": name}) }
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(target("ann"), target("bob"), target("cid")),
		llmtest.Use(readFile("a.txt"), use("grep", map[string]any{"pattern": "in b"}),
			readFile("nowhere.txt"), readFile("b.txt")),
		llmtest.Use(shell("mkdir lock && sleep 0.2 && rmdir lock"),
			shell("mkdir lock && rmdir lock && echo free")),
		llmtest.Text("done"),
	), func(c *agent.Config) { c.Tools = []tool.Tool{meet} })
	s.write("a.txt", "this is in a\n")
	s.write("b.txt", "this is in b\n")
	res := s.submit("go")
	if !s.request(0).ParallelToolCalls {
		t.Error("the model may not call several tools at once")
	}
	if diff := cmp.Diff([]string{"ann met the others", "bob met the others", "cid met the others"},
		s.shown(1)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	for i, want := range []string{
		"this is in a", "b.txt:1:this is in b", "nowhere.txt does not exist", "this is in b",
	} {
		wantContains(t, "a result", s.shown(2)[i], want)
	}
	p.wantResults(t, s.request(2), false, false, true, false)
	p.wantResults(t, s.request(3), false, false)
	wantContains(t, "the last result", s.shown(3)[1], "free\n")
	var overlapping int
	for i, c := range res.ToolCalls[:3] {
		for _, other := range res.ToolCalls[:i] {
			if other.Started.Before(c.Started.Add(c.Duration)) &&
				c.Started.Before(other.Started.Add(other.Duration)) {
				overlapping++
			}
		}
	}
	if overlapping != 3 {
		t.Errorf("%d of 3 pairs of calls overlap in the record: %+v", overlapping, res.ToolCalls[:3])
	}
}

// proveSteeringMidTask steers a model during a run.
func proveSteeringMidTask(t *testing.T, p provider) {
	var s *session
	s = p.session(t, func(r *llmtest.Request) llmtest.Reply {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case r.Number == 0:
			if err := s.Steer("write right.txt and not wrong.txt"); err != nil {
				t.Error(err)
			}
			return llmtest.Use(shell("echo preparing"))
		case r.Number == 1 && last.Role == llm.RoleUser && strings.Contains(last.Text(), "right.txt"):
			return llmtest.Use(p.create("right.txt", "right\n"))
		case r.Number == 1:
			return llmtest.Use(p.create("wrong.txt", "wrong\n"))
		}
		return llmtest.Text("I wrote it.")
	})
	s.submit("write wrong.txt")
	s.wantFile("right.txt", "right\n")
	if _, err := s.env.Stat(t.Context(), "wrong.txt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("wrong.txt exists (%v)", err)
	}
	wantContains(t, "the result before the message", s.shown(1)[0], "preparing\n")
	if steered := data[event.SteeringInjected](s); len(steered) != 1 ||
		steered[0].Text != "write right.txt and not wrong.txt" {
		t.Errorf("events %+v", steered)
	}
	steering := func(turn journal.Turn) bool { return turn.Kind == journal.TurnSteering }
	if n := slices.IndexFunc(s.History(), steering); n != 3 {
		t.Errorf("the message is turn %d of the history", n)
	}
	inOrder(t, s.kinds(), event.KindToolCallEnd, event.KindSteeringInjected, event.KindTextEnd,
		event.KindToolCallStart, event.KindProcessingEnd)
}

// proveEffortChange changes the effort between two calls of the model, and unsets it. Models of one
// provider may have different parameters for it.
func proveEffortChange(t *testing.T, p provider) {
	type effort struct{ model, low, medium, none string }
	tests := map[string][]effort{
		"openai": {{"gpt-5.2", `{"effort":"low"}`, `{"effort":"medium"}`, "null"}},
		"anthropic": {
			{
				"claude-sonnet-4-5", `{"budget_tokens":4096,"type":"enabled"}`,
				`{"budget_tokens":12288,"type":"enabled"}`, "null",
			},
			{"claude-opus-4-6", `{"effort":"low"}`, `{"effort":"medium"}`, "null"},
		},
		"gemini": {
			{
				"gemini-2.5-pro", `{"includeThoughts":true,"thinkingBudget":1024}`,
				`{"includeThoughts":true,"thinkingBudget":8192}`, `{"includeThoughts":true}`,
			},
			{
				"gemini-3-pro-preview", `{"includeThoughts":true,"thinkingLevel":"LOW"}`,
				`{"includeThoughts":true,"thinkingLevel":"MEDIUM"}`, `{"includeThoughts":true}`,
			},
		},
	}
	for _, tt := range tests[p.name] {
		t.Run(tt.model, func(t *testing.T) {
			var s *session
			s = p.session(t, func(r *llmtest.Request) llmtest.Reply {
				reply := llmtest.Reply{Reasoning: "I think.", Calls: []llmtest.Call{shell("true")}}
				switch r.Number {
				case 0:
					s.Update(func(x *agent.Settings) { x.ReasoningEffort = "medium" })
				case 1:
					s.Update(func(x *agent.Settings) { x.ReasoningEffort = "" })
				default:
					return llmtest.Text("thought")
				}
				return reply
			}, func(c *agent.Config) { c.Settings.ReasoningEffort, c.Settings.Model = "low", tt.model })
			s.submit("think")
			for n, want := range []string{tt.low, tt.medium, tt.none} {
				if got := p.effort(t, s.request(n)); got != want {
					t.Errorf("request %d has %s, want %s", n, got, want)
				}
				if got := s.request(n).Model; got != tt.model {
					t.Errorf("request %d is for %s", n, got)
				}
			}
		})
	}
}

// effort returns the fields of a request for it, as JSON with sorted fields.
func (p provider) effort(t *testing.T, r *llmtest.Request) string {
	t.Helper()
	var body struct {
		Reasoning        any
		Thinking         map[string]any
		OutputConfig     any `json:"output_config"`
		GenerationConfig struct{ ThinkingConfig any }
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	effort := body.Reasoning
	switch {
	case p.name == "gemini":
		effort = body.GenerationConfig.ThinkingConfig
	case body.OutputConfig != nil:
		effort = body.OutputConfig
	case body.Thinking != nil:
		effort = body.Thinking
	}
	b, err := json.Marshal(effort)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// proveLoopWarning has a model that repeats itself until the warning.
func proveLoopWarning(t *testing.T, p provider) {
	warned := func(r *llmtest.Request) bool {
		last := r.Messages[len(r.Messages)-1]
		return last.Role == llm.RoleUser && strings.Contains(last.Text(), "repeat the same pattern")
	}
	s := p.session(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case warned(r):
			return llmtest.Text("I stop.")
		case r.Number >= 20:
			return llmtest.Reply{Violation: "no warning came"}
		case r.Number%2 == 0:
			return llmtest.Use(readFile("f.txt"))
		}
		return llmtest.Use(p.edit("f.txt", "not there", "anything"))
	})
	s.write("f.txt", "text\n")
	res := s.submit("edit it")
	if len(res.ToolCalls) != 10 || res.Final != "I stop." {
		t.Errorf("%q after %d calls", res.Final, len(res.ToolCalls))
	}
	if loops := data[event.LoopDetection](s); len(loops) != 1 || !strings.Contains(loops[0].Message,
		"repeat the same pattern") {
		t.Errorf("events %+v", loops)
	}
	if turns := s.History(); turns[len(turns)-2].Kind != journal.TurnSteering {
		t.Errorf("the warning is a turn of kind %s", turns[len(turns)-2].Kind)
	}
	s.wantFile("f.txt", "text\n")
}

// proveRecovery has calls that fail in every way, and a model that corrects them step by step by
// the errors.
func proveRecovery(t *testing.T, p provider) {
	s := p.session(t, func(r *llmtest.Request) llmtest.Reply {
		last := strings.Join(shown(r), "\n")
		for _, step := range []struct {
			text string
			next llmtest.Call
		}{
			{"confg.txt does not exist", use("glob", map[string]any{"pattern": "**/conf*.txt"})},
			{"not in the file", readFile("etc/config.txt")},      // of apply_patch
			{"old_string is not in", readFile("etc/config.txt")}, // of edit_file
			{"1 | color = red", p.edit("etc/config.txt", "color = red", "color = green")},
			{"[exit code 4 after", llmtest.Call{Name: "shell", Arguments: `{"comand":"true"}`}},
			{"comand", use("run_this", map[string]any{"command": "true"})},
			{"run_this", shell("grep -c green etc/config.txt")},
		} {
			if strings.Contains(last, step.text) {
				return llmtest.Use(step.next)
			}
		}
		switch {
		case r.Number == 0:
			return llmtest.Use(readFile("confg.txt"))
		case last == "etc/config.txt\n":
			return llmtest.Use(p.edit("etc/config.txt", "colour = blue", "color = green"))
		case strings.HasPrefix(last, "1\n[exit code 0"):
			return llmtest.Text("It is green.")
		case strings.Contains(last, "etc/config.txt"): // the edit has succeeded
			return llmtest.Use(shell("exit 4"))
		}
		return llmtest.Reply{Violation: "unexpected results: " + last}
	})
	s.write("etc/config.txt", "color = red\n")
	res := s.submit("make it green")
	s.wantFile("etc/config.txt", "color = green\n")
	var kinds []string
	for _, f := range res.Failures {
		kinds = append(kinds, f.Kind)
	}
	want := []tool.ErrorKind{
		tool.KindNotFound, tool.KindEditConflict, tool.KindShellExit,
		tool.KindValidation, tool.KindUnknownTool,
	}
	if !slices.EqualFunc(kinds, want, func(a string,
		b tool.ErrorKind,
	) bool {
		return a == string(b)
	}) {
		t.Errorf("failures %v, want %v", kinds, want)
	}
	for i, failed := range []bool{true, false, true, false, false, true, true, true, false} {
		p.wantResults(t, s.request(i+1), failed)
	}
	if res.Final != "It is green." || s.State() != agent.SessionIdle {
		t.Errorf("%q, the session is %s", res.Final, s.State())
	}
}

// agents is a brain of several agents: tasks has those of sub-agents, by their first message; own
// answers the agent of the session.
func agents(own llmtest.Brain, tasks map[string]llmtest.Brain) llmtest.Brain {
	return func(r *llmtest.Request) llmtest.Reply {
		if brain := tasks[r.Messages[0].Text()]; brain != nil {
			return brain(r)
		}
		return own(r)
	}
}

// requestsOf returns the requests of the agent whose first message is task.
func (s *session) requestsOf(task string) []*llmtest.Request {
	var out []*llmtest.Request
	for _, r := range s.server.Requests() {
		if r.Messages[0].Text() == task {
			out = append(out, r)
		}
	}
	return out
}

func spawn(task string) llmtest.Call { return use("spawn_agent", map[string]any{"task": task}) }

func waitFor(id string) llmtest.Call { return use("wait", map[string]any{"agent_id": id}) }

// proveSpawnAndWait divides a task between two agents, which work at the same time.
func proveSpawnAndWait(t *testing.T, p provider) {
	var both sync.WaitGroup
	both.Add(2)
	meet := custom("meet", "")
	meet.ReadOnly = true
	meet.Run = func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		both.Done()
		met := make(chan struct{})
		go func() { both.Wait(); close(met) }()
		select {
		case <-met:
			return tool.Result{Text: "met"}, nil
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		case <-time.After(3 * time.Minute):
			return tool.Result{}, errors.New("the other agent does not work at the same time")
		}
	}
	child := func(name string) llmtest.Brain {
		return llmtest.Sequence(
			llmtest.Use(use("meet", map[string]any{"target": name})), llmtest.Use(p.create(name+".txt",
				name+"\n")), llmtest.Text("I wrote "+name+".txt."),
		)
	}
	s := p.session(t, agents(
		llmtest.Sequence(
			llmtest.Use(spawn("write left"), spawn("write right")), llmtest.Use(waitFor("agent_1"),
				waitFor("agent_2")),
			llmtest.Use(shell("cat left.txt right.txt")), llmtest.Text("Both are written."),
		), map[string]llmtest.Brain{"write left": child("left"), "write right": child("right")},
	), func(c *agent.Config) { c.Tools = []tool.Tool{meet} })
	res := s.submit("write both")
	own := s.requestsOf("write both")
	for i, text := range shown(own[1]) {
		wantContains(t, "the result of spawn_agent", text, "agent_id: agent_", "agent_type: general",
			"status: running")
		if i == 1 && text == shown(own[1])[0] {
			t.Errorf("both agents are called %q", text)
		}
	}
	waited := strings.Join(shown(own[2]), "\n")
	wantContains(t, "the results of wait", waited, "status: completed", "success: true",
		"output:\nI wrote left.txt.", "output:\nI wrote right.txt.")
	wantContains(t, "the files", shown(own[3])[0], "left\nright\n")
	for _, task := range []string{"write left", "write right"} {
		if r := s.requestsOf(task); len(r) != 3 || r[0].Model != p.profile.Model {
			t.Errorf("%q took %d requests", task, len(r))
		}
	}
	if len(res.Agents) != 2 || len(res.Changes) != 2 {
		t.Errorf("agents %+v, changes %+v", res.Agents, res.Changes)
	}
	of := map[string]int{}
	s.mu.Lock()
	for _, e := range s.events {
		if e.Kind() == event.KindToolCallEnd {
			of[e.AgentID]++
		}
	}
	s.mu.Unlock()
	if diff := cmp.Diff(map[string]int{"": 5, "agent_1": 2, "agent_2": 2}, of); diff != "" {
		t.Errorf("calls of agents (-want +got):\n%s", diff)
	}
}
