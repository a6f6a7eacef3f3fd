package tool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy"
)

const (
	// maxManyFiles bounds the files that read_many_files reads.
	maxManyFiles = 100
	// maxManyFile is the size in bytes of the largest file that read_many_files shows.
	maxManyFile = 1 << 20
)

// ReadManyFiles returns the tool read_many_files. It reads all files with one call of
// [env.ReadFiles], which is one round trip to a remote environment.
func ReadManyFiles() Tool {
	return builtin(Tool{
		ToolSpec: spec("read_many_files", `
			"paths": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100,
				"description": "The files, absolute or relative to the working directory."},
			"patterns": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 20,
				"description": "Patterns such as src/**/*.py, relative to the working directory."}`),
		ReadOnly: true, NeedsEnv: true,
		Class: policy.ClassRead,
		Subjects: subjects(func(a readManyFilesArgs) []string {
			subjects := slices.Clone(a.Paths)
			for _, pattern := range a.Patterns {
				subjects = append(subjects, policy.AnyOf(pattern))
			}
			return subjects
		}),
		Limit:   Limit{Chars: 50_000, Keep: KeepHeadTail},
		Aliases: map[string]string{"include": "patterns"},
	}, readManyFiles)
}

type readManyFilesArgs struct {
	Paths    []string `json:"paths"`
	Patterns []string `json:"patterns"`
}

func readManyFiles(ctx context.Context, call *Call, args readManyFilesArgs) (Result, error) {
	if len(args.Paths)+len(args.Patterns) == 0 {
		return Result{}, errorf(KindValidation, "paths and patterns are both missing; name the "+
			"files to read")
	}
	names, remark, err := manyNames(ctx, call.Env, args.Paths, args.Patterns)
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
	if m.failed != nil && m.readable == 0 {
		return Result{Text: remark}, errorf(m.failed.Kind, "none of the files could be read")
	}
	return Result{Text: remark}, nil
}

// manyNames returns the names of the files to read, each once, and a remark to the model about
// those left out.
func manyNames(
	ctx context.Context, e env.Environment, paths, patterns []string,
) (names []string, remark string, err error) {
	seen := map[string]bool{}
	add := func(name string) (fits bool) {
		key := path.Clean(name)
		if fits = seen[key] || len(names) < maxManyFiles; fits && !seen[key] {
			seen[key] = true
			names = append(names, name)
		}
		return fits
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
		remark += unread
		left := 0
		for _, entry := range found {
			if !add(entry.Name) {
				left++
			}
		}
		switch {
		case left > 0:
			remark += fmt.Sprintf("[%d more files match %s; give a narrower pattern or their names]\n", left,
				shown(pattern))
		case len(found) == 0:
			remark += fmt.Sprintf("[no files match %s]\n", shown(pattern))
		}
	}
	return names, remark, nil
}

// manyView writes files one below the other.
type manyView struct {
	out   *bufio.Writer
	bytes int64
	// readable counts the files that could be read, failed is the error of the first other one.
	readable int
	failed   *Error
}

func (m *manyView) show(ctx context.Context, c env.FileContent) error {
	_, _ = fmt.Fprintf(m.out, "=== %s ===\n", oneLine(c.Name)) // Flush returns the error.
	text := ""
	m.readable++
	switch start := c.Data[:min(len(c.Data), 8<<10)]; {
	case errors.Is(c.Err, env.ErrTooLarge):
		text = fmt.Sprintf("[too large to be shown with others: %s; read parts of it with read_file]\n",
			cutRunes(c.Err.Error(), 300))
	case c.Err != nil:
		m.readable--
		e := classify(ctx, c.Err)
		if m.failed == nil {
			m.failed = e
		}
		text = fmt.Sprintf("[not read: %s]\n", cutRunes(e.Message, 300))
	case len(c.Data) == 0:
		text = "[empty]\n"
	case imageType(start) != "":
		text = fmt.Sprintf("[an image: %s, %d bytes; read_file shows it]\n", imageType(start),
			len(c.Data))
	case bytes.IndexByte(start, 0) >= 0:
		text = fmt.Sprintf("[a binary file: %s, %d bytes]\n", fileType(start), len(c.Data))
	case m.bytes >= maxReadBytes:
		text = "[not shown: the files above are long enough; read it in another call]\n"
	default:
		from := bufio.NewReader(bytes.NewReader(c.Data))
		v := view{r: from, out: m.out, first: 1, limit: defaultReadLines}
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
	_, _ = fmt.Fprintln(m.out, text) // Flush returns the error.
	return nil
}
