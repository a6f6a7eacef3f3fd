package tool

import (
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed write_file.md
var writeFileText string

// WriteFile is the tool write_file.
func WriteFile() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "write_file", Description: writeFileText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"file_path": {"type": "string", "minLength": 1, "description": "The file, absolute or relative to the working directory."},
				"content": {"type": "string", "description": "What the file is to hold: all of it."}
			},
			"required": ["file_path", "content"],
			"additionalProperties": false
		}`)},
		NeedsEnv: true,
		Limit:    Limit{Chars: 1_000, Keep: KeepTail},
		Run:      writeFile,
	}
}

func writeFile(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Path    string `json:"file_path"`
		Content string `json:"content"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	written, err := call.Env.WriteFile(ctx, args.Path, strings.NewReader(args.Content),
		env.WriteOptions{})
	if err != nil {
		return Result{}, err
	}
	kind, verb := event.FileModified, "overwrote"
	if written.Created {
		kind, verb = event.FileCreated, "created"
	}
	return Result{
		Text:    fmt.Sprintf("%s %s: %d bytes%s", verb, shown(args.Path), written.Size, inPlace(written)),
		Changes: []event.FileChange{{Path: changedName(call.Env, args.Path), Kind: kind}},
	}, nil
}

// inPlace says that a write was not atomic.
func inPlace(w env.Written) string {
	if w.InPlace {
		return " (written in place, since the file could not be replaced)"
	}
	return ""
}
