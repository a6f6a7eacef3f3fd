package tool

import (
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed exit.md
var exitText string

// ExitTool is the tool exit. Its result asks the loop to end the run.
func ExitTool() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "exit", Description: exitText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"code": {"type": "integer", "enum": [0, 1, 2, -1], "description": "0 the task is done, 1 it failed, 2 a human is needed, -1 the time is over."},
				"reason": {"type": "string", "minLength": 1, "description": "Why, in a sentence or two, for the user."}
			},
			"required": ["code", "reason"],
			"additionalProperties": false
		}`)},
		Run: exit,
	}
}

func exit(_ context.Context, call *Call) (Result, error) {
	var args struct {
		Code   integer `json:"code"`
		Reason string  `json:"reason"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	return Result{
		Text: fmt.Sprintf("The run ends with code %d.", args.Code),
		Exit: &Exit{Code: int(args.Code), Reason: args.Reason},
	}, nil
}
