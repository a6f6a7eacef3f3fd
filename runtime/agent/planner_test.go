package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// writePlan is a call that plans two subtasks, b after a.
func writePlan(id string) llm.ToolCall {
	return call(id, "plan_write", object{"goal": "make it", "tasks": []object{
		{"id": "b", "title": "do b", "depends_on": []string{"a"}}, {"id": "a", "title": "do a"},
	}})
}

func updatePlan(id, task string, status plan.Status) llm.ToolCall {
	return call(id, "plan_update", object{"changes": []object{{"id": task, "status": status}}})
}

func lastText(t *testing.T, m *model, n int) string {
	t.Helper()
	msgs := m.request(t, n).Messages
	return msgs[len(msgs)-1].Text()
}

// TestPlanNamesAgents tells the model to start agents where it can.
func TestPlanNamesAgents(t *testing.T) {
	parallel := object{"goal": "g", "tasks": []object{
		{"id": "a", "title": "x", "parallel": true}, {"id": "b", "title": "y", "parallel": true},
	}}
	for name, tt := range map[string]struct {
		edit func(*agent.Config)
		want bool
	}{
		"with agents": {func(*agent.Config) {}, true},
		"without":     {func(c *agent.Config) { c.Subagents.MaxDepth = -1 }, false},
		"denied": {func(c *agent.Config) {
			c.Rules = &policy.Policy{
				Rules:   []policy.Rule{{Permission: "spawn_agent", Action: policy.Deny}},
				Default: policy.Allow,
			}
		}, false},
	} {
		m := &model{answers: []answer{calls(call("p", "plan_write", parallel))}}
		cfg := config(m)
		cfg.Planner, cfg.Subagents = true, agent.Subagents{}
		tt.edit(&cfg)
		submit(t, newSession(t, cfg), "go")
		text, err := json.Marshal(m.request(t, 1).Messages)
		if err != nil {
			t.Fatal(err)
		}
		said := string(text)
		if !strings.Contains(said, "Next: a.") || strings.Contains(said, "spawn_agent") != tt.want {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestPlanner(t *testing.T) {
	rec := &recorder{}
	m := &model{answers: []answer{
		calls(writePlan("p")), calls(succeeds("w", "x")), calls(updatePlan("u", "b", plan.Completed)),
		calls(updatePlan("v", "a", plan.Completed), call("r", "plan_read", nil)),
		calls(updatePlan("y", "b", plan.Completed)),
		{text: "made"},
	}}
	cfg := config(m, failing("try"))
	cfg.Planner, cfg.Profile.ContextWindow = true, 100_000
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	ev := watch(&cfg)
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if got := steps(res); got[1] != "plan planning" || got[2] != "tool_calls tool_running" ||
		res.Status != agent.StatusCompleted {
		t.Errorf("%s, steps %q", res.Status, got)
	}
	if text := lastText(t, m, 0); !strings.Contains(text, "plan_write") {
		t.Errorf("the first request has %q", text)
	}
	const first = "Plan (0 of 2 completed): make it\n- pending a: do a\n- blocked b (by a): do b"
	for n, want := range map[int]string{
		1: first, 2: "", 4: "Plan (1 of 2 completed): make it\n- pending b: do b", 5: "",
	} {
		if text := lastText(t, m, n); text != want {
			t.Errorf("request %d ends with %q", n, text)
		}
	}
	if text := lastText(t, m, 3); text != "" { // the first failure is in the result
		t.Errorf("request 3 ends with %q", text)
	}
	if len(res.Failures) != 1 ||
		!strings.Contains(res.Failures[0].Message, "b is blocked: it waits for a") {
		t.Errorf("failures %+v", res.Failures)
	}
	read := ""
	for _, turn := range s.History() {
		for _, r := range turn.Results {
			if r.Name == "plan_read" {
				read = r.Text()
			}
		}
	}
	if read != "Goal: make it\n- completed a: do a\n- pending b: do b" {
		t.Errorf("plan_read returned %q", read)
	}
	stored := entriesOf[plan.Plan](t, rec, session.TypePlan)
	var sent []plan.Plan
	for _, e := range ev.all {
		if d, ok := e.Data.(event.PlanUpdated); ok {
			sent = append(sent, d.Plan)
		}
	}
	if len(stored) != 3 || !cmp.Equal(stored, sent) || !cmp.Equal(stored[2], res.Plan) ||
		!cmp.Equal(s.Plan(), res.Plan) || res.Plan.IsOpen() {
		t.Errorf("the journal has %+v, the events %+v, the result %+v", stored, sent, res.Plan)
	}
}

// TestPlanIsToldAgain has rounds that do not change the plan.
func TestPlanIsToldAgain(t *testing.T) {
	m := &model{answers: []answer{calls(writePlan("p"))}}
	for i := range 22 {
		m.answers = append(m.answers, calls(succeeds("c"+string(rune('a'+i)), string(rune('a'+i)))))
	}
	cfg := config(m, failing("try"))
	cfg.Planner, cfg.Profile.ContextWindow = true, 1_000_000
	submit(t, newSession(t, cfg), "go")
	var told []int
	for n := range 23 {
		if strings.HasPrefix(lastText(t, m, n), "Plan (") {
			told = append(told, n)
		}
	}
	if !slices.Equal(told, []int{1, 11, 21}) {
		t.Errorf("the plan is in the requests %v", told)
	}
}

// TestPlanSurvivesCompaction has a plan whose messages a summary replaces: the model is
// told of the plan again after the next round.
func TestPlanSurvivesCompaction(t *testing.T) {
	requests, compacted, afterwards := 0, false, []string{}
	m := modelFunc(func(req llm.Request) answer {
		requests++
		last := req.Messages[len(req.Messages)-1].Text()
		switch {
		case isSummary(req):
			compacted = true
			return answer{text: "SUMMARY without a word of it"}
		case requests == 1:
			return calls(writePlan("p"))
		case compacted && len(afterwards) < 2:
			afterwards = append(afterwards, last)
		case compacted:
			return answer{text: "done"}
		}
		return calls(call("", "read", object{"path": fmt.Sprint("file", requests)}))
	})
	cfg := config(m, reader(6000))
	cfg.Planner, cfg.Profile.ContextWindow, cfg.Profile.AnswerTokens = true, 40_000, 4_000
	s := newSession(t, cfg)
	res := submit(t, s, "go")
	if res.Status != agent.StatusCompleted || len(s.Plan().Tasks) != 2 || len(afterwards) != 2 {
		t.Fatalf("%s, plan %+v, after the summary %q", res.Status, s.Plan(), afterwards)
	}
	if !slices.ContainsFunc(afterwards, func(text string) bool {
		return strings.HasPrefix(text, "Plan (0 of 2 completed): make it")
	}) {
		t.Errorf("the model was told %q", afterwards)
	}
}

// TestResumedPlan goes on with the plan of a session.
func TestResumedPlan(t *testing.T) {
	dir := t.TempDir()
	cfg := config(&model{answers: []answer{calls(writePlan("p"))}}, failing("try"))
	cfg.Planner, cfg.Store = true, session.OnDisk(dir)
	s := newSession(t, cfg)
	submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	store, r, err := session.Open(dir+"/"+s.ID(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{answers: []answer{calls(succeeds("c", "x"))}}
	cfg.Client = m
	again, err := newAgent(t, cfg).Resume(t.Context(), store, r, agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close() //nolint:errcheck // the test has what it needs
	res := submit(t, again, "go on")
	if got := steps(res); got[1] != "prepared model_running" || len(again.Plan().Tasks) != 2 {
		t.Errorf("steps %q, plan %+v", got, again.Plan())
	}
	if text := lastText(t, m, 1); !strings.HasPrefix(text, "Plan (0 of 2 completed)") {
		t.Errorf("the model got %q", text)
	}
}

// TestReplanWithPlanner tells a model that fails to change its plan.
func TestReplanWithPlanner(t *testing.T) {
	m := &model{answers: slices.Concat([]answer{calls(writePlan("p"))}, inRow(1, 3),
		[]answer{{text: "the cause"}})}
	cfg := config(m, failing("try"))
	cfg.Planner, cfg.Limits.MaxReplans = true, 0
	cfg.Profile.ContextWindow = 100_000
	submit(t, newSession(t, cfg), "go")
	if text := lastText(t, m, 5); !strings.HasPrefix(text, "Change your plan first.") {
		t.Errorf("the model got %q", text)
	}
}

// recitation returns a function that writes what five failures and a plan of ten subtasks with long
// texts add to a turn.
func recitation(t testing.TB) func() string {
	t.Helper()
	long := strings.Repeat("a long text ", 40)
	var tasks []plan.Task
	for i := range 10 {
		tasks = append(tasks, plan.Task{ID: fmt.Sprintf("task%d", i), Title: long})
	}
	p, err := plan.New(long, false, tasks)
	if err != nil {
		t.Fatal(err)
	}
	var l failure.Ledger
	for i := range 5 {
		c := llm.ToolCall{
			ID:        fmt.Sprint(i),
			Name:      "try",
			Arguments: `{"at":"` + fmt.Sprint(i) + long + `"}`,
		}
		f := failure.OfCall(c, &tool.Error{Kind: tool.KindNotFound, Message: long}, "", time.Time{})
		l.Add(failure.Round{failure.CallOf(failing("try"), c, &f)})
	}
	l.Recite() // the newest failure is in a result until then
	return func() string { return l.Recite() + "\n\n" + p.Recite() }
}

// TestRecitationIsShort has at most 300 tokens, of four characters.
func TestRecitationIsShort(t *testing.T) {
	text := recitation(t)()
	if n := utf8.RuneCountInString(text); n > 1200 || strings.Count(text, "\n- ") != 15 {
		t.Errorf("%d characters: %s", n, text)
	}
}

// BenchmarkRecitation reports the tokens of a recitation.
func BenchmarkRecitation(b *testing.B) {
	recite, text := recitation(b), ""
	for b.Loop() {
		text = recite()
	}
	b.ReportMetric(float64(utf8.RuneCountInString(text))/4, "tokens")
}
