package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestAgentLoop runs inputs with dependencies and without a configuration.
func TestAgentLoop(t *testing.T) {
	rec := &recorder{}
	m := &model{answers: []answer{calls(succeeds("a", "x")), {text: "first"}, {text: "second"}}}
	ev := &events{}
	l, err := agent.NewAgentLoop(t.Context(), agent.Dependencies{
		Client: m, Profile: profile.Profile{ID: "p", Model: "m", Instructions: "Do it."}, Store: rec,
		SessionID: "s", Tools: []tool.Tool{failing("try")}, Observe: ev.sink,
		NewID: func() string { return "run" },
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Run(t.Context(), agent.Input{Text: "go"})
	if err != nil || res.Final != "first" || res.SessionID != "s" || res.RunID != "run" ||
		len(res.ToolCalls) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	var streamed agent.RunResult
	n := 0
	for _, err := range l.RunStream(t.Context(), agent.Input{Text: "again"}, &streamed) {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if streamed.Final != "second" || n == 0 || l.Abort("run") {
		t.Errorf("%q after %d events", streamed.Final, n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if tools := m.request(t, 0).Tools; len(tools) != 1 || tools[0].Name != "try" {
		t.Errorf("tools %+v", tools)
	}
	if ev.count(event.KindSessionEnd) != 1 || !slices.Contains(rec.types(), session.TypeRunEnded) {
		t.Errorf("events %v, entries %v", ev.kinds(), rec.types())
	}
	if _, err := agent.NewAgentLoop(t.Context(), agent.Dependencies{Client: m}); !errors.Is(err,
		agent.ErrConfig) {
		t.Errorf("without a store: %v", err)
	}
}

// TestRequestsAreNumbered checks what clients know about a request.
func TestRequestsAreNumbered(t *testing.T) {
	m := &model{answers: []answer{calls(succeeds("a", "x")), {text: "ok"}, {text: "ok"}}}
	s := newSession(t, config(m, failing("try")))
	submit(t, s, "go")
	submit(t, s, "again")
	runs := map[string]bool{}
	for n, want := range []int{1, 2, 1} {
		req := m.request(t, n)
		runs[req.RunID] = true
		if req.ModelCall != want || req.SessionID != s.ID() {
			t.Errorf("request %d is call %d of %s in %s", n, req.ModelCall, req.RunID, req.SessionID)
		}
	}
	if b, err := json.Marshal(m.request(t, 0)); err != nil || len(runs) != 2 ||
		strings.Contains(string(b), m.request(t, 0).RunID) {
		t.Errorf("runs %v, %s, %v", runs, b, err)
	}
}

// TestClosedAfterTheLastEvent looks at the state while the last event is delivered.
func TestClosedAfterTheLastEvent(t *testing.T) {
	var s *agent.Session
	var state agent.SessionState
	cfg := config(&model{})
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		if e.Kind() == event.KindSessionEnd {
			state = s.State()
		}
		return nil
	})
	s = newSession(t, cfg)
	if err := s.Close(); err != nil || state == agent.SessionClosed || state == "" ||
		s.State() != agent.SessionClosed {
		t.Errorf("the state was %q, and is %q, %v", state, s.State(), err)
	}
}

// TestFollowUpsAfterEnds has follow-ups after runs that end in several ways.
func TestFollowUpsAfterEnds(t *testing.T) {
	exit := func(code int) answer {
		return calls(call("x", "exit", object{"code": code, "reason": "because"}))
	}
	for name, tt := range map[string]struct {
		first    answer
		limits   agent.Limits
		followed bool
	}{
		"completed":      {answer{text: "ok"}, agent.Limits{}, true},
		"failed":         {exit(1), agent.Limits{MaxReplans: -1}, true},
		"out of time":    {exit(-1), agent.Limits{}, true},
		"limit":          {calls(succeeds("a", "x")), agent.Limits{MaxToolCalls: 1}, true},
		"limit of turns": {calls(succeeds("a", "x")), agent.Limits{MaxTurns: 1}, false},
		"a question":     {exit(2), agent.Limits{}, false},
		"error of model": {answer{err: &llm.Error{Kind: llm.KindServer}}, agent.Limits{}, true},
		"the last error": {answer{err: &llm.Error{Kind: llm.KindAuth}}, agent.Limits{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s *agent.Session
			tt.first.before = func(context.Context, llm.Request) {
				s.FollowUp("more")
			}
			m := &model{answers: []answer{tt.first, {text: "followed"}}}
			cfg := config(m, failing("try"), tool.ExitTool())
			cfg.Limits = tt.limits
			s = newSession(t, cfg)
			res, _ := s.Submit(t.Context(), "go")
			if (res.Final == "followed") != tt.followed {
				t.Errorf("%s, %q", res.Status, res.Final)
			}
		})
	}
}

// TestQuestionInAnswer has a host that knows questions in answers.
func TestQuestionInAnswer(t *testing.T) {
	cfg := config(&model{answers: []answer{{text: "Which one?"}, {text: "Done."}}})
	cfg.IsQuestion = func(text string) bool { return strings.HasSuffix(text, "?") }
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if res.Status != agent.StatusAwaitingHuman || res.Question != "Which one?" ||
		s.State() != agent.SessionAwaitingInput {
		t.Errorf("%s, %q", res.Status, res.Question)
	}
	if res := submit(t, s, "the left one"); res.Status != agent.StatusCompleted {
		t.Errorf("%s", res.Status)
	}
	cfg = config(&model{answers: []answer{{text: "Which one?"}, {text: "Done."}}})
	cfg.IsQuestion = func(text string) bool { return strings.HasSuffix(text, "?") }
	cfg.Answer = func(context.Context, string) (string, error) { return "the left one", nil }
	if res := submit(t, newSession(t, cfg), "go"); res.Final != "Done." || res.ModelCalls != 2 {
		t.Errorf("%q after %d answers", res.Final, res.ModelCalls)
	}
}

// TestBuildSystem replaces the system prompt, which is one of the journal then.
func TestBuildSystem(t *testing.T) {
	rec := &recorder{}
	m := &model{}
	cfg := config(m, failing("try"))
	cfg.Settings.Instructions = "Be quick."
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	cfg.BuildSystem = func(
		p profile.Profile, _ profile.Surroundings, tools []llm.ToolSpec, instructions string,
	) string {
		return p.ID + " " + tools[0].Name + " " + instructions
	}
	submit(t, newSession(t, cfg), "go")
	prompts := entriesOf[session.Prompt](t, rec, session.TypePrompt)
	const want = "test try Be quick."
	if got := m.request(t, 0).System; got != want || prompts[0].System != want {
		t.Errorf("%q, %+v", got, prompts)
	}
}

// TestArgumentDeltas gets the arguments of calls as they arrive, if that is wanted.
func TestArgumentDeltas(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		cfg := config(&model{answers: []answer{calls(succeeds("a", "x"), succeeds("b", "y"))}},
			failing("try"))
		cfg.ArgumentDeltas = wanted
		ev := watch(&cfg)
		submit(t, newSession(t, cfg), "go")
		arguments := map[int]string{}
		for _, e := range ev.all {
			if d, ok := e.Data.(event.ToolArgumentsDelta); ok {
				arguments[d.Index] += d.Name + d.Text
			}
		}
		want := map[int]string{0: `try{"at":"x","kind":""}`, 1: `try{"at":"y","kind":""}`}
		if !wanted && len(arguments) > 0 || wanted && (arguments[0] != want[0] ||
			arguments[1] != want[1]) {
			t.Errorf("wanted: %t, %v", wanted, arguments)
		}
	}
}

// upper is an aggregator that changes texts.
type upper struct{ llm.Assembler }

func (u *upper) Add(d llm.Delta) {
	d.Text = strings.ToUpper(d.Text)
	u.Assembler.Add(d)
}

func TestAggregate(t *testing.T) {
	cfg := config(&model{answers: []answer{{text: "quiet"}}})
	cfg.Aggregate = func() agent.Aggregator { return &upper{} }
	if res := submit(t, newSession(t, cfg), "go"); res.Final != "QUIET" {
		t.Errorf("%q", res.Final)
	}
}

// TestPolicyOfRun narrows the policy of the session for one run.
func TestPolicyOfRun(t *testing.T) {
	use := []answer{calls(succeeds("a", "x")), calls(succeeds("b", "y")), {text: "done"}}
	other := newTool("other", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, nil
	})
	for name, tt := range map[string]struct {
		session agent.ToolPolicy
		run     *agent.ToolPolicy
		tools   []string
		calls   int
		status  agent.Status
	}{
		"none":     {agent.ToolPolicy{}, nil, []string{"other", "try"}, 2, agent.StatusCompleted},
		"disabled": {agent.ToolPolicy{}, &agent.ToolPolicy{Disabled: true}, nil, 0, ""},
		"list": {
			agent.ToolPolicy{},
			&agent.ToolPolicy{Allow: []string{"try"}},
			[]string{"try"},
			2,
			agent.StatusCompleted,
		},
		"two lists": {
			agent.ToolPolicy{Allow: []string{"try"}},
			&agent.ToolPolicy{Allow: []string{"other", "try"}},
			[]string{"try"},
			2, agent.StatusCompleted,
		},
		"calls": {
			agent.ToolPolicy{MaxCalls: 5},
			&agent.ToolPolicy{MaxCalls: 1},
			[]string{"other", "try"},
			1,
			agent.StatusLimit,
		},
		"calls of the session": {
			agent.ToolPolicy{MaxCalls: 1},
			&agent.ToolPolicy{MaxCalls: 5},
			[]string{"other", "try"},
			1,
			agent.StatusLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: slices.Clone(use)}
			cfg := config(m, other, failing("try"))
			cfg.Policy, cfg.Limits.NoLoopDetection = tt.session, true
			res, err := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go", Policy: tt.run})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, spec := range m.request(t, 0).Tools {
				names = append(names, spec.Name)
			}
			ran := 0
			for _, c := range res.ToolCalls {
				if c.Success {
					ran++
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, tt.tools) || ran != tt.calls || tt.status != "" &&
				res.Status != tt.status {
				t.Errorf("tools %q, %d calls ran, %s", names, ran, res.Status)
			}
		})
	}
	_, err := newSession(t, config(&model{})).Run(t.Context(), agent.Input{
		Text: "go", Policy: &agent.ToolPolicy{Allow: []string{"missing"}},
	})
	if !errors.Is(err, agent.ErrConfig) || !strings.Contains(err.Error(), `"missing"`) {
		t.Errorf("an unknown tool: %v", err)
	}
}

// TestRequireApproval asks about calls that no rule decides.
func TestRequireApproval(t *testing.T) {
	safe := newTool("safe", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, nil
	})
	for name, tt := range map[string]struct {
		rules *policy.Policy
		asked []string
	}{
		"no rules": {nil, []string{"a"}},
		"a rule that allows": {&policy.Policy{Rules: []policy.Rule{
			{Permission: "try", Pattern: "x", Action: policy.Allow},
		}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: []answer{calls(succeeds("a", "x"), call("b", "safe", nil))}}
			cfg := config(m, safe, failing("try"))
			cfg.Rules = tt.rules
			var asked []string
			cfg.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
				asked = append(asked, a.CallID)
				return agent.Reply{Verdict: agent.ApproveOnce}, nil
			}
			in := agent.Input{Text: "go", Policy: &agent.ToolPolicy{RequireApproval: true}}
			res, err := newSession(t, cfg).Run(t.Context(), in)
			if err != nil || !slices.Equal(asked, tt.asked) || len(res.Failures) > 0 {
				t.Errorf("asked about %q, %v, failures %+v", asked, err, res.Failures)
			}
		})
	}
}

// TestRequireApprovalEverywhere asks about calls of sub-agents and in plan mode, too.
func TestRequireApprovalEverywhere(t *testing.T) {
	approval := &agent.ToolPolicy{RequireApproval: true}
	run := func(cfg agent.Config) (asked []string) {
		t.Helper()
		cfg.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
			asked = append(asked, a.AgentID+" "+a.CallID)
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		}
		in := agent.Input{Text: "go", Policy: approval}
		if _, err := newSession(t, cfg).Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return asked
	}
	cfg := treeConfig(one(nil, calls(succeeds("x", "x"))), failing("try"))
	if asked := run(cfg); !slices.Equal(asked, []string{"agent_1 x"}) {
		t.Errorf("for a sub-agent: asked about %q", asked)
	}
	cfg = configIn(t, t.TempDir(), &model{answers: []answer{
		calls(call("a", "shell", object{"command": "ls"})),
	}}, tool.Shell())
	cfg.Modes = &agent.Modes{Plan: true}
	if asked := run(cfg); !slices.Equal(asked, []string{" a"}) {
		t.Errorf("in plan mode: asked about %q", asked)
	}
	cfg = config(&model{answers: []answer{calls(succeeds("a", "x"))}}, failing("try"))
	cfg.Rules = &policy.Policy{Default: policy.Deny}
	if asked := run(cfg); asked != nil {
		t.Errorf("of what rules deny: asked about %q", asked)
	}
}

// TestGetters reads what Update and UpdateLimits set.
func TestGetters(t *testing.T) {
	s := newSession(t, config(&model{}))
	s.Update(func(set *agent.Settings) { set.Model = "other" })
	if err := s.UpdateLimits(func(l *agent.Limits) { l.MaxTurns = 7 }); err != nil {
		t.Fatal(err)
	}
	if s.Settings().Model != "other" || s.Limits().MaxTurns != 7 ||
		s.Limits().MaxToolRounds != agent.DefaultMaxToolRounds || len(s.Subagents()) > 0 {
		t.Errorf("%+v, %+v", s.Settings(), s.Limits())
	}
}

// TestSubagentsOfSession lists the agents of a session: one that works, one that has ended, and
// those that are left when it is closed.
func TestSubagentsOfSession(t *testing.T) {
	var s *agent.Session
	var lists []string
	look := func(context.Context, llm.Request) {
		list := ""
		for _, a := range s.Subagents() {
			list += a.ID + " " + a.Kind + " " + string(a.Status) + " " + a.Output + "\n"
		}
		lists = append(lists, list)
	}
	b := newBlocker()
	s = newSession(t, treeConfig(&cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", nil), spawn("b", nil)),
			{calls: []llm.ToolCall{onAgent("wait", "agent_2")}, before: b.runs(1)},
			{calls: []llm.ToolCall{onAgent("close_agent", "agent_2")}, before: look},
			{text: "end", before: look},
		},
		"agent_1": {calls(b.call("x"))},
		"agent_2": {{text: "found"}},
	}}, b.tool()))
	submit(t, s, "go")
	look(t.Context(), llm.Request{})
	want := []string{
		"agent_1 general running \nagent_2 general completed found\n", "agent_1 general running \n", "",
	}
	if !slices.Equal(lists, want) {
		t.Errorf("the lists of agents are %q", lists)
	}
}
