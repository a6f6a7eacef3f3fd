package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// WriteFile returns the tool write_file.
func WriteFile() Tool {
	return builtin(Tool{
		ToolSpec: spec("write_file", `
			"file_path": {"type": "string", "minLength": 1,
				"description": "The file, absolute or relative to the working directory."},
			"content": {"type": "string", "description": "The whole new content of the file."}`,
			"file_path", "content"),
		NeedsEnv: true,
		Class:    policy.ClassWrite,
		Subjects: subjects(func(a writeFileArgs) []string { return []string{a.Path} }),
		Limit:    Limit{Chars: 1_000, Keep: KeepTail},
	}, writeFile)
}

type writeFileArgs struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
}

func writeFile(ctx context.Context, call *Call, args writeFileArgs) (Result, error) {
	content, err := restored(ctx, call, args.Path, args.Content)
	if err != nil {
		return Result{}, err
	}
	written, err := call.Env.WriteFile(ctx, args.Path, strings.NewReader(content), env.WriteOptions{})
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

// restored returns the new content of a file with the secrets of its present one.
func restored(ctx context.Context, call *Call, name, content string) (string, error) {
	if call.Redactor == nil || !redact.MayHaveMarker(content) {
		return content, nil
	}
	former, err := env.ReadFile(ctx, call.Env, name, maxEdited)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return call.restore(content, string(former))
}

// inPlace reports to the model that a write was not atomic.
func inPlace(w env.Written) string {
	if w.InPlace {
		return " (written in place, since the file could not be replaced)"
	}
	return ""
}
