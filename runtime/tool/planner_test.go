package tool

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
)

// fakePlanner keeps a plan, unless err is set.
type fakePlanner struct {
	plan  plan.Plan
	err   error
	alone bool
}

func (f *fakePlanner) Delegates() bool { return !f.alone }

func (f *fakePlanner) Plan() plan.Plan { return f.plan }

func (f *fakePlanner) SetPlan(_ context.Context, p plan.Plan) error {
	if f.err == nil {
		f.plan = p
	}
	return f.err
}

func TestPlanTools(t *testing.T) {
	var f fakePlanner
	r := registry(t, PlanTools(&f)...)
	for _, step := range []struct {
		tool, args string
		kind       ErrorKind
		want       string
	}{
		{"plan_read", `{}`, KindNotFound, "no plan exists yet; plan_write makes one"},
		{
			"plan_update", `{"changes": [{"id": "a", "status": "completed"}]}`, KindNotFound,
			"no plan exists",
		},
		{"plan_write", `{"goal": "g", "tasks": []}`, KindValidation, "tasks"},
		{
			"plan_write", `{"goal": "g", "tasks": [{"id": "a", "title": "x", "depends_on": ["a"]}]}`,
			KindValidation, "the plan was not changed: these tasks depend on each other in a circle",
		},
		{
			"plan_write", `{"goal": "g", "on_failure": "cancel", "tasks": [
				{"id": "a", "title": "x", "parallel": true}, {"id": "b", "title": "y", "parallel": true},
				{"id": "c", "title": "z", "depends_on": ["a", "b"], "note": "last"}]}`,
			"", "These can be done at the same time: a, b. Start an agent for each with spawn_agent, in " +
				"one answer, and then wait for them. Next: a.",
		},
		{
			"plan_update", `{"changes": [{"id": "a", "status": "in_progress"}, {"id": "b",
				"status": "in_progress"}]}`, "", "No subtask can begin before another one is completed.",
		},
		{"plan_update", `{"changes": [{"id": "a", "status": "done"}]}`, KindValidation, "status"},
		{
			"plan_update", `{"changes": [{"id": "c", "status": "completed"}]}`, KindValidation,
			"c is blocked",
		},
		{
			"plan_read", `{}`, "",
			"Goal: g\n- in_progress a: x\n- in_progress b: y\n- blocked c (by a, b): z [last]",
		},
		{
			"plan_update", `{"changes": [{"id": "a", "status": "failed", "note": "no"}, {"id": "b",
				"status": "completed"}]}`, "", "No subtask is open any more.",
		},
		{"plan_read", `{}`, "", "- failed a: x [no]\n- completed b: y\n- cancelled c: z [last]"},
	} {
		o := r.Run(t.Context(), Scope{}, llm.ToolCall{ID: "i", Name: step.tool, Arguments: step.args})
		if kind := kindOf(o); kind != step.kind || !strings.Contains(o.Result.Text(), step.want) {
			t.Errorf("%s %s: %q, %s", step.tool, step.args, kind, o.Result.Text())
		}
	}
	f.err = errors.New("the disk is full")
	o := r.Run(t.Context(), Scope{}, llm.ToolCall{
		Name: "plan_write", Arguments: `{"goal": "g", "tasks": [{"id": "a", "title": "x"}]}`,
	})
	if o.Err == nil || o.Err.Kind != KindOther || o.Result.Text() != "the disk is full" {
		t.Errorf("%+v", o)
	}
}

func kindOf(o Outcome) ErrorKind {
	if o.Err == nil {
		return ""
	}
	return o.Err.Kind
}

// TestPlanToolsAreSafe checks what policies need to know.
func TestPlanToolsAreSafe(t *testing.T) {
	subjects := map[string]string{
		"plan_write":  `{"goal": "g", "tasks": [{"id": "a", "title": "x"}]}`,
		"plan_update": `{"changes": [{"id": "a", "status": "completed"}, {"id": "b", "note": "n"}]}`,
	}
	want := map[string]string{"plan_write": "g", "plan_update": "a completed, b"}
	for _, tool := range PlanTools(&fakePlanner{}) {
		r := tool.Requests([]byte(subjects[tool.Name]))[0]
		if tool.Class != policy.ClassHuman || r.Subject != want[tool.Name] {
			t.Errorf("%s: class %s, subject %q", tool.Name, tool.Class, r.Subject)
		}
	}
}
