package tool

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // For the description.
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed read_many_files.md
var readManyFilesText string

const (
	// maxManyFiles is how many files read_many_files reads.
	maxManyFiles = 100
	// maxManyFile is the size in bytes of the largest file that read_many_files shows.
	maxManyFile = 1 << 20
)

// ReadManyFiles is the tool read_many_files. It reads all files at once, so that a remote
// environment is asked once.
func ReadManyFiles() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "read_many_files", Description: readManyFilesText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"paths": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100, "description": "The files, absolute or relative to the working directory."},
				"patterns": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 20, "description": "Patterns such as src/**/*.py, relative to the working directory."}
			},
			"additionalProperties": false
		}`)},
		ReadOnly: true, NeedsEnv: true,
		Limit:   Limit{Chars: 50_000, Keep: KeepHeadTail},
		Aliases: map[string]string{"include": "patterns"},
		Run:     readManyFiles,
	}
}

func readManyFiles(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Paths    []string `json:"paths"`
		Patterns []string `json:"patterns"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	if len(args.Paths)+len(args.Patterns) == 0 {
		return Result{}, errorf(KindValidation, "neither paths nor patterns are given; say which "+
			"files to read")
	}
	names, note, err := manyNames(ctx, call.Env, args.Paths, args.Patterns)
	if err != nil {
		return Result{}, err
	}
	contents, err := env.ReadFiles(ctx, call.Env, names, maxManyFile)
	if err != nil {
		return Result{}, err
	}
	m := &manyView{out: bufio.NewWriter(call.Out)}
	for _, c := range contents {
		if err := m.show(ctx, c); err != nil {
			return Result{}, err
		}
	}
	if err := m.out.Flush(); err != nil {
		return Result{}, err
	}
	if m.failed != nil && m.told == 0 {
		return Result{Text: note}, errorf(m.failed.Kind, "none of the files could be read")
	}
	return Result{Text: note}, nil
}

// manyNames returns the names of the files to read, each once, and what to say about those left
// out.
func manyNames(
	ctx context.Context, e env.Environment, paths, patterns []string,
) (names []string, note string, err error) {
	seen := map[string]bool{}
	add := func(name string) bool {
		key := path.Clean(name)
		if seen[key] {
			return true
		}
		if len(names) == maxManyFiles {
			return false
		}
		seen[key] = true
		names = append(names, name)
		return true
	}
	for _, name := range paths {
		add(name)
	}
	for _, pattern := range patterns {
		found, err := search.Glob(ctx, e, search.GlobOptions{Pattern: pattern})
		unread, err := unreadable(err)
		if err != nil {
			return nil, "", err
		}
		note += unread
		left := 0
		for _, entry := range found {
			if !add(entry.Name) {
				left++
			}
		}
		switch {
		case left > 0:
			note += fmt.Sprintf("[%d more files match %s; give a narrower pattern or their names]\n", left,
				shown(pattern))
		case len(found) == 0:
			note += fmt.Sprintf("[no files match %s]\n", shown(pattern))
		}
	}
	return names, note, nil
}

// manyView shows files one below the other.
type manyView struct {
	out   *bufio.Writer
	bytes int64
	// told counts the files of which something could be told, failed is why the first other one could
	// not be read.
	told   int
	failed *Error
}

func (m *manyView) show(ctx context.Context, c env.FileContent) error {
	_, _ = fmt.Fprintf(m.out, "=== %s ===\n", oneLine(c.Name)) // Flush tells the error.
	text := ""
	switch start := c.Data[:min(len(c.Data), 8<<10)]; {
	case errors.Is(c.Err, env.ErrTooLarge):
		text = fmt.Sprintf("[too large to be shown with others: %s; read parts of it with read_file]\n",
			cutRunes(c.Err.Error(), 300))
		m.told++
	case c.Err != nil:
		e := classify(ctx, c.Err)
		if m.failed == nil {
			m.failed = e
		}
		text = fmt.Sprintf("[not read: %s]\n", cutRunes(e.Message, 300))
	case len(c.Data) == 0:
		text = "[empty]\n"
		m.told++
	case imageType(start) != "":
		text = fmt.Sprintf("[an image: %s, %d bytes; read_file shows it]\n", imageType(start),
			len(c.Data))
		m.told++
	case bytes.IndexByte(start, 0) >= 0:
		text = fmt.Sprintf("[a binary file: %s, %d bytes]\n", fileType(start), len(c.Data))
		m.told++
	case m.bytes >= maxReadBytes:
		text = "[not shown: the files above are long enough; read it in another call]\n"
		m.told++
	default:
		m.told++
		v := view{
			r: bufio.NewReader(bytes.NewReader(c.Data)), out: m.out, first: 1,
			limit: defaultReadLines,
		}
		if err := v.show(ctx); err != nil {
			return err
		}
		m.bytes += v.shown
		r, err := v.result(c.Name)
		if err != nil {
			return err
		}
		text = r.Text
	}
	_, _ = fmt.Fprintln(m.out, text) // Flush tells the error.
	return nil
}
