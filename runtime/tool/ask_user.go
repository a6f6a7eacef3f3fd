package tool

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy"
)

// AskUser returns the tool ask_user, which makes the loop wait for the user's answer.
func AskUser() Tool {
	return builtin(Tool{Class: policy.ClassHuman, ToolSpec: spec("ask_user", `
		"question": {"type": "string", "minLength": 1,
			"description": "The question, with all that the user needs to know to answer it."},
		"options": {"type": "array", "items": {"type": "string", "minLength": 1},
			"description": "Answers to choose from; the user may give another one."}`,
		"question")}, askUser)
}

type askUserArgs struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

func askUser(_ context.Context, _ *Call, args askUserArgs) (Result, error) {
	if strings.TrimSpace(args.Question) == "" {
		return Result{}, errorf(KindValidation, "question is empty")
	}
	question := args.Question
	for i, option := range args.Options {
		question += fmt.Sprintf("\n%d. %s", i+1, option)
	}
	return Result{
		Text:     "The user was asked; the answer comes as the user's next message.",
		Question: question,
	}, nil
}
