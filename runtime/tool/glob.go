package tool

import (
	"bufio"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy"
)

// anthropicGlobFiles bounds the files that AnthropicGlob shows.
const anthropicGlobFiles = 100

// Glob returns the tool glob, which shows all files.
func Glob() Tool { return globTool("", nil, globDefaults{matchCase: true}) }

// AnthropicGlob returns the tool glob in the form of Claude Code: it shows the 100 newest files.
func AnthropicGlob() Tool {
	return globTool("", nil, globDefaults{matchCase: true, limit: anthropicGlobFiles})
}

// GeminiGlob returns the tool glob in the form of gemini-cli: it ignores case by default.
func GeminiGlob() Tool {
	return globTool(`,
			"case_sensitive": {"type": "boolean",
				"description": "Distinguish upper and lower case. Default false."},
			"respect_git_ignore": {"type": "boolean",
				"description": "Leave out what git ignores. Default true."}`,
		map[string]string{"dir_path": "path"}, globDefaults{})
}

// globDefaults are the differences between the variants of glob.
type globDefaults struct {
	matchCase bool
	// limit is the largest number of files that are shown, 0 for all.
	limit int
}

func globTool(more string, aliases map[string]string, defaults globDefaults) Tool {
	return builtin(Tool{
		ToolSpec: spec("glob", `
			"pattern": {"type": "string", "minLength": 1,
				"description": "The pattern, such as **/*.go or cmd/*/main.{go,rs}, relative to path."},
			"path": {"type": "string",
				"description": "The directory to search. Default: the working directory."}`+more,
			"pattern"),
		ReadOnly: true, NeedsEnv: true,
		Class:    policy.ClassSearch,
		Subjects: subjects(func(a globArgs) []string { return []string{a.Pattern} }),
		Limit:    Limit{Chars: 20_000, Lines: 500, Keep: KeepHead},
		Aliases:  aliases,
	}, func(ctx context.Context, call *Call, args globArgs) (Result, error) {
		return glob(ctx, call, args, defaults)
	})
}

type globArgs struct {
	Pattern   string `json:"pattern"`
	Path      string `json:"path"`
	MatchCase *bool  `json:"case_sensitive"`
	GitIgnore *bool  `json:"respect_git_ignore"`
}

func glob(ctx context.Context, call *Call, args globArgs, defaults globDefaults) (Result, error) {
	opts := search.GlobOptions{
		Pattern: args.Pattern, Dir: args.Path,
		IgnoreCase: !or(args.MatchCase, defaults.matchCase), NoIgnore: !or(args.GitIgnore, true),
	}
	if defaults.limit > 0 {
		opts.Limit = defaults.limit + 1 // so that a longer list is recognised
	}
	entries, err := search.Glob(ctx, call.Env, opts)
	remark, err := unreadable(err)
	if err != nil {
		return Result{}, err
	}
	if defaults.limit > 0 && len(entries) > defaults.limit {
		entries = entries[:defaults.limit]
		remark = fmt.Sprintf("[these are the %d newest files, more match: narrow the pattern or the "+
			"path]\n", defaults.limit) + remark
	}
	out := bufio.NewWriter(call.Out)
	for _, entry := range entries {
		_, _ = fmt.Fprintln(out, oneLine(below(args.Path, entry.Name))) // Flush returns the error.
	}
	if len(entries) == 0 {
		remark = "[no files match]\n" + remark
	}
	return Result{Text: remark}, out.Flush()
}

// below joins a directory and a name in it. It keeps "..", since path.Join would resolve it without
// regard to symlinks.
func below(dir, name string) string {
	if !slices.Contains(strings.Split(dir, "/"), "..") {
		return path.Join(dir, name)
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
