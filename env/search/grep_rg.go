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
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// rgAfter is how many files are searched and delivered before ripgrep is asked. An expression that
	// many lines match has reached its limit by then, and the first results do not wait for it.
	rgAfter = 64
	// rgBatch is how many files ripgrep is given at once, rgBytes how many bytes they may have, and
	// rgArgs their names.
	rgBatch, rgBytes, rgArgs = 512, 64 << 20, 96 << 10
	// rgFewest is for how many files it is worth starting it, and rgLargest the size of a file that it
	// is spared: it holds a line in memory, however long that is.
	rgFewest, rgLargest = 16, 16 << 20
	// rgRecord is the size of the longest record of it that is of interest. Names are shorter.
	rgRecord = 64 << 10
	// rgLines is how many lines of a file it tells. Where there are more, each line of the file may
	// match.
	rgLines = 50
)

// ripgrep finds the files that may have a match for an expression that has no text to look for,
// which it tries on each line much faster than package regexp does. What matches is for Grep to
// say.
type ripgrep struct {
	run  env.Runner
	path string
	expr string
}

// findRipgrep returns nil if there is no ripgrep, or nothing for it to do. Only one that is
// installed is used: none that is in the working directory of e or in root, which is searched, by
// whatever name, and none that a relative folder of PATH has.
func findRipgrep(e env.FileReader, pattern *grep.Pattern, root string) *ripgrep {
	run, ok := e.(env.Environment)
	if _, near := e.(regularOpener); !ok || !near || pattern.Literal() {
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

// isBelow tells whether a file is in a folder, or below it, or whether that cannot be told. Both
// are absolute names of this machine.
func isBelow(file, dir string) bool {
	dir, err := filepath.EvalSymlinks(filepath.FromSlash(dir))
	if err != nil {
		return true
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return true
	}
	// The folder that has the file may be a part of what is searched, though the file is a link out of
	// it.
	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return true
	}
	for _, name := range []string{target, folder} {
		if below, err := filepath.Rel(dir, name); err != nil || filepath.IsLocal(below) {
			return true
		}
	}
	return false
}

// candidates returns the numbers of the lines that may match, by the names of their files; false if
// it cannot tell.
func (r *ripgrep) candidates(ctx context.Context, names []string) (map[string][]int, bool) {
	argv := []string{
		r.path, "--json", "--no-config", "--text", "--threads=1", "--no-pre", "--no-crlf",
		"--case-sensitive",
		"--max-count=" + strconv.Itoa(rgLines+1), "-e", r.expr, "--",
	}
	argv = append(argv, names...)
	out := rgOutput{found: map[string][]int{}}
	result, err := r.run.Exec(ctx, env.Command{Argv: argv, Stdout: &out})
	// It exits with 2 if there is one file that it could not read.
	return out.found, err == nil && (result.ExitCode == 0 || result.ExitCode == 1) && out.whole &&
		!out.bad
}

// rgOutput takes the records of ripgrep.
type rgOutput struct {
	found map[string][]int
	// file is the one that the records are about; all of its lines may match if its entry in found is
	// nil.
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
		case data.Line <= 0 || len(lines) == rgLines || len(lines) > 0 &&
			lines[len(lines)-1] >= data.Line:
			o.found[o.file] = nil
		default:
			o.found[o.file] = append(lines, data.Line)
		}
	}
}

// sift looks at the start of each file and asks ripgrep about the rest of it. It leaves those to
// search that may have a match.
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
			w.ask(&some)
		}
	}
	w.ask(&some)
}

// siftedFiles are those that ripgrep is to look at.
type siftedFiles struct {
	files      []*grepFile
	names      []string
	size, args int64
}

func (s *siftedFiles) add(f *grepFile, size int64) {
	name := f.name
	if name == "-" { // which is the standard input
		name = "./-"
	}
	s.files, s.names = append(s.files, f), append(s.names, name)
	s.size += size
	s.args += int64(len(name)) + 16
}

// ask has ripgrep look at some files, of which there are none afterwards.
func (w *grepWorker) ask(some *siftedFiles) {
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

// probe returns the size of a file and tells whether ripgrep is to look at it. Otherwise it sets
// what is known of it, if anything is.
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

// unknownSize is that of a file that is not looked at.
const unknownSize = -1

func (w *grepWorker) open(f grepFile) (file io.ReadCloser, size int64, err error) {
	if o, ok := w.e.(regularOpener); ok && f.listed {
		return o.OpenRegular(w.ctx, f.name)
	}
	file, err = w.e.Open(w.ctx, f.name)
	return file, unknownSize, err
}
