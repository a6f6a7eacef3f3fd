package wrap_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// records returns the records of calls in b, without their duration and time.
func records(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for d := json.NewDecoder(b); ; {
		var r map[string]any
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if r["op"] == "environment" {
			continue
		}
		if ns, ok := r["duration"].(float64); !ok || ns < 0 {
			t.Errorf("duration is %v, want a number of nanoseconds", r["duration"])
		}
		if r["msg"] != "environment call" || r["level"] != "INFO" {
			t.Errorf("record is %v, want the usual message and level", r)
		}
		for _, key := range []string{"duration", "time", "msg", "level"} {
			delete(r, key)
		}
		out = append(out, r)
	}
}

func newLogged(t *testing.T) (env.Environment, *scriptedEnv, *bytes.Buffer) {
	t.Helper()
	inner, b := newScriptedEnv(t), &bytes.Buffer{}
	return wrap.Logging(inner, slog.New(slog.NewJSONHandler(b, nil)), nil), inner, b
}

type record = map[string]any

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

func TestLoggingRecords(t *testing.T) {
	t.Parallel()
	ignore := func(search.GrepMatch) error { return nil }
	var copied int64
	tests := []struct {
		name string
		call func(ctx context.Context, e env.Environment) error
		want []record
	}{
		{"info", func(_ context.Context, e env.Environment) error { e.Info(); return nil }, nil},
		{"open", func(ctx context.Context, e env.Environment) error {
			return second(e.Open(ctx, "d/f"))
		}, []record{{"op": "open", "name": "d/f"}}},
		{"stat", func(ctx context.Context, e env.Environment) error {
			return second(e.Stat(ctx, "d"))
		}, []record{{"op": "stat", "name": "d"}}},
		{"lstat", func(ctx context.Context, e env.Environment) error {
			return second(e.Lstat(ctx, "d"))
		}, []record{{"op": "lstat", "name": "d"}}},
		{"readlink", func(ctx context.Context, e env.Environment) error {
			return second(e.ReadLink(ctx, "d/symlink"))
		}, []record{{"op": "readlink", "name": "d/symlink"}}},
		{"readdir", func(ctx context.Context, e env.Environment) error {
			return second(e.ReadDir(ctx, "d"))
		}, []record{{"op": "readdir", "name": "d", "entries": 1.0}}},
		{"writefile", func(ctx context.Context, e env.Environment) error {
			return second(e.WriteFile(ctx, "new", strings.NewReader("12345"), env.WriteOptions{}))
		}, []record{{
			"op": "writefile", "name": "new", "bytes": 5.0, "created": true, "in_place": false,
		}}},
		{"remove", func(ctx context.Context, e env.Environment) error {
			return e.Remove(ctx, "d", env.RemoveOptions{Recursive: true})
		}, []record{{"op": "remove", "name": "d", "recursive": true}}},
		{"copyin", func(ctx context.Context, e env.Environment) error {
			return e.CopyIn(ctx, "d", tarOf("x", "needle"))
		}, []record{{"op": "copyin", "dir": "d", "bytes": 2048.0}}},
		{"copyout", func(ctx context.Context, e env.Environment) error {
			s, err := e.CopyOut(ctx, "d", "f")
			if err != nil {
				return err
			}
			copied, err = io.Copy(io.Discard, s)
			return errors.Join(err, s.Close(), s.Close())
		}, []record{{"op": "copyout", "dir": "d", "names": []any{"f"}}}},
		{"walk", func(ctx context.Context, e env.Environment) error {
			return search.Walk(ctx, e, ".", search.WalkOptions{}, func(search.Entry) error { return nil })
		}, []record{{"op": "walk", "name": ".", "entries": 2.0}}},
		{"grep", func(ctx context.Context, e env.Environment) error {
			return second(search.Grep(ctx, e, search.GrepOptions{Pattern: "needle", Path: "d"}, ignore))
		}, []record{{"op": "grep", "pattern": "needle", "name": "d", "files": 1.0, "matches": 1.0}}},
		{"glob", func(ctx context.Context, e env.Environment) error {
			return second(search.Glob(ctx, e, search.GlobOptions{Pattern: "*", Dir: "d"}))
		}, []record{{"op": "glob", "pattern": "*", "name": "d", "entries": 1.0}}},
		{"readfiles", func(ctx context.Context, e env.Environment) error {
			return second(env.ReadFiles(ctx, e, []string{"d/f", "missing", "d/f"}, 0))
		}, []record{{
			"op": "readfiles", "names": []any{"d/f", "missing", "d/f"}, "bytes": 16.0, "failed": 1.0,
		}}},
		{"close", func(_ context.Context, e env.Environment) error {
			return e.Close()
		}, []record{{"op": "close"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, inner, b := newLogged(t)
			inner.put(t, "d/f", "a needle")
			if tt.name == "readlink" {
				inner.symlink(t, "f", "d/symlink")
			}
			if err := tt.call(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if tt.name == "copyout" {
				tt.want[0]["bytes"] = float64(copied)
			}
			if diff := cmp.Diff(tt.want, records(t, b)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if tt.name == "info" || tt.name == "close" {
				return
			}
			// After Close every call fails, and is logged with its error.
			if err := inner.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tt.call(t.Context(), e); err == nil {
				t.Error("the call succeeds after Close")
			}
			failed := records(t, b)
			if len(failed) != 1 || failed[0]["op"] != tt.want[0]["op"] ||
				!strings.Contains(fmt.Sprint(failed[0]["err"]), "closed") {
				t.Errorf("records of the failed call are %v, want one with its error", failed)
			}
		})
	}
}

// withInfo is an environment with another Info.
type withInfo struct {
	env.Environment
	info env.Info
}

func (w withInfo) Info() env.Info { return w.info }

// TestLoggingFirstRecord shows that the first record holds neither secrets nor long texts.
func TestLoggingFirstRecord(t *testing.T) {
	t.Parallel()
	start := func(guarantees []env.Guarantee) (first record, size int) {
		t.Helper()
		b := &bytes.Buffer{}
		info := env.Info{Backend: "local", WorkDir: "/srv/" + fakeKey, Guarantees: guarantees}
		e := wrap.Logging(withInfo{newScriptedEnv(t), info}, slog.New(slog.NewJSONHandler(b, nil)), nil)
		size = b.Len()
		if _, err := e.Stat(t.Context(), "."); err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(b).Decode(&first); err != nil {
			t.Fatal(err)
		}
		return first, size
	}
	first, _ := start([]env.Guarantee{
		{Name: env.Isolation, Strength: env.BestEffort, By: "Landlock"}, {
			Name:     env.KeptHooks,
			Strength: env.Absent, By: fakeKey,
		},
	})
	delete(first, "time")
	want := record{
		"level": "INFO", "msg": "environment", "op": "environment", "backend": "local",
		"workdir": "/srv/[REDACTED]",
		"guarantees": []any{
			record{"promise": "isolation", "strength": "best-effort", "by": "Landlock"},
			record{"promise": "kept-hooks", "strength": "absent", "by": "[REDACTED]"},
		},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first record (-want +got):\n%s", diff)
	}
	long := strings.Repeat("x", 1<<20)
	if _, size := start(slices.Repeat([]env.Guarantee{{
		Name:     env.GuaranteeName(long),
		Strength: env.Strength(long), By: long,
	}}, 100)); size > 128<<10 {
		t.Errorf("the record takes %d bytes, want 128 KiB at most", size)
	}
}

func tarOf(name, content string) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	if _, werr := io.WriteString(w, content); err == nil {
		err = werr
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return iotest.ErrReader(err)
	}
	return &b
}

func TestLoggingExec(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	tests := []struct {
		name   string
		cmd    env.Command
		result env.Result
		err    error
		want   record
	}{
		{
			"plain",
			env.Command{Argv: []string{"true"}},
			env.Result{},
			nil,
			record{"op": "exec", "argv": []any{"true"}, "exit_code": 0.0},
		},
		{
			"everything",
			env.Command{
				Argv: []string{"x"}, Dir: "d", Vars: []string{"A=b", "broken", "C=d"},
				Timeout: time.Second, Stdout: io.Discard, Stderr: &bytes.Buffer{},
			},
			env.Result{ExitCode: 137, Signal: "SIGKILL", TimedOut: true, OutOfMemory: true, Detached: true},
			nil,
			record{
				"op": "exec", "argv": []any{"x"}, "dir": "d", "vars": []any{
					"A",
					"C",
				}, "timeout": 1e9, "exit_code": 137.0,
				"signal": "SIGKILL", "timed_out": true, "out_of_memory": true, "detached": true,
				"stdout_bytes": 3.0, "stderr_bytes": 5.0,
			},
		},
		{
			"on a terminal",
			env.Command{Argv: []string{"x"}, TTY: &env.TTY{Size: env.TTYSize{Columns: 132, Rows: 50}}},
			env.Result{},
			nil,
			record{"op": "exec", "argv": []any{"x"}, "tty": true, "exit_code": 0.0},
		},
		{
			"as another user, confined",
			env.Command{Argv: []string{"x"}, User: "root", MaxProcesses: 9, Confine: &env.Confinement{
				Write: []string{"w"}, Hide: "h", Read: []string{"h/r"},
			}},
			env.Result{TooManyProcesses: true},
			nil,
			record{
				"op": "exec", "argv": []any{"x"}, "max_processes": 9.0, "too_many_processes": true,
				"user": "root", "confine_write": []any{"w"},
				"confine_hide": "h", "confine_read": []any{"h/r"}, "exit_code": 0.0,
			},
		},
		{
			"not started",
			env.Command{Argv: []string{"x"}},
			env.Result{},
			&env.StartError{Argv: []string{"x"}, Err: lost},
			record{"op": "exec", "argv": []any{"x"}, "err": "start x: lost"},
		},
		{
			"cancelled",
			env.Command{Argv: []string{"x"}},
			env.Result{ExitCode: 143},
			lost,
			record{"op": "exec", "argv": []any{"x"}, "exit_code": 143.0, "err": "lost"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, inner, b := newLogged(t)
			inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
				if (cmd.Stdout == nil) != (tt.cmd.Stdout == nil) ||
					(cmd.Stderr == nil) != (tt.cmd.Stderr == nil) {
					t.Errorf("a writer was added or lost: %+v", cmd)
				}
				if cmd.Stdout != nil {
					_, err := io.WriteString(cmd.Stdout, "out")
					_, err2 := io.WriteString(cmd.Stderr, "error")
					if err := errors.Join(err, err2); err != nil {
						t.Error(err)
					}
				}
				return tt.result, tt.err
			}
			result, err := e.Exec(t.Context(), tt.cmd)
			if result != tt.result || !errors.Is(err, tt.err) {
				t.Errorf("Exec gives %+v, %v, want %+v, %v", result, err, tt.result, tt.err)
			}
			if diff := cmp.Diff([]record{tt.want}, records(t, b)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// uncomparable is a writer whose values cannot be compared.
type uncomparable struct{ to []*bytes.Buffer }

func (u uncomparable) Write(p []byte) (int, error) { return u.to[0].Write(p) }

func TestLoggingWriters(t *testing.T) {
	t.Parallel()
	var one, two bytes.Buffer
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		stdout, stderr io.Writer
		wantSame       bool
		wantErr        error
	}{
		"same":      {&one, &one, true, nil},
		"different": {&one, &two, false, nil},
		"uncomparable": {
			uncomparable{[]*bytes.Buffer{&one}},
			uncomparable{[]*bytes.Buffer{&one}},
			false,
			nil,
		},
		"failing": {failingWriter{broken}, &two, false, broken},
	} {
		t.Run(name, func(t *testing.T) {
			e, inner, b := newLogged(t)
			inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
				if same := cmd.Stdout == cmd.Stderr; same != tt.wantSame {
					t.Errorf("both writers are the same: %v, want %v", same, tt.wantSame)
				}
				_, err := io.WriteString(cmd.Stdout, "abc")
				return env.Result{}, err
			}
			if _, err := e.Exec(t.Context(), env.Command{
				Stdout: tt.stdout,
				Stderr: tt.stderr,
			}); !errors.Is(err, tt.wantErr) {
				t.Errorf("Exec gives %v, want %v", err, tt.wantErr)
			}
			if got := records(t, b); len(got) != 1 {
				t.Errorf("records are %v, want one", got)
			}
		})
	}
}

// TestLoggingKeepsSecrets has secrets in all arguments and results, of which the log holds none.
func TestLoggingKeepsSecrets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e, inner, b := newLogged(t)
	// A secret without a known form, where the value may not be logged at all.
	const plain = "tr0ub4dor"
	inner.put(t, "file", plain+fakeKey)
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		if _, err := io.Copy(cmd.Stdout, cmd.Stdin); err != nil {
			return env.Result{}, err
		}
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: errors.New(fakeKey)}
	}
	_, _ = e.Exec(ctx, env.Command{
		Argv: []string{"curl", "--token", plain, "--password=" + plain, "-H", "Authorization: Bearer " +
			plain, "https://u:" + plain + "@h", fakeKey},
		Dir:    "/srv/" + fakeKey,
		Vars:   []string{"NAME=" + plain, "X_TOKEN=" + fakeKey, plain},
		Stdin:  strings.NewReader(plain),
		Stdout: &bytes.Buffer{},
	})
	_, _ = e.Open(ctx, fakeKey)
	_, _ = e.Stat(ctx, fakeKey)
	_, _ = e.ReadDir(ctx, fakeKey)
	_, _ = e.WriteFile(ctx, fakeKey, strings.NewReader(plain), env.WriteOptions{})
	_, _ = search.Grep(ctx, e, search.GrepOptions{Pattern: fakeKey},
		func(search.GrepMatch) error { return nil })
	_, _ = search.Glob(ctx, e, search.GlobOptions{Pattern: fakeKey, Dir: fakeKey})
	_ = search.Walk(ctx, e, fakeKey, search.WalkOptions{}, func(search.Entry) error { return nil })
	_, _ = env.ReadFile(ctx, e, "file", 0)
	_ = e.CopyIn(ctx, fakeKey, tarOf("x", plain))
	_, _ = e.CopyOut(ctx, fakeKey, fakeKey)
	_ = e.Remove(ctx, fakeKey, env.RemoveOptions{})
	log := b.String()
	if got := len(records(t, b)); got != 12 {
		t.Errorf("%d records, want 12", got)
	}
	for _, s := range []string{plain, fakeKey} {
		if i := strings.Index(log, s); i >= 0 {
			t.Errorf("%q is in the log: %s", s, log[max(0, i-200):i+len(s)])
		}
	}
}

func TestLoggingIsBounded(t *testing.T) {
	t.Parallel()
	e, _, b := newLogged(t)
	argv := make([]string, 5000)
	for i := range argv {
		argv[i] = "x" + strings.Repeat("ä", 5000)
	}
	if _, err := e.Exec(t.Context(), env.Command{Argv: argv}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Stat(t.Context(), "./"+strings.Repeat("x", 1<<20)); err == nil {
		t.Error("Stat of a name that is too long succeeds")
	}
	if b.Len() > 128<<10 {
		t.Errorf("two records take %d bytes, want 128 KiB at most", b.Len())
	}
	got := records(t, b)
	if len(got) != 2 {
		t.Fatalf("%d records, want 2", len(got))
	}
	if s := fmt.Sprint(got[0]["argv"]); strings.ContainsRune(s, '\uFFFD') || !strings.Contains(s,
		"(4968 more)") {
		t.Errorf("argv lacks the number of omitted arguments, or is cut within a character: %.80s … %s",
			s, s[len(s)-40:])
	}
}

func TestLoggingStreamErrors(t *testing.T) {
	t.Parallel()
	cut := errors.New("the stream is cut")
	b := &bytes.Buffer{}
	e := wrap.Logging(cutStream{newScriptedEnv(t), cut}, slog.New(slog.NewJSONHandler(b, nil)), nil)
	s, err := e.CopyOut(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); string(got) != "abc" || !errors.Is(err, cut) {
		t.Errorf("reading gives %q, %v, want %q, %v", got, err, "abc", cut)
	}
	if got := records(t, b); len(got) > 0 {
		t.Errorf("records before Close are %v, want none", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	want := []record{{"op": "copyout", "dir": "d", "names": []any{}, "bytes": 3.0, "err": cut.Error()}}
	if diff := cmp.Diff(want, records(t, b)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

type cutStream struct {
	*scriptedEnv
	err error
}

func (c cutStream) CopyOut(context.Context, string, ...string) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(c.err))), nil
}

func TestLoggingWithoutLogger(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	if _, err := wrap.Logging(inner, nil, nil).Exec(t.Context(),
		env.Command{Argv: []string{"x"}}); err != nil {
		t.Error(err)
	}
	if inner.ran != 1 {
		t.Errorf("%d commands, want 1", inner.ran)
	}
}

// fakeKey is put together here so that no scanner takes this file for a leak.
const fakeKey = "sk-" + "proj-Ab3dEf6hIj9kLm2nOp5q"

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestLoggingRedactsBeforeItShortens has a secret where texts are cut.
func TestLoggingRedactsBeforeItShortens(t *testing.T) {
	t.Parallel()
	const secret = "correct horse battery staple"
	b := &bytes.Buffer{}
	e := wrap.Apply(newScriptedEnv(t), wrap.Options{
		Logger: slog.New(slog.NewJSONHandler(b, nil)),
		Redact: func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") },
	})
	long := strings.Repeat("x", 1<<10-len(secret)/2) + secret
	_, _ = e.Stat(t.Context(), long)
	_, _ = e.Exec(t.Context(), env.Command{Argv: []string{"echo", long}})
	if log := b.String(); strings.Contains(log, secret[:4]) || !strings.Contains(log, "[redacted") {
		t.Errorf("the start of a secret is in the log: %s", log)
	}
}
