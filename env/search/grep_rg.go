package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/env/internal/regular"
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// rgAfter is the number of files searched without ripgrep. An expression with many matches reaches
	// its limit in them, and the first results do not wait for a process.
	rgAfter = 64
	// rgBatch, rgBytes and rgArgs bound the files of one process: their number, their size, and the
	// length of their names.
	rgBatch, rgBytes, rgArgs = 512, 64 << 20, 96 << 10
	// rgFewest is the minimum number of files for a process, and rgLargest the maximum size of a file
	// for ripgrep, which holds a whole line in memory.
	rgFewest, rgLargest = 16, 16 << 20
	// rgRecord bounds the size of a record that is read. Names are shorter.
	rgRecord = 64 << 10
	// rgLines bounds the candidate lines of a file. If more match, all lines are candidates.
	rgLines = 50
)

// ripgrep selects candidates for an expression without a required literal, which it tries on each
// line much faster than package regexp. Grep still decides which lines match.
type ripgrep struct {
	run  env.Runner
	path string
	expr string
}

// findRipgrep returns an installed ripgrep, or nil if none is usable or needed. It refuses one in
// the working directory of e or in the searched root, directly or by a symlink, and one in a
// relative directory of PATH: commands could have created it.
func findRipgrep(e env.FileReader, pattern *grep.Pattern, root string) *ripgrep {
	run, ok := e.(env.Environment)
	if !ok || regular.OpenOf(e) == nil || pattern.Literal() {
		return nil
	}
	file, err := exec.LookPath("rg")
	if err != nil || !filepath.IsAbs(file) {
		return nil
	}
	workDir := run.Info().WorkDir
	if !path.IsAbs(root) {
		root = pathname.Join(workDir, root)
	}
	for _, dir := range []string{workDir, root} {
		if isBelow(file, dir) {
			return nil
		}
	}
	expr := pattern.Ripgrep()
	if expr == "" {
		return nil
	}
	return &ripgrep{run: run, path: file, expr: expr}
}

// isBelow reports whether a file is below a directory, or may be. Both are absolute names of this
// machine.
func isBelow(file, dir string) bool {
	dir, err := filepath.EvalSymlinks(filepath.FromSlash(dir))
	if err != nil {
		return true
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return true
	}
	// A symlink below dir is refused wherever its target is.
	parent, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return true
	}
	for _, name := range []string{target, parent} {
		if below, err := filepath.Rel(dir, name); err != nil || filepath.IsLocal(below) {
			return true
		}
	}
	return false
}

// candidates returns the numbers of the lines that may match by file; false if ripgrep failed.
func (r *ripgrep) candidates(ctx context.Context, names []string) (map[string][]int, bool) {
	argv := []string{
		r.path, "--json", "--no-config", "--text", "--threads=1", "--no-pre", "--no-crlf",
		"--case-sensitive",
		"--max-count=" + strconv.Itoa(rgLines+1), "-e", r.expr, "--",
	}
	argv = append(argv, names...)
	out := rgOutput{found: map[string][]int{}}
	result, err := r.run.Exec(ctx, env.Command{Argv: argv, Stdout: &out})
	// Its exit code is 2 if it could not read a file.
	return out.found, err == nil && (result.ExitCode == 0 || result.ExitCode == 1) && out.whole &&
		!out.bad
}

// rgOutput parses the records that ripgrep writes.
type rgOutput struct {
	// found are the candidate lines by file; nil lines mean all.
	found map[string][]int
	// file is the file of the current records.
	file string
	line []byte
	// skip is true inside a record that is too long.
	skip bool
	// whole is true after the last record, bad after a malformed one.
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

// record parses one record. A match never has several lines: that needs a flag.
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
		case data.Line <= 0 || len(lines) == rgLines || len(lines) > 0 &&
			lines[len(lines)-1] >= data.Line:
			o.found[o.file] = nil
		default:
			o.found[o.file] = append(lines, data.Line)
		}
	}
}

// sift detects binary files, and marks those of the others in which ripgrep finds no candidate.
func (w *grepWorker) sift(files []grepFile) {
	var some siftedFiles
	for i := range files {
		if w.ctx.Err() != nil {
			return
		}
		f := &files[i]
		if f.unread != nil {
			continue
		}
		size, ok := w.probe(f)
		if !ok {
			continue
		}
		f.spent = true
		if w.spend != nil {
			w.spend(size)
		}
		if some.add(f, size); some.size > rgBytes || some.args > rgArgs {
			w.runRipgrep(&some)
		}
	}
	w.runRipgrep(&some)
}

// siftedFiles are files for one ripgrep process.
type siftedFiles struct {
	files      []*grepFile
	names      []string
	size, args int64
}

func (s *siftedFiles) add(f *grepFile, size int64) {
	name := f.name
	if name == "-" { // which means stdin
		name = "./-"
	}
	s.files, s.names = append(s.files, f), append(s.names, name)
	s.size += size
	s.args += int64(len(name)) + 16
}

// runRipgrep runs ripgrep on some files, marks the result in them, and clears some.
func (w *grepWorker) runRipgrep(some *siftedFiles) {
	if len(some.files) == 0 {
		return
	}
	if found, ok := w.rg.candidates(w.ctx, some.names); ok {
		for i, f := range some.files {
			lines, may := found[some.names[i]]
			f.known, f.lines = !may, lines
		}
	}
	*some = siftedFiles{}
}

// probe returns the size of a file and whether ripgrep may read it. It marks unreadable and binary
// files.
func (w *grepWorker) probe(f *grepFile) (int64, bool) {
	file, size, err := w.open(*f)
	if err != nil {
		f.unread = err
		return 0, false
	}
	defer func() { _ = file.Close() }() // It was only read.
	if size > rgLargest {
		return 0, false
	}
	err = w.searcher.Probe(w.ctx, file)
	if f.binary = errors.Is(err, grep.ErrBinary); f.binary {
		f.known = true
	}
	return size, err == nil
}

// unknownSize is the size of a file that is not needed.
const unknownSize = -1

func (w *grepWorker) open(f grepFile) (file io.ReadCloser, size int64, err error) {
	if w.openRegular != nil && f.listed {
		return w.openRegular(w.ctx, f.name)
	}
	file, err = w.e.Open(w.ctx, f.name)
	return file, unknownSize, err
}
