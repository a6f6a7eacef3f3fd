package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

const (
	// logMessage is the message of the record of a call; the attribute "op" names the call.
	logMessage = "environment call"
	// logFirst is the message and the "op" of the first record.
	logFirst = "environment"
	// maxLogString bounds a text in a record, in bytes; maxLogStrings bounds a list.
	maxLogString  = 1 << 10
	maxLogStrings = 32
)

// Logging logs each call of e but Info. The level is slog.LevelInfo even for a failed call, since a
// missing file is a normal result. A record has the name of the call, its duration, sizes, the
// result of a command and the error. CopyOut is logged when its stream is closed. The first record,
// made at once, holds the backend, the working directory and the guarantees of e. A nil logger logs
// nothing.
//
// Records hold no contents of files, no stdin or output of commands and no values of variables.
// Arguments, names, patterns and errors pass through redact, if it is not nil; then secrets with a
// known form are redacted, and long texts shortened.
//
// The returned environment owns e: its Close closes e.
func Logging(
	e env.Environment, logger *slog.Logger, redact func(text string) string,
) env.Environment {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if redact == nil {
		redact = func(text string) string { return text }
	}
	l := &logging{inner: e, logger: logger, redact: redact}
	l.logFirst()
	return l
}

type logging struct {
	inner  env.Environment
	logger *slog.Logger
	redact func(string) string
}

var (
	_ env.Environment = (*logging)(nil)
	_ search.Searcher = (*logging)(nil)
	_ env.MultiReader = (*logging)(nil)
)

func (l *logging) Info() env.Info { return l.inner.Info() }

func (l *logging) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	// The caller may reuse the slices, so they are copied.
	attrs := []slog.Attr{slog.Any("argv", append([]string(nil), cmd.Argv...))}
	if cmd.Dir != "" {
		attrs = append(attrs, slog.String("dir", cmd.Dir))
	}
	if len(cmd.Vars) > 0 {
		attrs = append(attrs, slog.Any("vars", varNames(cmd.Vars)))
	}
	if cmd.Timeout != 0 {
		attrs = append(attrs, slog.Duration("timeout", cmd.Timeout))
	}
	if cmd.MaxProcesses != 0 {
		attrs = append(attrs, slog.Int("max_processes", cmd.MaxProcesses))
	}
	if cmd.TTY != nil {
		attrs = append(attrs, slog.Bool("tty", true))
	}
	if cmd.User != "" {
		attrs = append(attrs, slog.String("user", cmd.User))
	}
	if c := cmd.Confine; c != nil {
		attrs = append(attrs, slog.Any("confine_write", slices.Clone(c.Write)))
		if c.Hide != "" {
			attrs = append(attrs, slog.String("confine_hide", c.Hide),
				slog.Any("confine_read", slices.Clone(c.Read)))
		}
	}
	stdout, stderr := countWriters(&cmd)

	start := time.Now()
	result, err := l.inner.Exec(ctx, cmd)
	if err == nil || result != (env.Result{}) {
		attrs = append(attrs, resultAttrs(result)...)
	}
	if stdout != nil {
		attrs = append(attrs, slog.Int64("stdout_bytes", stdout.n.Load()))
	}
	if stderr != nil && stderr != stdout {
		attrs = append(attrs, slog.Int64("stderr_bytes", stderr.n.Load()))
	}
	l.record(ctx, "exec", start, err, attrs...)
	return result, err
}

func (l *logging) Open(ctx context.Context, name string) (fs.File, error) {
	start := time.Now()
	f, err := l.inner.Open(ctx, name)
	l.record(ctx, "open", start, err, slog.String("name", name))
	return f, err
}

func (l *logging) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	start := time.Now()
	info, err := l.inner.Stat(ctx, name)
	l.record(ctx, "stat", start, err, slog.String("name", name))
	return info, err
}

func (l *logging) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	start := time.Now()
	info, err := l.inner.Lstat(ctx, name)
	l.record(ctx, "lstat", start, err, slog.String("name", name))
	return info, err
}

func (l *logging) ReadLink(ctx context.Context, name string) (string, error) {
	start := time.Now()
	target, err := l.inner.ReadLink(ctx, name)
	l.record(ctx, "readlink", start, err, slog.String("name", name))
	return target, err
}

func (l *logging) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	start := time.Now()
	entries, err := l.inner.ReadDir(ctx, name)
	l.record(ctx, "readdir", start, err, slog.String("name", name), slog.Int("entries", len(entries)))
	return entries, err
}

func (l *logging) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	start := time.Now()
	w, err := l.inner.WriteFile(ctx, name, r, opts)
	l.record(ctx, "writefile", start, err, slog.String("name", name),
		slog.Int64("bytes", w.Size), slog.Bool("created", w.Created), slog.Bool("in_place", w.InPlace))
	return w, err
}

func (l *logging) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	start := time.Now()
	err := l.inner.Remove(ctx, name, opts)
	l.record(ctx, "remove", start, err, slog.String("name", name),
		slog.Bool("recursive", opts.Recursive))
	return err
}

func (l *logging) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	start := time.Now()
	counted := &countingReader{inner: archive}
	err := l.inner.CopyIn(ctx, dir, counted)
	l.record(ctx, "copyin", start, err, slog.String("dir", dir), slog.Int64("bytes", counted.n.Load()))
	return err
}

func (l *logging) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	attrs := []slog.Attr{slog.String("dir", dir), slog.Any("names", append([]string(nil), names...))}
	start := time.Now()
	stream, err := l.inner.CopyOut(ctx, dir, names...)
	if err != nil {
		l.record(ctx, "copyout", start, err, attrs...)
		return nil, err
	}
	return &loggedStream{inner: stream, report: func(n int64, err error) {
		l.record(ctx, "copyout", start, err, append(attrs, slog.Int64("bytes", n))...)
	}}, nil
}

func (l *logging) Close() error {
	start := time.Now()
	err := l.inner.Close()
	l.record(context.Background(), "close", start, err)
	return err
}

func (l *logging) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	start, entries := time.Now(), 0
	err := search.Walk(ctx, l.inner, root, opts, func(entry search.Entry) error {
		entries++
		return fn(entry)
	})
	l.record(ctx, "walk", start, err, slog.String("name", root), slog.Int("entries", entries))
	return err
}

func (l *logging) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	start := time.Now()
	stats, err := search.Grep(ctx, l.inner, opts, fn)
	l.record(ctx, "grep", start, err, slog.String("pattern", opts.Pattern),
		slog.String("name", opts.Path), slog.Int("files", stats.Files),
		slog.Int("matches", stats.Matches))
	return stats, err
}

func (l *logging) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	start := time.Now()
	entries, err := search.Glob(ctx, l.inner, opts)
	l.record(ctx, "glob", start, err, slog.String("pattern", opts.Pattern),
		slog.String("name", opts.Dir), slog.Int("entries", len(entries)))
	return entries, err
}

func (l *logging) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	attrs := []slog.Attr{slog.Any("names", append([]string(nil), names...))}
	start := time.Now()
	contents, err := env.ReadFiles(ctx, l.inner, names, limit)
	size, failed := 0, 0
	for _, c := range contents {
		size += len(c.Data)
		if c.Err != nil {
			failed++
		}
	}
	l.record(ctx, "readfiles", start, err, append(attrs, slog.Int("bytes", size),
		slog.Int("failed", failed))...)
	return contents, err
}

// logFirst logs the first record.
func (l *logging) logFirst() {
	ctx := context.Background()
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	info := l.inner.Info()
	l.write(ctx, logFirst, []slog.Attr{slog.String("op", logFirst)},
		slog.String("backend", info.Backend), slog.String("workdir", info.WorkDir), slog.Any("guarantees",
			info.Guarantees))
}

// record logs one call.
func (l *logging) record(
	ctx context.Context, op string, start time.Time, err error, attrs ...slog.Attr,
) {
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	if err != nil {
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	head := []slog.Attr{slog.String("op", op), slog.Duration("duration", time.Since(start))}
	l.write(ctx, logMessage, head, attrs...)
}

// write logs out and attrs. All texts of callers pass through it as attrs, which it redacts.
func (l *logging) write(ctx context.Context, message string, out []slog.Attr, attrs ...slog.Attr) {
	for _, a := range attrs {
		switch v := a.Value.Any().(type) {
		case []string:
			a.Value = slog.AnyValue(l.strings(v))
		case []env.Guarantee:
			a.Value = slog.AnyValue(l.guarantees(v))
		case string:
			a.Value = slog.StringValue(l.text(v))
		}
		out = append(out, a)
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, message, out...)
}

func resultAttrs(r env.Result) []slog.Attr {
	attrs := []slog.Attr{slog.Int("exit_code", r.ExitCode)}
	if r.Signal != "" {
		attrs = append(attrs, slog.String("signal", r.Signal))
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"timed_out", r.TimedOut},
		{"too_many_processes", r.TooManyProcesses},
		{"out_of_memory", r.OutOfMemory},
		{"detached", r.Detached},
	} {
		if flag.set {
			attrs = append(attrs, slog.Bool(flag.name, true))
		}
	}
	return attrs
}

// strings returns list, redacted like an argv and shortened.
func (l *logging) strings(list []string) []string {
	out := slices.Clone(list[:min(len(list), maxLogStrings)])
	for i, s := range out {
		out[i] = l.redact(s)
	}
	out = vars.RedactArgv(out)
	for i, s := range out {
		out[i] = shorten(s)
	}
	if more := len(list) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("… (%d more)", more))
	}
	return out
}

// guarantees returns list, redacted and shortened.
func (l *logging) guarantees(list []env.Guarantee) []env.Guarantee {
	out := make([]env.Guarantee, 0, min(len(list), maxLogStrings))
	for _, g := range list[:cap(out)] {
		out = append(out, env.Guarantee{
			Name:     env.GuaranteeName(l.text(string(g.Name))),
			Strength: env.Strength(l.text(string(g.Strength))), By: l.text(g.By),
		})
	}
	return out
}

// text returns s, redacted and shortened.
func (l *logging) text(s string) string { return shorten(vars.Redact(l.redact(s))) }

// shorten returns at most maxLogString bytes of s, which is redacted already, with their number.
func shorten(s string) string {
	if len(s) <= maxLogString {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogString], "") + fmt.Sprintf("… (%d bytes more)",
		len(s)-maxLogString)
}

// varNames returns the names in assignments and ignores malformed ones.
func varNames(assignments []string) []string {
	names := make([]string, 0, len(assignments))
	for _, v := range assignments {
		if name, _, ok := vars.Split(v); ok {
			names = append(names, name)
		}
	}
	return names
}

// countWriters wraps the writers of cmd in counters. One writer for both gets one counter, so that
// the environment does not overlap its calls.
func countWriters(cmd *env.Command) (stdout, stderr *countingWriter) {
	shared := cmd.SharesWriter()
	if cmd.Stdout != nil {
		stdout = &countingWriter{inner: cmd.Stdout}
		cmd.Stdout = stdout
	}
	if shared {
		stderr = stdout
	} else if cmd.Stderr != nil {
		stderr = &countingWriter{inner: cmd.Stderr}
	}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	return stdout, stderr
}

type countingWriter struct {
	inner io.Writer
	n     atomic.Int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.inner.Write(p)
	w.n.Add(int64(n))
	return n, err
}

type countingReader struct {
	inner io.Reader
	n     atomic.Int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// loggedStream reports the number of bytes read, and the first error, when it is closed.
type loggedStream struct {
	inner  io.ReadCloser
	report func(n int64, err error)

	mu       sync.Mutex
	n        int64
	err      error
	reported bool
}

func (s *loggedStream) Read(p []byte) (int, error) {
	n, err := s.inner.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += int64(n)
	if s.err == nil && err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (s *loggedStream) Close() error {
	err := s.inner.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if !s.reported {
		s.reported = true
		s.report(s.n, s.err)
	}
	return err
}
