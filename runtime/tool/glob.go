package tool

import (
	"bufio"
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed glob.md
var globText string

// anthropicGlobFiles is how many files Claude models are shown.
const anthropicGlobFiles = 100

// Glob is the tool glob, which shows all files.
func Glob() Tool { return globTool("", nil, globDefaults{gitIgnore: true, mindCase: true}) }

// AnthropicGlob is the tool glob as Claude models know it. It shows the 100 newest files.
func AnthropicGlob() Tool {
	return globTool("", nil, globDefaults{gitIgnore: true, mindCase: true, most: anthropicGlobFiles})
}

// GeminiGlob is the tool glob as Gemini models know it. Unless they ask for it, case makes no
// difference.
func GeminiGlob() Tool {
	return globTool(`,
		"case_sensitive": {"type": "boolean", "description": "Take upper and lower case for different. Default false."},
		"respect_git_ignore": {"type": "boolean", "description": "Leave out what git ignores. Default true."}`,
		map[string]string{"dir_path": "path"}, globDefaults{gitIgnore: true})
}

// globDefaults are how a form of the tool behaves unless a call says otherwise.
type globDefaults struct {
	gitIgnore, mindCase bool
	// most is how many files are shown, 0 for all.
	most int
}

func globTool(more string, aliases map[string]string, defaults globDefaults) Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "glob", Description: globText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1, "description": "The pattern, such as **/*.go or cmd/*/main.{go,rs}, relative to path."},
				"path": {"type": "string", "description": "The folder to search. Default: the working directory."}` + more + `
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`)},
		ReadOnly: true, NeedsEnv: true,
		Limit:   Limit{Chars: 20_000, Lines: 500, Keep: KeepHead},
		Aliases: aliases,
		Run: func(ctx context.Context, call *Call) (Result, error) {
			return glob(ctx, call,
				defaults)
		},
	}
}

func glob(ctx context.Context, call *Call, defaults globDefaults) (Result, error) {
	args := struct {
		Pattern   string `json:"pattern"`
		Path      string `json:"path"`
		MindCase  bool   `json:"case_sensitive"`
		GitIgnore bool   `json:"respect_git_ignore"`
	}{MindCase: defaults.mindCase, GitIgnore: defaults.gitIgnore}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	opts := search.GlobOptions{
		Pattern: args.Pattern, Dir: args.Path, IgnoreCase: !args.MindCase,
		NoIgnore: !args.GitIgnore,
	}
	if defaults.most > 0 {
		opts.Limit = defaults.most + 1 // one more tells that there are more
	}
	entries, err := search.Glob(ctx, call.Env, opts)
	note, err := unreadable(err)
	if err != nil {
		return Result{}, err
	}
	if defaults.most > 0 && len(entries) > defaults.most {
		entries = entries[:defaults.most]
		note = fmt.Sprintf("[these are the %d newest files, there are more: narrow the pattern or the "+
			"path]\n", defaults.most) + note
	}
	out := bufio.NewWriter(call.Out)
	for _, entry := range entries {
		_, _ = fmt.Fprintln(out, oneLine(below(args.Path, entry.Name))) // Flush tells the error.
	}
	if len(entries) == 0 {
		note = "[no files match]\n" + note
	}
	return Result{Text: note}, out.Flush()
}

// below makes a name from a folder and a name in it. It keeps "..", which path.Join resolves as if
// there were no links.
func below(dir, name string) string {
	if !slices.Contains(strings.Split(dir, "/"), "..") {
		return path.Join(dir, name)
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
