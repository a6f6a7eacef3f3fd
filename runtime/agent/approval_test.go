package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// later postpones every call until a time.
func later(until time.Time) func(context.Context, agent.Approval) (agent.Reply, error) {
	return func(context.Context, agent.Approval) (agent.Reply, error) {
		return agent.Reply{Verdict: agent.Postpone, Until: until}, nil
	}
}

// postponed runs an answer with the calls a, b, c of which rules ask about b, and returns the
// configuration of its session, and the session with the waiting call.
func postponed(t *testing.T, n *callLog, until time.Time) (*model, agent.Config, *agent.Session) {
	t.Helper()
	m := &model{answers: []answer{
		calls(call("1", "a", nil), call("2", "b", object{"n": 1}), call("3", "a", object{"n": 3})),
		{text: "done"},
	}}
	cfg := config(m, n.tool("a", false), n.tool("b", false))
	cfg.Rules, cfg.Approve = rulesOf(t, "rules: [{permission: a, action: allow}]"), later(until)
	cfg.Store = session.OnDisk(t.TempDir())
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if res.Status != agent.StatusAwaitingHuman || res.Approval == nil || res.Approval.CallID != "2" ||
		states(res) != "preparing model_running tool_running awaiting_human awaiting_human" ||
		len(res.ToolCalls) != 1 || s.State() != agent.SessionAwaitingInput {
		t.Fatalf("%s, %+v, %s, calls %+v", res.Status, res.Approval, states(res), res.ToolCalls)
	}
	if got := n.calls(); !slices.Equal(got, []string{"1"}) {
		t.Fatalf("%s ran before the approval", got)
	}
	return m, cfg, s
}

// TestPostponedCall approves, refuses and leaves a call that waits, in the process that asked and
// in another one, a day later by its clock.
func TestPostponedCall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		in      agent.Input
		ran     string
		states  string
		results []string // parts of the results of the calls 2 and 3
	}{
		{
			"approved",
			agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveOnce}},
			"1 2 3",
			"preparing tool_running awaiting_human tool_running model_running completed",
			[]string{"result of 2", "result of 3"},
		},
		{
			"refused",
			agent.Input{Reply: &agent.Reply{Verdict: agent.Refuse, Message: "not on Friday"}},
			"1",
			"preparing tool_running awaiting_human model_running completed",
			[]string{"not on Friday", "refused an earlier call"},
		},
		{
			"left",
			agent.Input{Text: "do something else"},
			"1",
			"preparing model_running completed",
			[]string{"has not approved this call", "has not approved an earlier call"},
		},
	} {
		for _, other := range []bool{false, true} {
			name := tt.name
			if other {
				name += " in another process"
			}
			t.Run(name, func(t *testing.T) {
				var n callLog
				m, cfg, s := postponed(t, &n, time.Now().Add(48*time.Hour))
				if other {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					cfg.Clock, cfg.Approve = dayLater{llm.SystemClock()}, nil
					s = resume(t, cfg, s.Dir())
				}
				res, err := s.Run(t.Context(), tt.in)
				if err != nil || res.Status != agent.StatusCompleted || states(res) != tt.states {
					t.Fatalf("%s, %v, %s", res.Status, err, states(res))
				}
				if got := strings.Join(n.calls(), " "); got != tt.ran {
					t.Errorf("%s ran", got)
				}
				checkResults(t, m.request(t, 1), tt.results)
				if _, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{
					Verdict: agent.ApproveOnce,
				}}); !errors.Is(err, agent.ErrConfig) {
					t.Errorf("a second approval: %v", err)
				}
				if r := mustLoad(t, s); r.Waiting != nil || len(r.Calls) != 0 {
					t.Errorf("the record waits: %+v, %+v", r.Waiting, r.Calls)
				}
			})
		}
	}
}

// checkResults compares the results of the calls 2 and 3 in a request, which has one for each call.
func checkResults(t *testing.T, req llm.Request, want []string) {
	t.Helper()
	var got []llm.ToolResult
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if p.ToolResult != nil {
				got = append(got, *p.ToolResult)
			}
		}
	}
	if len(got) != 3 || !strings.Contains(got[1].Text(), want[0]) ||
		!strings.Contains(got[2].Text(), want[1]) {
		t.Errorf("the results are %+v", got)
	}
}

// dayLater is a clock that is 24 hours ahead.
type dayLater struct{ llm.Clock }

func (c dayLater) Now() time.Time { return c.Clock.Now().Add(24 * time.Hour) }

// TestPostponedTooLong approves after the time for it is over. The call can still be refused.
func TestPostponedTooLong(t *testing.T) {
	var n callLog
	_, cfg, s := postponed(t, &n, time.Now().Add(23*time.Hour))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Clock = dayLater{llm.SystemClock()}
	s = resume(t, cfg, s.Dir())
	_, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveAlways}})
	if !errors.Is(err, agent.ErrExpired) {
		t.Errorf("the error is %v", err)
	}
	res, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.Refuse}})
	if err != nil || res.Status != agent.StatusCompleted || len(n.calls()) != 1 {
		t.Errorf("%s, %v, %v ran", res.Status, err, n.calls())
	}
}

// TestReplyIsChecked gives replies that cannot be.
func TestReplyIsChecked(t *testing.T) {
	var n callLog
	_, _, s := postponed(t, &n, time.Time{})
	for name, in := range map[string]agent.Input{
		"with a text":    {Text: "x", Reply: &agent.Reply{Verdict: agent.ApproveOnce}},
		"postponed":      {Reply: &agent.Reply{Verdict: agent.Postpone}},
		"abort":          {Reply: &agent.Reply{Verdict: agent.AbortRun}},
		"without a word": {Reply: &agent.Reply{}},
	} {
		if _, err := s.Run(t.Context(), in); !errors.Is(err, agent.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{
		Verdict: agent.ApproveAlways,
	}}); err != nil || len(n.calls()) != 3 {
		t.Errorf("%v, %v ran", err, n.calls())
	}
}

// TestPostponedTwice postpones both calls of an answer, of which an approval allows one, in
// processes of their own.
func TestPostponedTwice(t *testing.T) {
	for _, readOnly := range []bool{false, true} { // read-only calls run concurrently
		var n callLog
		m := &model{answers: []answer{
			calls(call("1", "b", nil), call("2", "b", object{"n": 2})), {text: "done"},
		}}
		cfg := config(m, n.tool("b", readOnly))
		cfg.Profile.SupportsParallelToolCalls = true
		cfg.Rules, cfg.Approve = rulesOf(t, "default: ask"), later(time.Time{})
		cfg.Store = session.OnDisk(t.TempDir())
		s := newSession(t, cfg)
		res := submit(t, s, "go")
		var ran []string
		for range 2 {
			if res.Status != agent.StatusAwaitingHuman || slices.Contains(ran, res.Approval.CallID) {
				t.Fatalf("%s, %+v", res.Status, res.Approval)
			}
			ran = append(ran, res.Approval.CallID)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = resume(t, cfg, s.Dir())
			var err error
			res, err = s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveOnce}})
			if err != nil || !slices.Equal(n.calls(), ran) {
				t.Fatalf("%v, %v ran, not %v", err, n.calls(), ran)
			}
		}
		if res.Status != agent.StatusCompleted {
			t.Errorf("the end is %s", res.Status)
		}
	}
}

// TestPostponedEdit approves the change of a file that the session had read before, in another
// process: as it was, and changed by somebody else.
func TestPostponedEdit(t *testing.T) {
	for _, changed := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, "f.txt")
		if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := local.New(local.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close() //nolint:errcheck // it is the test's
		args := object{"file_path": "f.txt", "content": "new\n"}
		m := &model{answers: []answer{
			calls(call("1", "read_file", object{"file_path": "f.txt"})),
			calls(call("2", "write_file", args)), calls(call("3", "write_file", args)),
			{text: "done"},
		}}
		cfg := config(m, tool.ReadFile(), tool.WriteFile())
		cfg.Env, cfg.ReadFirst, cfg.Store = e, true, session.OnDisk(t.TempDir())
		cfg.Rules = rulesOf(t, "rules: [{permission: read, action: allow}, "+
			"{permission: repeat, action: allow}]")
		cfg.Approve = later(time.Time{})
		s := newSession(t, cfg)
		submit(t, s, "go")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		want := "new\n"
		if changed {
			want = "other\n"
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		}
		s = resume(t, cfg, s.Dir())
		res, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveOnce}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("changed %v: the file is %q, %v", changed, got, err)
		}
		// The session knows the file that it wrote, so that it may write it again.
		if res.ToolCalls[0].Success == changed || res.ToolCalls[1].Success == changed {
			t.Errorf("changed %v: %+v", changed, res.ToolCalls)
		}
	}
}

// TestPostponedSecret has calls whose arguments hold a secret, which the journal does not have.
func TestPostponedSecret(t *testing.T) {
	var n callLog
	secret := object{"n": "hunter2-hunter2"}
	m := &model{answers: []answer{
		calls(call("1", "b", secret)),
		calls(call("2", "b", nil), call("3", "a", secret)),
		{text: "done"},
	}}
	cfg := config(m, n.tool("a", false), n.tool("b", false))
	cfg.Rules = rulesOf(t, "rules: [{permission: a, action: allow}]")
	cfg.Approve, cfg.Store = later(time.Time{}), session.OnDisk(t.TempDir())
	cfg.Redactor = redact.New(redact.Values, map[string]string{"TOKEN": "hunter2-hunter2"})
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if res.Approval == nil || res.Approval.CallID != "2" || len(res.ToolCalls) != 2 ||
		!strings.Contains(res.ToolCalls[0].Result, "the secret in its arguments is not stored") ||
		!strings.Contains(res.ToolCalls[1].Result, "the secret in its arguments is not stored") {
		t.Fatalf("%+v, calls %+v", res.Approval, res.ToolCalls)
	}
	if _, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{
		Verdict: agent.ApproveOnce,
	}}); err != nil || !slices.Equal(n.calls(), []string{"2"}) {
		t.Errorf("%v, %v ran", err, n.calls())
	}
}

// TestPostponedAfterEachEntry cuts the journal of an approved call after each entry: the call runs
// once, or the model is told that it was interrupted.
func TestPostponedAfterEachEntry(t *testing.T) {
	var n callLog
	_, cfg, s := postponed(t, &n, time.Time{})
	before := len(journalLines(t, s.Dir()))
	if _, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{
		Verdict: agent.ApproveOnce,
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lines := journalLines(t, s.Dir())
	ids := strings.Join(n.calls(), " ")
	if ids != "1 2 3" {
		t.Fatalf("%s ran", ids)
	}
	waited := 0
	for cut := before - 1; cut < len(lines); cut++ {
		var again callLog
		cfg := cfg
		m := &model{}
		cfg.Client = m
		cfg.Tools = []tool.Tool{again.tool("a", false), again.tool("b", false)}
		dir := cutJournal(t, lines, cut)
		started := slices.ContainsFunc(lines[:cut], func(line []byte) bool {
			var e session.Entry
			var data session.ToolStarted
			return json.Unmarshal(line, &e) == nil && e.Type == session.TypeToolStarted &&
				json.Unmarshal(e.Data, &data) == nil && data.CallID == "2"
		})
		s := resume(t, cfg, dir)
		in := agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveOnce}}
		if _, err := s.Run(t.Context(), in); started {
			if !errors.Is(err, agent.ErrConfig) || len(again.calls()) != 0 {
				t.Errorf("after %d entries: %v, %v ran", cut, err, again.calls())
			}
			submit(t, s, "go on")
			continue
		} else if err != nil || !slices.Equal(again.calls(), []string{"2", "3"}) {
			t.Errorf("after %d entries: %v, %v ran", cut, err, again.calls())
		}
		waited++
	}
	if waited < 3 {
		t.Errorf("the call waits after %d entries", waited)
	}
}

// TestPostponedSubagent has a sub-agent whose call cannot wait.
func TestPostponedSubagent(t *testing.T) {
	var n callLog
	c := &cast{scripts: map[string][]answer{
		"":        {calls(spawn("1", nil)), calls(onAgent("wait", "agent_1")), {text: "done"}},
		"agent_1": {calls(call("2", "b", nil)), {text: "I could not"}},
	}}
	cfg := config(c, n.tool("b", false))
	cfg.Subagents = agent.Subagents{}
	cfg.Rules = rulesOf(t, "rules: [{permission: b, action: ask}]\ndefault: allow")
	cfg.Approve = later(time.Time{})
	res := submit(t, newSession(t, cfg), "go")
	i := slices.IndexFunc(res.Refused, func(r event.Refusal) bool {
		return r.AgentID != "" && strings.Contains(r.Message, "a call of a sub-agent cannot wait")
	})
	if i < 0 || res.Status != agent.StatusCompleted || len(n.calls()) != 0 {
		t.Errorf("%s, refused %+v, %v ran", res.Status, res.Refused, n.calls())
	}
}

// TestPostponedByOtherRules decides about a call of which no rule asks any more, as in another
// program: the decision counts.
func TestPostponedByOtherRules(t *testing.T) {
	for verdict, ran := range map[agent.Verdict]string{agent.Refuse: "1", agent.ApproveOnce: "1 2 3"} {
		for _, rules := range []string{"", "default: allow"} {
			var n callLog
			_, cfg, s := postponed(t, &n, time.Time{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.Rules = nil
			if rules != "" {
				cfg.Rules = rulesOf(t, rules)
			}
			s = resume(t, cfg, s.Dir())
			res, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: verdict}})
			if got := strings.Join(n.calls(), " "); err != nil || got != ran ||
				res.Status != agent.StatusCompleted {
				t.Errorf("%s with the rules %q: %s ran, %s, %v", verdict, rules, got, res.Status, err)
			}
		}
	}
}

// TestPostponedRepeats postpones calls of which rules ask only because they repeat others.
func TestPostponedRepeats(t *testing.T) {
	var n callLog
	m := &model{answers: []answer{
		calls(call("1", "a", nil)), calls(call("2", "a", nil)),
		calls(call("3", "a", nil), call("4", "a", nil)),
		{text: "done"},
	}}
	cfg := config(m, n.tool("a", false))
	cfg.Rules = rulesOf(t, "rules: [{permission: a, action: allow}]")
	cfg.Approve, cfg.Store = later(time.Time{}), session.OnDisk(t.TempDir())
	s := newSession(t, cfg)
	submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = resume(t, cfg, s.Dir())
	res, err := s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.ApproveOnce}})
	if err != nil || res.Approval == nil || res.Approval.CallID != "4" {
		t.Errorf("%v, %+v", err, res.Approval)
	}
	_, err = s.Run(t.Context(), agent.Input{Reply: &agent.Reply{Verdict: agent.Refuse}})
	if got := strings.Join(n.calls(), " "); err != nil || got != "1 2 3" {
		t.Errorf("%v, %s ran", err, got)
	}
}
