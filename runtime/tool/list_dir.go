package tool

import (
	"bufio"
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed list_dir.md
var listDirText string

// maxListed is how many entries list_dir shows.
const maxListed = 2000

// ListDir is the tool list_dir.
func ListDir() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "list_dir", Description: listDirText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "description": "The folder, absolute or relative to the working directory, which is \".\"."},
				"depth": {"type": "integer", "minimum": 1, "description": "How many levels to show. Default 1: only the folder itself."}
			},
			"required": ["path"],
			"additionalProperties": false
		}`)},
		ReadOnly: true, NeedsEnv: true,
		Limit: Limit{Chars: defaultLimit, Keep: KeepHead},
		Run:   listDir,
	}
}

func listDir(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Path  string  `json:"path"`
		Depth integer `json:"depth"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	depth := int(min(max(args.Depth, 1), 1000))
	out := bufio.NewWriter(call.Out)
	count, more, unread := 0, false, 0
	// One level is shown as it is. Below it, what git ignores would bury the rest.
	opts := search.WalkOptions{MaxDepth: depth, Details: true, NoIgnore: depth == 1}
	err := search.Walk(ctx, call.Env, args.Path, opts, func(e search.Entry) error {
		if e.Err != nil {
			unread++
			return nil
		}
		if count == maxListed {
			more = true
			return fs.SkipAll
		}
		count++
		_, err := fmt.Fprintf(out, "%s\n", entryLine(e))
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return Result{}, err
	}
	text := ""
	switch {
	case more:
		text = fmt.Sprintf("[stopped after %d entries; list a folder below this one, or use glob]\n",
			maxListed)
	case count == 0:
		text = "[the folder is empty]\n"
	}
	if unread > 0 {
		text += fmt.Sprintf("[%d entries could not be read]\n", unread)
	}
	return Result{Text: text}, nil
}

func entryLine(e search.Entry) string {
	name := oneLine(e.Name)
	switch {
	case e.Mode.IsDir():
		return name + "/  folder"
	case e.Mode.IsRegular():
		return fmt.Sprintf("%s  file  %d bytes", name, e.Size)
	case e.Mode&fs.ModeSymlink != 0:
		return name + "  link"
	default:
		return name + "  special file"
	}
}
