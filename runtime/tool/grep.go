package tool

import (
	"bufio"
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed grep.md
var grepText string

// Modes of grep's output.
const (
	grepContent = "content"
	grepFiles   = "files_with_matches"
	grepCount   = "count"
)

// Grep is the tool grep.
func Grep() Tool { return grepTool("") }

// GrepWithModes is the tool grep with the parameter output_mode: content, files_with_matches or count.
func GrepWithModes() Tool {
	return grepTool(`"output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"], "description": "Matching lines (default), only the names of files, or the number of matching lines in each file."},`)
}

func grepTool(mode string) Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "grep", Description: grepText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1, "description": "A regular expression (RE2 syntax), matched line by line."},
				"path": {"type": "string", "description": "The file or folder to search, or output://ID. Default: the working directory."},
				"glob_filter": {"type": "string", "description": "Only files whose name matches, such as *.go or src/**/*.ts."},
				"case_insensitive": {"type": "boolean", "description": "Take upper and lower case for the same. Default false."},` + mode + `
				"max_results": {"type": "integer", "minimum": 1, "description": "How many results to show at most. Default 100."}
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`)},
		ReadOnly: true, NeedsEnv: true,
		Limit: Limit{Chars: 20_000, Lines: 200, Keep: KeepHead},
		Run:   grep,
	}
}

func grep(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Pattern    string  `json:"pattern"`
		Path       string  `json:"path"`
		Glob       string  `json:"glob_filter"`
		IgnoreCase bool    `json:"case_insensitive"`
		Max        integer `json:"max_results"`
		Mode       string  `json:"output_mode"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	out := bufio.NewWriter(call.Out)
	g := &grepOutput{out: out, mode: args.Mode, max: int(args.Max)}
	if g.max == 0 {
		g.max = env.DefaultMaxMatches
	}
	opts := env.GrepOptions{Pattern: args.Pattern, Path: args.Path, Glob: args.Glob, IgnoreCase: args.IgnoreCase, MaxMatches: -1}
	stats, err := env.Grep(ctx, readerFor(call, args.Path), opts, g.match)
	g.endFile()
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	note, err := unreadable(err)
	if err != nil {
		return Result{}, err
	}
	switch {
	case g.more:
		note += fmt.Sprintf("[stopped after %d results, there are more: narrow the pattern or the path, or raise max_results]\n", g.max)
	case g.results == 0:
		note += fmt.Sprintf("[no matches in %d files]\n", stats.Files)
	}
	if stats.SkippedBinary > 0 {
		note += fmt.Sprintf("[%d binary files were not searched]\n", stats.SkippedBinary)
	}
	return Result{Text: note}, nil
}

// unreadable makes a note of an error that only says that parts of the tree could not be read.
func unreadable(err error) (note string, rest error) {
	var u *env.UnreadableError
	if !errors.As(err, &u) {
		return "", err
	}
	return fmt.Sprintf("[%d files or folders could not be read, the first because of: %s]\n", u.Count, cutRunes(u.First.Error(), 300)), nil
}

// grepOutput writes matches in one of the modes.
type grepOutput struct {
	out     *bufio.Writer
	mode    string
	max     int
	results int
	// more says that there are more results than max.
	more bool
	// file is the file of the last match, and count how many it has.
	file  string
	count int
}

func (g *grepOutput) match(m env.GrepMatch) error {
	isNew := m.Name != g.file || g.count == 0
	if isNew {
		g.endFile()
	}
	if isNew || g.mode == "" || g.mode == grepContent {
		if g.results == g.max {
			g.more = true
			return fs.SkipAll
		}
		g.results++
	}
	g.file = m.Name
	g.count++
	if g.mode == "" || g.mode == grepContent {
		cut := ""
		if m.LineCut {
			cut = " [line cut]"
		}
		_, _ = fmt.Fprintf(g.out, "%s:%d:%s%s\n", oneLine(m.Name), m.Line, m.Text, cut) // Flush tells the error.
	}
	return nil
}

// endFile writes what is told once for a file.
func (g *grepOutput) endFile() {
	if g.count == 0 {
		return
	}
	switch g.mode {
	case grepFiles:
		_, _ = fmt.Fprintf(g.out, "%s\n", oneLine(g.file)) // Flush tells the error.
	case grepCount:
		_, _ = fmt.Fprintf(g.out, "%s:%d\n", oneLine(g.file), g.count) // Flush tells the error.
	}
	g.count = 0
}

// oneLine is a file name that stays on its line: one with control characters is quoted.
func oneLine(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}
