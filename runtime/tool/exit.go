package tool

import (
	"context"
	"fmt"

	"github.com/sandboxagent/sandboxagent/policy"
)

// ExitTool returns the tool exit, which makes the loop end the run.
func ExitTool() Tool {
	return builtin(Tool{Class: policy.ClassHuman, ToolSpec: spec("exit", `
		"code": {"type": "integer", "enum": [0, 1, 2, -1],
			"description": "0 the task is done, 1 it failed, 2 a human is needed, -1 the time is over."},
		"reason": {"type": "string", "minLength": 1,
			"description": "Why, in a sentence or two, for the user."}`,
		"code", "reason")}, exit)
}

type exitArgs struct {
	Code   integer `json:"code"`
	Reason string  `json:"reason"`
}

func exit(_ context.Context, _ *Call, args exitArgs) (Result, error) {
	return Result{
		Text: fmt.Sprintf("The run ends with code %d.", args.Code),
		Exit: &Exit{Code: int(args.Code), Reason: args.Reason},
	}, nil
}
