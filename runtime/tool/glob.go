package tool

import (
	"bufio"
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"
	"path"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed glob.md
var globText string

// Glob is the tool glob.
func Glob() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "glob", Description: globText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1, "description": "The pattern, such as **/*.go or cmd/*/main.{go,rs}, relative to path."},
				"path": {"type": "string", "description": "The folder to search. Default: the working directory."}
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`)},
		ReadOnly: true, NeedsEnv: true,
		Limit: Limit{Chars: 20_000, Lines: 500, Keep: KeepHead},
		Run:   glob,
	}
}

func glob(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	entries, err := env.Glob(ctx, call.Env, env.GlobOptions{Pattern: args.Pattern, Dir: args.Path})
	note, err := unreadable(err)
	if err != nil {
		return Result{}, err
	}
	out := bufio.NewWriter(call.Out)
	for _, entry := range entries {
		_, _ = fmt.Fprintln(out, oneLine(path.Join(args.Path, entry.Name))) // Flush tells the error.
	}
	if len(entries) == 0 {
		note = "[no files match]\n" + note
	}
	return Result{Text: note}, out.Flush()
}
