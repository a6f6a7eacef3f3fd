package tool

import (
	"context"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy"
)

// PlanEnter returns the tool plan_enter, which calls enter and returns its text.
func PlanEnter(enter func(context.Context) (string, error)) Tool {
	return builtin(Tool{
		ToolSpec: spec("plan_enter", ``), Class: policy.ClassHuman,
	}, func(ctx context.Context, _ *Call, _ struct{}) (Result, error) {
		text, err := enter(ctx)
		return Result{Text: text}, err
	})
}

// PlanExit returns the tool plan_exit, which calls exit with the plan and returns its text.
func PlanExit(exit func(ctx context.Context, plan string) (string, error)) Tool {
	return builtin(Tool{
		ToolSpec: spec("plan_exit", `
			"plan": {"type": "string", "minLength": 1,
				"description": "The whole plan, for the user to approve: the steps, the files that change, and
				how the result is tested."}`,
			"plan"),
		Class:    policy.ClassHuman,
		Subjects: subjects(func(a planExitArgs) []string { return []string{a.Plan} }),
	}, func(ctx context.Context, _ *Call, args planExitArgs) (Result, error) {
		if strings.TrimSpace(args.Plan) == "" {
			return Result{}, errorf(KindValidation, "plan is empty")
		}
		text, err := exit(ctx, args.Plan)
		return Result{Text: text}, err
	})
}

type planExitArgs struct {
	Plan string `json:"plan"`
}
