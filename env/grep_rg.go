package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env/internal/grep"
)

const (
	// rgBatch is how many files ripgrep is given at once, and rgArgs how many bytes their names may have.
	rgBatch, rgArgs = 512, 96 << 10
	// rgFewest is for how many files it is worth starting it, and rgLargest the size of a file that it is spared: it holds a
	// line in memory, however long that is.
	rgFewest, rgLargest = 16, 16 << 20
	// rgRecord is the size of the longest record of it that is of interest. Names are shorter.
	rgRecord = 64 << 10
	// rgLines is how many lines of a file it may tell.
	rgLines = 20_000
)

// ripgrep finds the files that may have a match for an expression that has no text to look for, which it tries on each line much
// faster than package regexp does. What matches is for Grep to say.
type ripgrep struct {
	run  Runner
	path string
	expr string
}

// findRipgrep returns nil if there is no ripgrep, or nothing for it to do. Only one that is installed is used, none that belongs to
// what is searched or that a relative folder of PATH has.
func findRipgrep(e FileReader, pattern *grep.Pattern) *ripgrep {
	run, ok := e.(Environment)
	if _, near := e.(regularOpener); !ok || !near || pattern.Literal() {
		return nil
	}
	file, err := exec.LookPath("rg")
	if err != nil || !filepath.IsAbs(file) {
		return nil
	}
	if below, err := filepath.Rel(run.Info().WorkDir, file); err == nil && filepath.IsLocal(below) {
		return nil
	}
	expr := pattern.Ripgrep()
	if expr == "" {
		return nil
	}
	return &ripgrep{run: run, path: file, expr: expr}
}

// candidates returns the numbers of the lines that may match, by the names of their files; false if it cannot tell.
func (r *ripgrep) candidates(ctx context.Context, names []string) (map[string][]int, bool) {
	argv := []string{
		r.path, "--json", "--no-config", "--text", "--threads=1", "--no-pre", "--no-crlf", "--case-sensitive",
		"-e", r.expr, "--",
	}
	argv = append(argv, names...)
	out := rgOutput{found: map[string][]int{}}
	result, err := r.run.Exec(ctx, Command{Argv: argv, Stdout: &out})
	// It exits with 2 if there is one file that it could not read.
	return out.found, err == nil && (result.ExitCode == 0 || result.ExitCode == 1) && out.whole && !out.bad
}

// rgOutput takes the records of ripgrep.
type rgOutput struct {
	found map[string][]int
	// file is the one that the records are about; all of its lines may match if its entry in found is nil.
	file string
	line []byte
	// skip says that the rest of a record that is too long comes.
	skip bool
	// whole says that the last record has come, and bad that one was none.
	whole, bad bool
}

// Write implements io.Writer.
func (o *rgOutput) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ends := bytes.Cut(p, []byte("\n"))
		p = rest
		if o.skip = o.skip || len(o.line)+len(part) > rgRecord; o.skip {
			o.line = o.line[:0]
		} else {
			o.line = append(o.line, part...)
		}
		if ends {
			if o.skip {
				o.found[o.file] = nil
			} else {
				o.record()
			}
			o.line, o.skip = o.line[:0], false
		}
	}
	return n, nil
}

// record takes one. A match may be of several lines for ripgrep only if it is told so.
func (o *rgOutput) record() {
	var record struct {
		Type string `json:"type"`
		Data struct {
			Path struct {
				Text  *string `json:"text"`
				Bytes []byte  `json:"bytes"`
			} `json:"path"`
			Line int `json:"line_number"`
		} `json:"data"`
	}
	if err := json.Unmarshal(o.line, &record); err != nil {
		o.bad = true
		return
	}
	switch data := record.Data; record.Type {
	case "begin":
		o.file = string(data.Path.Bytes)
		if data.Path.Text != nil {
			o.file = *data.Path.Text
		}
		o.found[o.file] = []int{}
	case "summary":
		o.whole = true
	case "match":
		switch lines := o.found[o.file]; {
		case lines == nil:
		case data.Line <= 0 || len(lines) == rgLines || len(lines) > 0 && lines[len(lines)-1] >= data.Line:
			o.found[o.file] = nil
		default:
			o.found[o.file] = append(lines, data.Line)
		}
	}
}

// sift looks at the start of each file and asks ripgrep about the rest of it. It leaves those to search that may have a match.
func (w *grepWorker) sift(files []grepFile) {
	var names []string
	var at []int
	size := 0
	ask := func() {
		found, ok := w.rg.candidates(w.ctx, names)
		for i, name := range names {
			if ok {
				lines, some := found[name]
				files[at[i]].known, files[at[i]].lines = !some, lines
			}
		}
		names, at, size = names[:0], at[:0], 0
	}
	for i := range files {
		if w.ctx.Err() != nil {
			return
		}
		if f := &files[i]; f.unread != nil || !w.probe(f) {
			continue
		}
		name := files[i].name
		if name == "-" { // which is the standard input
			name = "./-"
		}
		names, at = append(names, name), append(at, i)
		if size += len(files[i].name) + 16; size > rgArgs {
			ask()
		}
	}
	if len(names) > 0 {
		ask()
	}
}

// probe tells whether ripgrep is to look at a file, and otherwise sets what is known of it, if anything is.
func (w *grepWorker) probe(f *grepFile) bool {
	file, size, err := w.open(*f)
	if err != nil {
		f.unread = err
		return false
	}
	defer func() { _ = file.Close() }() // It was only read.
	if size > rgLargest {
		return false
	}
	err = w.searcher.Probe(w.ctx, file)
	if f.binary = errors.Is(err, grep.ErrBinary); f.binary {
		f.known = true
	}
	return err == nil
}

// unknownSize is that of a file that is not looked at.
const unknownSize = -1

func (w *grepWorker) open(f grepFile) (file io.ReadCloser, size int64, err error) {
	if o, ok := w.e.(regularOpener); ok && f.listed {
		return o.OpenRegular(w.ctx, f.name)
	}
	file, err = w.e.Open(w.ctx, f.name)
	return file, unknownSize, err
}
