package recording_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/recording"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// scene is a session that is recorded and replayed.
type scene struct {
	script string
	change func(*agent.Config)
	inputs []string
	// want are texts in the events of the replay.
	want []string
}

// scenes need more of a replay than the answers and the results.
var scenes = map[string]scene{
	"a question that the user answers": {
		script: `
turns:
  - {calls: [{tool: ask_user, args: {question: which}}]}
  - {expect: {user: {contains: the left one}}, text: left}
`,
		change: func(c *agent.Config) {
			c.Tools = append(c.Tools, tool.AskUser())
			c.Answer = func(context.Context, string) (string, error) { return "the left one", nil }
		},
		inputs: []string{"go"}, want: []string{"the left one", `"status":"completed"`},
	},
	"a permission about which nobody answers": {
		script: `
turns:
  - {calls: [{tool: change}]}
  - {calls: [{tool: ask_user, args: {question: which}}]}
  - {expect: {user: {contains: the left one}}, text: left}
`,
		change: func(c *agent.Config) {
			c.Tools = append(c.Tools, tool.AskUser(), tool.Tool{
				ToolSpec: llm.ToolSpec{
					Name: "change", Description: "d", Schema: json.RawMessage(`{"type":"object"}`),
				},
				Run: func(context.Context, *tool.Call) (tool.Result, error) {
					return tool.Result{}, env.ErrReadOnlyFile
				},
			})
			c.Answer = func(_ context.Context, question string) (string, error) {
				if question == "which" {
					return "the left one", nil
				}
				return "", errors.New("nobody is here")
			}
		},
		inputs: []string{"go"},
		want:   []string{`"signal":"continue"`, "the left one", `"status":"completed"`},
	},
	"a question without an answer": {
		script: `
turns:
  - {calls: [{tool: ask_user, args: {question: which}}]}
  - {expect: {user: {contains: the right one}}, text: right}
`,
		change: func(c *agent.Config) { c.Tools = append(c.Tools, tool.AskUser()) },
		inputs: []string{"go", "the right one"},
		want:   []string{`"status":"awaiting_human"`, `"status":"completed"`},
	},
	"the end by a tool": {
		script: `
turns:
  - calls: [{tool: exit, args: {code: 1, reason: cannot}}]
  - text: it is not there
  - calls: [{tool: exit, args: {code: 1, reason: cannot at all}}]
`,
		change: func(c *agent.Config) { c.Tools = append(c.Tools, tool.ExitTool()) },
		inputs: []string{"go"}, want: []string{`"reflection":true`, `"status":"task_failed"`},
	},
	"a plan": {
		script: `
turns:
  - calls:
      - tool: plan_write
        args: {goal: g, tasks: [{id: a, title: x}, {id: b, title: y, depends_on: [a]}]}
  - expect: {user: {contains: 'Plan (0 of 2 completed): g'}}
    calls:
      - {tool: look, args: {at: a}}
      - {tool: plan_update, args: {changes: [{id: a, status: completed}]}}
  - expect: {user: {contains: 'Plan (1 of 2 completed): g'}}
    text: half of it
`,
		change: func(c *agent.Config) { c.Planner = true },
		inputs: []string{"go"},
		want:   []string{`"type":"plan_updated"`, `"signal":"plan"`, `"status":"completed"`},
	},
	"failures in a row": {
		script: `
turns:
  - calls: [{tool: fails, args: {at: "1"}}, {tool: fails, args: {at: "2"}}]
  - calls: [{tool: fails, args: {at: "3"}}]
  - expect: {user: {contains: Open failures}}
    calls: [{tool: fails, args: {at: "4"}}]
  - text: the cause
  - calls: [{tool: fails, args: {at: "5"}}]
  - expect: {user: {contains: Open failures}}
    calls: [{tool: fails, args: {at: "6"}}]
  - calls: [{tool: fails, args: {at: "7"}}]
`,
		change: func(c *agent.Config) {
			fails := c.Tools[0]
			fails.Name = "fails"
			fails.Run = func(context.Context, *tool.Call) (tool.Result, error) {
				code := 7
				return tool.Result{}, &tool.Error{
					Kind: tool.KindShellExit, Message: "exit code 7", ExitCode: &code,
				}
			}
			c.Tools, c.Limits.MaxReplans = append(c.Tools, fails), 1
			c.PastFailures = func(context.Context) []failure.Past {
				f := failure.OfCall(llm.ToolCall{Name: "fails"}, &tool.Error{
					Kind: tool.KindShellExit, Message: "exit code 7",
				}, "", time.Time{})
				return []failure.Past{{
					Failure: f, PastFailure: event.PastFailure{SessionID: "before", Remedy: "look"},
				}}
			}
		},
		inputs: []string{"go"},
		want: []string{
			`"exit_code":7`, `(before) failed in the same way`, `"signal":"replan"`,
			`"status":"repeated_failures"`,
		},
	},
	"an answer that a limit cut": {
		script: `
turns:
  - {text: half of, finish: length}
  - {expect: {user: {contains: cut off}}, text: an answer}
`,
		inputs: []string{"go"}, want: []string{"half of", "an answer", `"status":"completed"`},
	},
	"approvals": {
		script: `
turns:
  - calls:
      - {tool: look, args: {at: good}}
      - {tool: look, args: {at: bad}}
      - {tool: look, args: {at: x}}
  - {text: ok}
`,
		change: func(c *agent.Config) {
			c.Rules = &policy.Policy{Default: policy.Ask}
			c.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
				if strings.Contains(string(a.Arguments), "bad") {
					return agent.Reply{Verdict: agent.Refuse, Message: "no"}, nil
				}
				return agent.Reply{Verdict: agent.ApproveOnce}, nil
			}
		},
		inputs: []string{"go"}, want: []string{"permission_asked", "The reason: no", "earlier call"},
	},
	"calls that nobody can approve": {
		script: `
turns:
  - {calls: [{tool: look, args: {at: a}}, {tool: look, args: {at: b}}]}
  - {text: ok}
`,
		change: func(c *agent.Config) { c.Rules = &policy.Policy{Default: policy.Ask} },
		inputs: []string{"go"}, want: []string{"cannot be asked"},
	},
	"plan mode": {
		script: `
turns:
  - {calls: [{tool: plan_enter}]}
  - {expect: {tools: [plan_exit]}, calls: [{tool: plan_exit, args: {plan: the plan}}]}
  - {expect: {tools: [plan_enter]}, text: done}
`,
		change: func(c *agent.Config) {
			c.Modes = &agent.Modes{}
			c.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
				return agent.Reply{Verdict: agent.ApproveOnce}, nil
			}
		},
		inputs: []string{"go"}, want: []string{"mode_changed", `"status":"completed"`},
	},
	"a summary of the conversation": {
		script: `
turns:
  - {text: one, usage: {input: 9500, output: 9}}
  - {expect: {system: {contains: You summarize}}, text: it was long}
  - {expect: {user: {contains: it was long}}, text: two}
`,
		change: func(c *agent.Config) { c.Profile.ContextWindow = 9000 },
		inputs: []string{strings.Repeat("a long task ", 2000), "and now"},
		want:   []string{"context_updated", `"status":"completed"`},
	},
	"a run that failed": {
		script: `
turns:
  - {calls: [{tool: look, args: {at: a}}]}
  - {error: {kind: server, message: too much}}
  - {text: again}
`,
		inputs: []string{"go", "once more"},
		want:   []string{"ends here: model_error", "again", `"status":"completed"`},
	},
	"a later run that failed": {
		script: "turns: [{text: one}, {error: {kind: server, message: too much}}, {text: two}]",
		inputs: []string{"go", "again", "once more"},
		want:   []string{"one", "ends here: model_error", "two"},
	},
	"another model": {
		script: "turns: [{text: one}, {text: two}]",
		change: func(c *agent.Config) { c.Settings.Model, c.Settings.ReasoningEffort = "n", "high" },
		inputs: []string{"go"}, want: []string{"one"},
	},
	"a loop": {
		script: `
turns:
  - {calls: [{tool: look, args: {at: a}}, {tool: look, args: {at: a}}, {tool: look, args: {at: a}}]}
  - {expect: {user: {contains: repeat the same}}, text: ok}
`,
		change: func(c *agent.Config) { c.Limits.LoopWindow = 3 },
		inputs: []string{"go"}, want: []string{"loop_detection"},
	},
}

// TestScenes records sessions and replays them twice.
func TestScenes(t *testing.T) {
	for name, sc := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n looks
			configure := func(m llm.Client) agent.Config {
				cfg := simple(m, &n)
				cfg.Profile.SupportsReasoning = true
				if sc.change != nil {
					sc.change(&cfg)
				}
				return cfg
			}
			s := open(t, record(t, configure(scripted(t, sc.script)), sc.inputs...))
			cfg := configure(nil)
			cfg.Approve, cfg.Answer = nil, nil
			cfg.Settings.Model, cfg.Settings.ReasoningEffort = "", ""
			first, err := play(t, s, cfg, recording.PlayOptions{})
			if err != nil {
				t.Fatal(err)
			}
			second, err := play(t, s, cfg, recording.PlayOptions{})
			if err != nil || first != second {
				t.Errorf("a second replay: %v:\n%s\n%s", err, first, second)
			}
			for _, want := range sc.want {
				if !strings.Contains(first, want) {
					t.Errorf("the events lack %s:\n%s", want, first)
				}
			}
		})
	}
}

// family is a model of an agent that starts a sub-agent, and of that.
type family struct {
	mu    sync.Mutex
	asked map[string]int
}

func (f *family) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	child := strings.Contains(req.SessionID, "-agent_")
	f.asked[req.SessionID]++
	call := func(name, args string) []llm.Delta {
		return []llm.Delta{{Kind: llm.DeltaToolCall, Call: &llm.ToolCall{Name: name, Arguments: args}}}
	}
	text := func(s string) []llm.Delta { return []llm.Delta{{Kind: llm.DeltaText, Text: s}} }
	var out []llm.Delta
	switch n := f.asked[req.SessionID]; {
	case child && n == 1:
		out = call("look", `{"at":"child"}`)
	case child:
		out = text("the child has looked")
	case n == 1:
		out = call("spawn_agent", `{"task":"look","agent_type":"general"}`)
	case n == 2:
		out = call("wait", `{"agent_id":"agent_1"}`)
	default:
		out = text("all done")
	}
	return func(yield func(llm.Delta, error) bool) {
		for _, d := range append(out, llm.Delta{Kind: llm.DeltaDone}) {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// TestSubagents replays a session with a sub-agent: with live tools the sub-agent runs again, with
// recorded ones its report is recorded.
func TestSubagents(t *testing.T) {
	var n looks
	s := open(t, record(t, simple(&family{asked: map[string]int{}}, &n), "go"))
	if n != 1 {
		t.Fatalf("the sub-agent looked %d times", n)
	}
	if c, err := live(t, s, simple(nil, &n)); err != nil || c.Err() != nil || c.Remaining() > 0 {
		t.Errorf("with live tools: %v, %v", err, c.Err())
	}
	if n != 2 {
		t.Errorf("the sub-agent looked %d times", n)
	}
	out, err := play(t, s, simple(nil, &n), recording.PlayOptions{})
	if err != nil || n != 2 || !strings.Contains(out, "the child has looked") {
		t.Errorf("with recorded tools: %v, %d looks:\n%s", err, n, out)
	}
	cfg := simple(nil, &n)
	cfg.Subagents.Kinds = []agent.Kind{{
		Name: "general", Description: "Does anything.", Instructions: "Be quick.",
	}}
	c, _ := live(t, s, cfg)
	var miss *recording.MissError
	if !errors.As(c.Err(), &miss) {
		t.Errorf("with another kind: %v", c.Err())
	}
	if _, err := recording.Open(s.Dir + "-agent_1"); err == nil ||
		!strings.Contains(err.Error(), "that of a sub-agent; replay "+s.ID) {
		t.Errorf("the session of a sub-agent: %v", err)
	}
	if err := os.Rename(s.Dir+"-agent_1", s.Dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	c, _ = live(t, open(t, s.Dir), simple(nil, &n))
	if !errors.As(c.Err(), &miss) || miss.Agent != "agent_1" {
		t.Errorf("without the session of the sub-agent: %v", c.Err())
	}
}

// TestResumed replays a session whose program died in a call and that went on.
func TestResumed(t *testing.T) {
	var n looks
	dir := record(t, simple(scripted(t, script), &n), "go")
	cutJournal(t, dir)
	store, r, err := session.Open(dir, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(simple(scripted(t, "turns: [{text: all right}]"), &n))
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Resume(t.Context(), store, r, agent.SessionOptions{})
	if err == nil {
		_, err = again.Submit(t.Context(), "go on")
	}
	if err = errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := play(t, open(t, dir), simple(nil, &n), recording.PlayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ends here: interrupted", "was interrupted", "all right"} {
		if !strings.Contains(out, want) {
			t.Errorf("the events lack %s:\n%s", want, out)
		}
	}
}

// cutJournal removes all entries of a journal from the first result of a tool on.
func cutJournal(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, session.JournalName)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	end := strings.Index(text, `"type":"tool_result"`)
	end = strings.LastIndexByte(text[:end], '\n') + 1
	if err := os.WriteFile(file, data[:end], 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEnds reports a replay that ends before its recording, or in another way.
func TestEnds(t *testing.T) {
	var n looks
	s := open(t, record(t, simple(scripted(t, script), &n), "go"))
	s.Runs[0].Limits.MaxToolRounds = 1
	_, err := play(t, s, simple(nil, &n), recording.PlayOptions{})
	if err == nil || !strings.Contains(err.Error(), "ended with limit_reached, not with completed") {
		t.Errorf("another end: %v", err)
	}
	s.Runs[0].Ended.Status = string(agent.StatusLimit)
	_, err = play(t, s, simple(nil, &n), recording.PlayOptions{})
	if err == nil || !strings.Contains(err.Error(), "before 2 of its recorded answers") {
		t.Errorf("an early end: %v", err)
	}
	s = open(t, s.Dir)
	s.Exchanges = s.Exchanges[:2]
	_, err = play(t, s, simple(nil, &n), recording.PlayOptions{})
	if err == nil || !strings.Contains(err.Error(), "request 3: only 2 are recorded; the nearest is") {
		t.Errorf("a late end: %v", err)
	}
}

// TestOpenErrors reports directories that cannot be replayed.
func TestOpenErrors(t *testing.T) {
	if _, err := recording.Open(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a journal: %v", err)
	}
	cfg := simple(scripted(t, script), new(looks))
	if _, err := recording.Open(record(t, cfg)); err == nil ||
		!strings.Contains(err.Error(), "no run was recorded") {
		t.Errorf("without a run: %v", err)
	}
}

// FuzzPlay replays journals with any data in two entries of a run.
func FuzzPlay(f *testing.F) {
	f.Add(session.TypeTurn, `{"kind":"user","parts":[{"kind":"text","text":"go"}]}`,
		session.TypeTurn, `{"kind":"assistant","parts":[{"kind":"text","text":"yes"}]}`)
	f.Add(session.TypePrompt, `{"tools":[{"schema":{}}],"model":"m"}`, session.TypeTurn,
		`{"kind":"assistant","parts":[{"kind":"reasoning"},{"kind":"tool_call"}],"finish":"length"}`)
	f.Add(session.TypeCompacted, `{"summary":"s","turn":{"kind":"steering"}}`, session.TypeToolResult,
		`{"result":{"call_id":"a","parts":[{"kind":"image"}]},"output_size":-1}`)
	f.Add(session.TypeRunEnded, `{"status":"completed"}`, session.TypeRunStarted, `{"limits":null}`)
	f.Fuzz(func(t *testing.T, typ1, data1, typ2, data2 string) {
		if !json.Valid([]byte(data1)) || !json.Valid([]byte(data2)) {
			return
		}
		dir := filepath.Join(t.TempDir(), "s")
		journal, err := session.Create(dir, session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		input := session.Turn{Kind: session.TurnUser, Parts: []llm.Part{llm.Text("go")}}
		for _, e := range []struct {
			typ  string
			data any
		}{
			{session.TypeStarted, session.Started{ID: "s", Backend: "local", WorkDir: "/w"}},
			{session.TypeRunStarted, session.RunStarted{RunID: "r"}},
			{session.TypeTurn, input},
			{typ1, json.RawMessage(data1)},
			{typ2, json.RawMessage(data2)},
		} {
			if err := journal.Append(e.typ, e.data); err != nil {
				t.Fatal(err)
			}
		}
		if err := journal.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := recording.Open(dir)
		if err != nil {
			return
		}
		cfg := simple(nil, new(looks))
		cfg.Log = slog.New(slog.DiscardHandler)
		res, _ := s.NewPlayer().Play(t.Context(), cfg, recording.PlayOptions{})
		if res.Status == agent.StatusInternalError {
			t.Errorf("the run ended with %v", res.Err)
		}
	})
}

// TestPostponed replays calls that waited for an approval after the end of their run: one was
// approved, one refused, and one left.
func TestPostponed(t *testing.T) {
	var n looks
	cfg := simple(scripted(t, `
turns:
  - {calls: [{tool: look, args: {at: a}}, {tool: look, args: {at: b}}]}
  - {calls: [{tool: look, args: {at: c}}]}
  - {text: done}
`), &n)
	dir := t.TempDir()
	cfg.Store = session.OnDisk(dir)
	cfg.Rules = &policy.Policy{Default: policy.Ask}
	cfg.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
		return agent.Reply{Verdict: agent.Postpone}, nil
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []agent.Input{
		{Text: "go"},
		{Reply: &agent.Reply{Verdict: agent.ApproveOnce}},
		{Reply: &agent.Reply{Verdict: agent.Refuse, Message: "no"}},
		{Text: "leave it"},
	} {
		if _, err := s.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil || n != 1 {
		t.Fatalf("%v, %d looks", err, n)
	}
	cfg.Approve, cfg.Client = nil, nil
	out, err := play(t, open(t, filepath.Join(dir, s.ID())), cfg, recording.PlayOptions{})
	if err != nil || n != 1 {
		t.Fatalf("%v, %d looks:\n%s", err, n, out)
	}
	for want, times := range map[string]int{
		`"answer":"later"`: 3, `"status":"awaiting_human"`: 3, `"reply":"once"`: 1,
		`"reply":"deny"`: 1, "The reason: no": 3, `"status":"completed"`: 1,
	} {
		if got := strings.Count(out, want); got != times {
			t.Errorf("%d times %s:\n%s", got, want, out)
		}
	}
}
