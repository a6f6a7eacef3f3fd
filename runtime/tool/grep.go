package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy"
)

// Modes of grep's output.
const (
	grepContent = "content"
	grepFiles   = "files_with_matches"
	grepCount   = "count"

	// maxRedacted bounds a line in which secrets are looked for, in bytes; less of it is shown.
	maxRedacted = 8 << 10
)

// Grep returns the tool grep with the parameters that all models get.
func Grep() Tool { return grepTool("", nil, false) }

// AnthropicGrep returns the tool grep with the additional parameters of Claude Code: lines
// around matches, types of files, matches of several lines, and an offset.
func AnthropicGrep() Tool {
	return grepTool(`,
			"-A": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show after each match, as path-line-text."},
			"-B": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show before each match, as path-line-text."},
			"-C": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show before and after each match, as path-line-text."},
			"-n": {"type": "boolean", "description": "Show line numbers. Default true."},
			"type": {"type": "string",
				"description": "Only files of this type, such as go, py, ts, rust or java."},
			"multiline": {"type": "boolean",
				"description": "Match across lines: a match may span several, and a dot matches a line ending.
				Default false."},
			"offset": {"type": "integer", "minimum": 0, "maximum": 1000000000,
				"description": "How many results to leave out before the first that is shown. Default 0."}`,
		map[string]string{
			"glob": "glob_filter", "-i": "case_insensitive", "head_limit": "max_results", "context": "-C",
		}, true)
}

// GeminiGrep returns the tool grep with the additional parameters of gemini-cli: lines
// around matches, files to leave out, names only, literal patterns, ignored files, and a limit for
// each file.
func GeminiGrep() Tool {
	return grepTool(`,
			"exclude_pattern": {"type": "string",
				"description": "No files whose name matches, such as *.min.js or vendor/**."},
			"names_only": {"type": "boolean",
				"description": "Show only the names of files, as output_mode files_with_matches does. Default
				false."},
			"case_sensitive": {"type": "boolean",
				"description": "The opposite of case_insensitive; give one of the two."},
			"fixed_strings": {"type": "boolean",
				"description": "Match the pattern literally, not as an expression. Default false."},
			"context": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show before and after each match, as path-line-text."},
			"before": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show before each match, as path-line-text."},
			"after": {"type": "integer", "minimum": 0, "maximum": 1000,
				"description": "How many lines to show after each match, as path-line-text."},
			"no_ignore": {"type": "boolean", "description": "Search what git ignores, too. Default false."},
			"max_matches_per_file": {"type": "integer", "minimum": 1, "maximum": 1000000000,
				"description": "How many matching lines of each file to show at most."}`,
		map[string]string{
			"dir_path": "path", "include_pattern": "glob_filter", "total_max_matches": "max_results",
		}, false)
}

// grepTool returns a variant of the tool with more parameters. If it pages, offset is one of them.
func grepTool(more string, aliases map[string]string, pages bool) Tool {
	return builtin(Tool{
		ToolSpec: spec("grep", `
			"pattern": {"type": "string", "minLength": 1,
				"description": "A regular expression (RE2 syntax), matched line by line."},
			"path": {"type": "string",
				"description": "The file or directory to search, or output://ID. Default: the working
				directory."},
			"glob_filter": {"type": "string",
				"description": "Only files whose name matches, such as *.go or src/**/*.ts."},
			"case_insensitive": {"type": "boolean", "description": "Ignore case. Default false."},
			"output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"],
				"description": "Matching lines (default), only the names of files, or the number of matching
				lines in each file."},
			"max_results": {"type": "integer", "minimum": 0, "maximum": 1000000000,
				"description": "How many results (matching lines, files or counts) to show at most; 0 for all.
				Default 100."}`+more,
			"pattern"),
		ReadOnly: true, NeedsEnv: true,
		Class:    policy.ClassSearch,
		Subjects: subjects(func(a grepArgs) []string { return []string{a.Pattern} }),
		Limit:    Limit{Chars: 20_000, Lines: 200, Keep: KeepHead},
		Aliases:  aliases,
	}, func(ctx context.Context, call *Call, args grepArgs) (Result, error) {
		return grep(ctx, call, args, pages)
	})
}

// grepArgs are the parameters of all variants of the tool.
type grepArgs struct {
	Pattern    string   `json:"pattern"`
	Path       string   `json:"path"`
	Glob       string   `json:"glob_filter"`
	IgnoreCase *bool    `json:"case_insensitive"`
	Mode       string   `json:"output_mode"`
	Max        *integer `json:"max_results"`

	A         integer `json:"-A"`
	B         integer `json:"-B"`
	C         integer `json:"-C"`
	Numbers   *bool   `json:"-n"`
	Type      string  `json:"type"`
	Multiline bool    `json:"multiline"`
	Offset    integer `json:"offset"`

	Exclude    string  `json:"exclude_pattern"`
	NamesOnly  bool    `json:"names_only"`
	MatchCase  *bool   `json:"case_sensitive"`
	Literal    bool    `json:"fixed_strings"`
	Context    integer `json:"context"`
	Before     integer `json:"before"`
	After      integer `json:"after"`
	NoIgnore   bool    `json:"no_ignore"`
	MaxPerFile integer `json:"max_matches_per_file"`
}

// options returns the options of the search. Errors are of KindValidation.
func (a *grepArgs) options() (search.GrepOptions, error) {
	opts := search.GrepOptions{
		Pattern: a.Pattern, Literal: a.Literal, Multiline: a.Multiline,
		Path: a.Path, Glob: a.Glob, Exclude: a.Exclude, NoIgnore: a.NoIgnore,
		IgnoreCase:     or(a.IgnoreCase, !or(a.MatchCase, true)),
		MaxFileMatches: int(a.MaxPerFile), MaxMatches: -1,
	}
	if a.MatchCase != nil && opts.IgnoreCase == *a.MatchCase {
		return opts, errorf(KindValidation, "case_sensitive and case_insensitive are both %t, which "+
			"contradict each other; give one of them", *a.MatchCase)
	}
	if a.Type != "" {
		if types := search.FileTypes(); !slices.Contains(types, a.Type) {
			return opts, errorf(KindValidation, "unknown type of files %s; use glob_filter, or one of "+
				"these: %s", shown(a.Type), strings.Join(types, ", "))
		}
		opts.Types = []string{a.Type}
	}
	mode := a.Mode
	if a.NamesOnly {
		if mode != "" && mode != grepFiles {
			return opts, errorf(KindValidation, "names_only and output_mode %s contradict each other; "+
				"give one of them", mode)
		}
		mode = grepFiles
	}
	switch mode {
	case grepFiles:
		opts.Mode = search.GrepFiles
	case grepCount:
		opts.Mode = search.GrepCounts
	}
	var err error
	if opts.Before, opts.After, err = a.around(); err != nil {
		return opts, err
	}
	if opts.Mode != search.GrepLines && opts.Before+opts.After > 0 {
		return opts, errorf(KindValidation, "lines around matches can only be shown with the matching "+
			"lines, but the output is %s; leave them out, or use output_mode content", mode)
	}
	if most := a.most(); most > 0 {
		opts.MaxMatches = int(a.Offset) + most
	}
	return opts, nil
}

// most returns the number of results to show, 0 for all.
func (a *grepArgs) most() int { return int(or(a.Max, search.DefaultMaxMatches)) }

// around returns the numbers of lines to show before and after a match.
func (a *grepArgs) around() (before, after int, err error) {
	type count struct {
		name string
		n    integer
	}
	both, sides := count{"context", a.Context}, []count{{"before", a.Before}, {"after", a.After}}
	if a.A+a.B+a.C > 0 {
		both, sides = count{"-C", a.C}, []count{{"-B", a.B}, {"-A", a.A}}
	}
	if both.n == 0 {
		return int(sides[0].n), int(sides[1].n), nil
	}
	for _, side := range sides {
		if side.n != 0 && side.n != both.n {
			return 0, 0, errorf(KindValidation, "%s %d and %s %d contradict each other; give %s alone, "+
				"or %s and %s", both.name, both.n, side.name, side.n, both.name, sides[0].name, sides[1].name)
		}
	}
	return int(both.n), int(both.n), nil
}

func grep(ctx context.Context, call *Call, args grepArgs, pages bool) (Result, error) {
	opts, err := args.options()
	if err != nil {
		return Result{}, err
	}
	if call.Redactor != nil {
		opts.MaxLineBytes = maxRedacted
	}
	out := bufio.NewWriter(call.Out)
	g := &grepOutput{
		out: out, redactor: call.Redactor, numbers: or(args.Numbers, true), offset: int(args.Offset),
		groups: opts.Before+opts.After > 0, before: opts.Before,
	}
	stats, err := search.Grep(ctx, readerFor(call, args.Path), opts, g.match)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	remark, err := unreadable(err)
	if err != nil {
		return Result{}, err
	}
	switch {
	case stats.Truncated:
		more := "raise max_results"
		if pages {
			more = fmt.Sprintf("go on with offset %d", opts.MaxMatches)
		}
		remark += fmt.Sprintf("[stopped after %d results, more match: narrow the pattern or the path, "+
			"or %s]\n", args.most(), more)
	case g.results == 0:
		remark += fmt.Sprintf("[no matches in %d files]\n", stats.Files)
	case g.results <= g.offset:
		remark += fmt.Sprintf("[%d results match, and offset leaves out %d]\n", g.results, g.offset)
	}
	if stopped := map[search.GrepStop]string{
		search.GrepOverTime:  search.DefaultGrepTime.String(),
		search.GrepOverBytes: fmt.Sprintf("%d GiB", search.DefaultGrepBytes>>30),
	}[stats.Stopped]; stopped != "" {
		remark += fmt.Sprintf("[stopped after %s with a part of the files not searched, since the "+
			"pattern requires no literal text: narrow the path, or add text to the pattern]\n", stopped)
	}
	if stats.SkippedBinary > 0 {
		remark += fmt.Sprintf("[%d binary files were not searched]\n", stats.SkippedBinary)
	}
	return Result{Text: remark}, nil
}

// unreadable turns an error about unreadable parts of a tree into a remark to the model.
func unreadable(err error) (remark string, rest error) {
	var u *search.UnreadableError
	if !errors.As(err, &u) {
		return "", err
	}
	return fmt.Sprintf("[%d files or directories could not be read; the first error: %s]\n", u.Count,
		cutRunes(u.First.Error(), 300)), nil
}
