package tool

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
)

// Planner keeps the plan of a session for [PlanTools]. Implementations are safe for concurrent use.
type Planner interface {
	// Plan returns the plan; the zero value is none.
	Plan() plan.Plan
	// SetPlan replaces the plan.
	SetPlan(ctx context.Context, p plan.Plan) error
	// Delegates reports whether the model can start agents.
	Delegates() bool
}

// PlanTools returns the tools plan_write, plan_update and plan_read.
func PlanTools(planner Planner) []Tool {
	const id = `"id": {"type": "string", "minLength": 1, "maxLength": 40,`
	set := func(ctx context.Context, p plan.Plan, err error) (Result, error) {
		if err != nil {
			return Result{}, errorf(KindValidation, "the plan was not changed: %w", err)
		}
		if err := planner.SetPlan(ctx, p); err != nil {
			return Result{}, err
		}
		return Result{Text: planText(p, planner.Delegates())}, nil
	}
	return []Tool{
		builtin(Tool{
			ToolSpec: spec("plan_write", `
				"goal": {"type": "string", "minLength": 1, "description": "What is wanted in the end."},
				"tasks": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "object",
					"properties": {
						`+id+` "description": "A short name without spaces."},
						"title": {"type": "string", "minLength": 1, "description": "What to do."},
						"depends_on": {"type": "array", "items": {"type": "string"},
							"description": "The IDs of subtasks that must be completed before."},
						"parallel": {"type": "boolean",
							"description": "A sub-agent may do it while others work."},
						"status": {"type": "string",
							"enum": ["pending", "in_progress", "completed", "failed", "cancelled"],
							"description": "Default pending."},
						"note": {"type": "string", "description": "What is known about it."}},
					"required": ["id", "title"], "additionalProperties": false}},
				"on_failure": {"type": "string", "enum": ["block", "cancel"],
					"description": "What happens to subtasks that depend on a failed one. Default block."}`,
				"goal", "tasks"),
			Class:    policy.ClassHuman,
			Subjects: subjects(func(a planWriteArgs) []string { return []string{a.Goal} }),
		}, func(ctx context.Context, _ *Call, args planWriteArgs) (Result, error) {
			p, err := plan.New(args.Goal, args.OnFailure == "cancel", args.Tasks)
			return set(ctx, p, err)
		}),
		builtin(Tool{
			ToolSpec: spec("plan_update", `
				"changes": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "object",
					"properties": {
						`+id+` "description": "The ID of the subtask."},
						"status": {"type": "string",
							"enum": ["pending", "in_progress", "completed", "failed", "cancelled"],
							"description": "The new status."},
						"note": {"type": "string", "description": "What came of it, or why it failed."}},
					"required": ["id"], "additionalProperties": false}}`,
				"changes"),
			Class:    policy.ClassHuman,
			Subjects: subjects(planChanges),
		}, func(ctx context.Context, _ *Call, args planUpdateArgs) (Result, error) {
			p := planner.Plan()
			if len(p.Tasks) == 0 {
				return Result{}, errNoPlan
			}
			p, err := p.Update(args.Changes)
			return set(ctx, p, err)
		}),
		builtin(Tool{
			ToolSpec: spec("plan_read", ``), ReadOnly: true, Class: policy.ClassHuman,
		}, func(context.Context, *Call, struct{}) (Result, error) {
			p := planner.Plan()
			if len(p.Tasks) == 0 {
				return Result{}, errNoPlan
			}
			return Result{Text: p.String()}, nil
		}),
	}
}

var errNoPlan = &Error{Kind: KindNotFound, Message: "no plan exists yet; plan_write makes one"}

type planWriteArgs struct {
	Goal      string      `json:"goal"`
	Tasks     []plan.Task `json:"tasks"`
	OnFailure string      `json:"on_failure"`
}

type planUpdateArgs struct {
	Changes []plan.Change `json:"changes"`
}

// planChanges names the changes of a call.
func planChanges(a planUpdateArgs) []string {
	list := make([]string, len(a.Changes))
	for i, c := range a.Changes {
		list[i] = strings.TrimSpace(c.ID + " " + string(c.Status))
	}
	return []string{strings.Join(list, ", ")}
}

// planText tells a model what a change of the plan means. With delegates it can start agents.
func planText(p plan.Plan, delegates bool) string {
	if !p.IsOpen() {
		return "No subtask is open any more. Check the whole, and end with your report."
	}
	var texts []string
	if list := p.Parallel(); delegates && len(list) > 0 {
		ids := make([]string, len(list))
		for i, t := range list {
			ids[i] = t.ID
		}
		texts = append(
			texts,
			fmt.Sprintf("These can be done at the same time: %s. Start an agent for each "+
				"with spawn_agent, in one answer, and then wait for them.", strings.Join(ids, ", ")),
		)
	}
	if list := p.Ready(); len(list) > 0 {
		texts = append(texts, "Next: "+list[0].ID+".")
	}
	if len(texts) == 0 {
		texts = append(texts, "No subtask can begin before another one is completed.")
	}
	return strings.Join(texts, " ")
}
