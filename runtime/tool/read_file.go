package tool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const (
	// defaultReadLines is the number of lines that read_file shows by default.
	defaultReadLines = 2000
	// maxReadLine is the number of bytes of a line that read_file shows.
	maxReadLine = 512 << 10
	// maxReadBytes is the number of bytes of a file that read_file shows in one call.
	maxReadBytes = 4 << 20
	// maxCounted is the number of further bytes that read_file reads to count the lines of the file.
	maxCounted = 16 << 20
	// maxImage is the largest image that is shown, in bytes. Some providers accept no larger one.
	maxImage = 5 << 20
)

// ReadFile returns the tool read_file, which shows lines with numbers, and images as images.
func ReadFile() Tool {
	return builtin(Tool{
		ToolSpec: spec("read_file", `
			"file_path": {"type": "string", "minLength": 1,
				"description": "The file, absolute or relative to the working directory, or output://ID."},
			"offset": {"type": "integer", "minimum": 1,
				"description": "The first line to show, counted from 1. Default 1."},
			"limit": {"type": "integer", "minimum": 1,
				"description": "How many lines to show. Default 2000."}`,
			"file_path"),
		ReadOnly: true, NeedsEnv: true,
		Class:    policy.ClassRead,
		Subjects: subjects(func(a readFileArgs) []string { return []string{a.Path} }),
		Limit:    Limit{Chars: 50_000, Keep: KeepHeadTail},
	}, readFile)
}

type readFileArgs struct {
	Path   string  `json:"file_path"`
	Offset integer `json:"offset"`
	Limit  integer `json:"limit"`
}

func readFile(ctx context.Context, call *Call, args readFileArgs) (Result, error) {
	f, err := readerFor(call, args.Path).Open(ctx, args.Path)
	if errors.Is(err, env.ErrIsDir) {
		return Result{}, errorf(KindOther, "%s is a directory; use list_dir to list it: %w",
			shown(args.Path), err)
	}
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = f.Close() }() // It was only read.
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	r := bufio.NewReaderSize(f, 64<<10)
	start, err := r.Peek(8 << 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	}
	if len(start) == 0 {
		return Result{Text: fmt.Sprintf("[%s is empty]", shown(args.Path))}, nil
	}
	if mime := imageType(start); mime != "" {
		return readImage(r, args.Path, mime)
	}
	if bytes.IndexByte(start, 0) >= 0 {
		return Result{}, errorf(KindOther, "%s is a binary file (%s, %d bytes); it cannot be shown as "+
			"text", shown(args.Path), fileType(start), size)
	}
	v := view{
		r: r, out: bufio.NewWriter(call.Out), first: max(args.Offset, 1), limit: args.Limit,
		redacted: call.Redactor != nil,
	}
	if v.limit == 0 {
		v.limit = defaultReadLines
	}
	if err := v.show(ctx); err != nil {
		return Result{}, err
	}
	return v.result(args.Path)
}

func readImage(r io.Reader, name, mime string) (Result, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxImage+1))
	if err != nil {
		return Result{}, err
	}
	if len(data) > maxImage {
		return Result{}, errorf(KindOther, "%s is an image (%s) of more than %d bytes, which is too "+
			"large to show", shown(name), mime, maxImage)
	}
	return Result{
		Text:   fmt.Sprintf("[%s: %s, %d bytes]", shown(name), mime, len(data)),
		Images: []llm.Image{{MIME: mime, Data: data}},
	}, nil
}

// view writes numbered lines of a file.
type view struct {
	r            *bufio.Reader
	out          *bufio.Writer
	first, limit integer
	redacted     bool // secrets are replaced in out

	// number is the number of the last line read, last that of the last line shown.
	number, last integer
	shown        int64
	crlf, bom    bool
	// key are the lines of a private key that began before first, which go before it: a part of a key
	// does not look like a secret.
	key []keyLine
	// more reports that not all lines of the file were counted.
	more bool
}

func (v *view) show(ctx context.Context) error {
	if mark, _ := v.r.Peek(3); string(mark) == "\uFEFF" {
		v.bom = true
		_, _ = v.r.Discard(len(mark)) // It is in the buffer.
	}
	counted := int64(0)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		keep := v.number+1 >= v.first && v.number+1-v.first < v.limit && v.shown < maxReadBytes
		line, size, err := v.line(ctx, keep || v.redacted && v.number+1 < v.first)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if size == 0 {
			return v.out.Flush()
		}
		v.number++
		if keep {
			for _, k := range v.key {
				_, _ = fmt.Fprintf(v.out, "%d | %s", k.number, k.text) // Flush returns the error
			}
			v.key = nil
			v.write(line, size)
		} else if v.number < v.first {
			v.before(line)
		} else if v.number > v.first {
			if counted += size; counted > maxCounted {
				v.more = true
				return v.out.Flush()
			}
		}
	}
}

// maxKey bounds the size of a private key, in bytes.
const maxKey = 64 << 10

type keyLine struct {
	number integer
	text   string
}

// before keeps a line before the first that is shown if it belongs to a private key.
func (v *view) before(line []byte) {
	if begin := bytes.Index(line, []byte("-----BEGIN ")); v.redacted && begin >= 0 {
		v.key = []keyLine{{v.number, string(line[begin:])}}
	} else if len(v.key) > 0 {
		v.key = append(v.key, keyLine{v.number, string(line)})
	} else {
		return
	}
	var all strings.Builder
	for _, k := range v.key {
		all.WriteString(k.text)
	}
	if !redact.IsKeyStart(all.String()) || all.Len() > maxKey {
		v.key = nil
	}
}

// line reads the next line. It returns the start of the line if keep is set, and its size with the
// line ending.
func (v *view) line(ctx context.Context, keep bool) (line []byte, size int64, err error) {
	for {
		piece, err := v.r.ReadSlice('\n')
		size += int64(len(piece))
		if keep && len(line) <= maxReadLine {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, size, err
		}
		if ctx.Err() != nil {
			return nil, size, context.Cause(ctx)
		}
	}
}

func (v *view) write(line []byte, size int64) {
	v.last = v.number
	if text, ok := bytes.CutSuffix(line, []byte("\n")); ok {
		line = text
		if text, ok := bytes.CutSuffix(line, []byte("\r")); ok {
			line, v.crlf = text, true
		}
	}
	if len(line) > maxReadLine {
		line = wholeRunes(line[:maxReadLine])
		line = fmt.Appendf(line, " [line cut: it has %d bytes]", size)
	}
	v.shown += int64(len(line))
	_, _ = fmt.Fprintf(v.out, "%d | %s\n", v.number, line) // Flush returns the error.
}

// wholeRunes returns p without an incomplete character at its end.
func wholeRunes(p []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}

// result describes the part of the file that was shown, unless it is all of it.
func (v *view) result(name string) (Result, error) {
	if v.last == 0 {
		return Result{}, errorf(KindValidation, "offset %d is beyond the end of %s, which has %d lines",
			v.first, shown(name), v.number)
	}
	text, more := "", ""
	if v.more {
		more = "more than "
	}
	switch {
	case v.last < v.number:
		text = fmt.Sprintf("[lines %d to %d of %s%d; go on with offset %d]\n", v.first, v.last, more,
			v.number, v.last+1)
	case v.first > 1:
		text = fmt.Sprintf("[lines %d to %d, the end of the file]\n", v.first, v.last)
	}
	if v.crlf {
		text += "[lines end with CRLF]\n"
	}
	if v.bom {
		text += "[the file starts with a byte order mark]\n"
	}
	return Result{Text: text}, nil
}
