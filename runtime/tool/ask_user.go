package tool

import (
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed ask_user.md
var askUserText string

// AskUser is the tool ask_user. Its result asks the loop to wait for an answer.
func AskUser() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "ask_user", Description: askUserText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"question": {"type": "string", "minLength": 1, "description": "The question, with all that the user needs to know to answer it."},
				"options": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Answers to choose from; the user may give another one."}
			},
			"required": ["question"],
			"additionalProperties": false
		}`)},
		Run: askUser,
	}
}

func askUser(_ context.Context, call *Call) (Result, error) {
	var args struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
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
