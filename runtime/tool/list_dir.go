package tool

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy"
)

// maxListed bounds the entries that list_dir shows.
const maxListed = 2000

// ListDir returns the tool list_dir.
func ListDir() Tool {
	return builtin(Tool{
		ToolSpec: spec("list_dir", `
			"path": {"type": "string", "minLength": 1,
				"description": "The directory, absolute or relative to the working directory, which is
				\".\"."},
			"depth": {"type": "integer", "minimum": 1,
				"description": "How many levels to show. Default 1: only the directory itself."}`,
			"path"),
		ReadOnly: true, NeedsEnv: true,
		Class:    policy.ClassRead,
		Subjects: subjects(func(a listDirArgs) []string { return []string{a.Path} }),
		Limit:    Limit{Chars: defaultLimit, Keep: KeepHead},
	}, listDir)
}

type listDirArgs struct {
	Path  string  `json:"path"`
	Depth integer `json:"depth"`
}

func listDir(ctx context.Context, call *Call, args listDirArgs) (Result, error) {
	depth := int(min(max(args.Depth, 1), 1000))
	out := bufio.NewWriter(call.Out)
	count, more, unread := 0, false, 0
	// One level is shown as it is. Below it, ignored files would outnumber the others.
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
		text = fmt.Sprintf("[stopped after %d entries; list a subdirectory, or use glob]\n", maxListed)
	case count == 0:
		text = "[the directory is empty]\n"
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
		return name + "/  directory"
	case e.Mode.IsRegular():
		return fmt.Sprintf("%s  file  %d bytes", name, e.Size)
	case e.Mode&fs.ModeSymlink != 0:
		return name + "  symlink"
	default:
		return name + "  special file"
	}
}
