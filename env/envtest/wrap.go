package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// CheckWrap checks that a decorator which only observes an environment forwards every method and
// every optional interface exactly once, with unchanged arguments and results, and that it does not
// modify the caller's arguments. It may wrap readers, writers, files and streams that pass all data
// on.
func CheckWrap(t *testing.T, wrap func(env.Environment) env.Environment) {
	t.Helper()
	for _, problem := range checkWrap(wrap) {
		t.Error(problem)
	}
}

type contextKey struct{}

// wrapCheck calls one method of a decorated spy.
type wrapCheck struct {
	spy      *spy
	w        env.Environment
	ctx      context.Context
	problems *[]string
	method   string
}

func (c *wrapCheck) errorf(format string, args ...any) {
	*c.problems = append(*c.problems, c.method+": "+fmt.Sprintf(format, args...))
}

var errSpy = &fs.PathError{Op: "spy", Path: "name", Err: env.ErrUnknownOutcome}

// checkWrap returns the problems of a decorator.
func checkWrap(wrap func(env.Environment) env.Environment) []string {
	var problems []string
	for _, m := range wrapMethods() {
		for _, fail := range []error{nil, errSpy} {
			s := &spy{err: fail}
			ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "value"))
			c := &wrapCheck{spy: s, w: wrap(s), ctx: ctx, problems: &problems, method: m.name}
			s.calls = nil // The constructor of a decorator may call Info.
			err := m.call(c)
			s.calls = slices.DeleteFunc(s.calls, func(name string) bool {
				return name == "Info" && m.name != "Info"
			})
			if !slices.Equal(s.calls, []string{m.name}) {
				c.errorf("the inner environment got the calls %q, want %q once", s.calls, m.name)
			}
			if !errors.Is(err, fail) || fail == nil && err != nil {
				c.errorf("the inner environment returned the error %v, but the caller got %v", fail, err)
			}
			if got := s.ctx; got != nil {
				if got.Value(contextKey{}) != "value" {
					c.errorf("the context does not hold the caller's values")
				}
				if cancel(); got.Err() == nil {
					c.errorf("the context does not end with the caller's")
				}
			} else if m.takesContext {
				c.errorf("the context did not arrive")
			}
			cancel()
		}
	}
	c := &wrapCheck{problems: &problems}
	c.extraExec(wrap)
	c.withoutOptional(wrap)
	return problems
}

// args checks that the arguments arrived.
func (c *wrapCheck) args(want ...any) {
	if len(c.spy.calls) > 0 && !reflect.DeepEqual(c.spy.args, want) {
		c.errorf("the inner environment got the arguments %+v, want %+v", c.spy.args, want)
	}
}

// result checks that a result arrived.
func (c *wrapCheck) result(got, want any) {
	if !reflect.DeepEqual(got, want) {
		c.errorf("the inner environment returned %+v, but the caller got %+v", want, got)
	}
}

type wrapMethod struct {
	name         string
	takesContext bool
	call         func(c *wrapCheck) error
}

func wrapMethods() []wrapMethod {
	return []wrapMethod{
		{"Exec", true, wrapExec},
		{"Open", true, wrapOpen},
		{"Stat", true, func(c *wrapCheck) error {
			info, err := c.w.Stat(c.ctx, "name")
			c.args("name")
			if err == nil {
				c.result(info, spyFileInfo{})
			}
			return err
		}},
		{"Lstat", true, func(c *wrapCheck) error {
			info, err := c.w.Lstat(c.ctx, "name")
			c.args("name")
			if err == nil {
				c.result(info, spyFileInfo{})
			}
			return err
		}},
		{"ReadLink", true, func(c *wrapCheck) error {
			target, err := c.w.ReadLink(c.ctx, "name")
			c.args("name")
			c.result(target, spyTarget)
			return err
		}},
		{"ReadDir", true, func(c *wrapCheck) error {
			entries, err := c.w.ReadDir(c.ctx, "name")
			c.args("name")
			if len(entries) != 1 || entries[0].Name() != "spy" {
				c.errorf("the caller got the entries %v", entries)
			}
			return err
		}},
		{"WriteFile", true, func(c *wrapCheck) error {
			opts := filled[env.WriteOptions]()
			w, err := c.w.WriteFile(c.ctx, "name", brokenInput(), opts)
			c.args("name", opts)
			c.result(w, spyWritten)
			c.input()
			return err
		}},
		{"Remove", true, func(c *wrapCheck) error {
			opts := filled[env.RemoveOptions]()
			err := c.w.Remove(c.ctx, "name", opts)
			c.args("name", opts)
			return err
		}},
		{"CopyIn", true, func(c *wrapCheck) error {
			err := c.w.CopyIn(c.ctx, "name", brokenInput())
			c.args("name")
			c.input()
			return err
		}},
		{"CopyOut", true, wrapCopyOut},
		{"Info", false, func(c *wrapCheck) error {
			c.result(c.w.Info(), spyInfo)
			return c.spy.err
		}},
		{"Close", false, func(c *wrapCheck) error { return c.w.Close() }},
		{"Walk", true, wrapWalk},
		{"Grep", true, wrapGrep},
		{"Glob", true, wrapGlob},
		{"ReadFiles", true, wrapReadFiles},
	}
}

var errInput = errors.New("the caller's reader broke")

// brokenInput is a reader that fails after its data.
func brokenInput() io.Reader {
	return io.MultiReader(strings.NewReader("input"), iotest.ErrReader(errInput))
}

// input checks that everything of brokenInput arrived.
func (c *wrapCheck) input() {
	if len(c.spy.calls) > 0 && (c.spy.input != "input" || !errors.Is(c.spy.ioErr, errInput)) {
		c.errorf("the inner environment read %q and the error %v, want %q and %q", c.spy.input,
			c.spy.ioErr, "input", errInput)
	}
}

// roomy returns a slice with room behind it: an append to it writes into the caller's memory.
func roomy(list ...string) []string { return append(make([]string, 0, 8), list...) }

// unchanged checks that a roomy slice of the caller holds want and nothing behind it.
func (c *wrapCheck) unchanged(what string, list []string, want ...string) {
	if !slices.Equal(list[:cap(list)], roomy(want...)[:8]) {
		c.errorf("the caller's %s was changed to %q", what, list[:cap(list)])
	}
}

func wrapExec(c *wrapCheck) error {
	argv, vars := roomy("program", "arg", ""), roomy("B=1", "A=2", "B=3")
	var out, errs strings.Builder
	interrupts := make(<-chan struct{})
	cmd := env.Command{
		Argv: argv, Dir: "dir", Vars: vars, Timeout: 7 * time.Second,
		Stdin: brokenInput(), Stdout: &out, Stderr: &errs, Interrupt: interrupts, User: "1:2",
		MaxProcesses: 9,
		Confine:      &env.Confinement{Write: []string{"dir"}},
	}
	res, err := c.w.Exec(c.ctx, cmd)
	c.args([]string{"program", "arg", ""}, "dir", []string{"B=1", "A=2", "B=3"}, 7*time.Second, false,
		false, false, (*env.TTY)(nil), interrupts, "1:2", cmd.Confine, 9)
	c.result(res, spyResult)
	c.input()
	if out.String() != "out" || errs.String() != "err" {
		c.errorf("the command wrote %q and %q, but the caller got %q and %q", "out", "err", out.String(),
			errs.String())
	}
	c.unchanged("Argv", argv, "program", "arg", "")
	c.unchanged("Vars", vars, "B=1", "A=2", "B=3")
	return err
}

// extraExec checks more cases than wrapExec: nil streams, a terminal, one writer for both, writers
// that cannot be compared, errors of writers.
func (c *wrapCheck) extraExec(wrap func(env.Environment) env.Environment) {
	c.method = "Exec"
	c.spy = &spy{}
	if _, err := wrap(c.spy).Exec(context.Background(),
		env.Command{Argv: []string{"program"}}); err != nil {
		c.errorf("a command without streams: %v", err)
	}
	c.args([]string{"program"}, "", []string(nil), time.Duration(0), true, true, true, (*env.TTY)(nil),
		(<-chan struct{})(nil), "", (*env.Confinement)(nil), 0)

	c.spy = &spy{}
	var out strings.Builder
	tty := env.TTY{Size: env.TTYSize{Columns: 132, Rows: 50}, Resize: make(chan env.TTYSize)}
	given := tty
	if _, err := wrap(c.spy).Exec(context.Background(), env.Command{
		Argv:   []string{"program"},
		Stdout: &out, TTY: &given,
	}); err != nil {
		c.errorf("a command on a terminal: %v", err)
	}
	c.args([]string{"program"}, "", []string(nil), time.Duration(0), true, false, true, &tty,
		(<-chan struct{})(nil), "", (*env.Confinement)(nil), 0)
	if given != tty {
		c.errorf("the caller's TTY was changed to %+v", given)
	}

	var both strings.Builder
	c.spy = &spy{ran: func(cmd env.Command) {
		if cmd.Stdout != cmd.Stderr {
			c.errorf("the caller's Stdout and Stderr are the same value, the inner ones are not")
		}
	}}
	_, err := wrap(c.spy).Exec(context.Background(), env.Command{
		Argv:   []string{"program"},
		Stdout: &both, Stderr: &both,
	})
	if err != nil || both.Len() == 0 {
		c.errorf("a command with one writer for both streams: error %v, output %q", err, both.String())
	}

	broken := errors.New("the caller's writer broke")
	c.spy = &spy{ran: func(cmd env.Command) {
		if _, err := cmd.Stdout.Write([]byte("x")); !errors.Is(err, broken) {
			c.errorf("the caller's writer returned %v, but the inner environment got %v", broken, err)
		}
	}}
	fail := uncomparableWriter{func([]byte) (int, error) { return 0, broken }}
	if _, err = wrap(&uncomparableSpy{c.spy}).Exec(context.Background(),
		env.Command{Argv: []string{"program"}, Stdout: fail, Stderr: fail}); err != nil {
		c.errorf("a command with writers that cannot be compared: %v", err)
	}
}

// uncomparableWriter panics when it is compared as an io.Writer.
type uncomparableWriter struct {
	write func([]byte) (int, error)
}

func (w uncomparableWriter) Write(p []byte) (int, error) { return w.write(p) }

// uncomparableSpy is a spy that does not compare writers either.
type uncomparableSpy struct{ *spy }

func (s *uncomparableSpy) Exec(_ context.Context, cmd env.Command) (env.Result, error) {
	s.ran(cmd)
	return spyResult, nil
}

func wrapOpen(c *wrapCheck) error {
	f, err := c.w.Open(c.ctx, "name")
	c.args("name")
	if err != nil || f == nil {
		return err
	}
	info, statErr := f.Stat()
	if statErr != nil {
		c.errorf("Stat of the file: %v", statErr)
	}
	c.result(info, spyFileInfo{})
	c.streamed(f, c.spy.file)
	return nil
}

func wrapCopyOut(c *wrapCheck) error {
	names := roomy("b", "a")
	r, err := c.w.CopyOut(c.ctx, "name", names...)
	c.args("name", []string{"b", "a"})
	c.unchanged("names", names, "b", "a")
	if err != nil || r == nil {
		return err
	}
	c.streamed(r, c.spy.stream)
	return nil
}

// streamed checks that everything of the inner stream comes out of r, with its error, and that
// Close goes in.
func (c *wrapCheck) streamed(r io.ReadCloser, inner *spyStream) {
	data, err := io.ReadAll(r)
	if string(data) != spyContent || !errors.Is(err, errSpyRead) {
		c.errorf("the caller read %q and the error %v, want %q and %q", data, err, spyContent, errSpyRead)
	}
	if err := r.Close(); err != nil {
		c.errorf("closing the stream: %v", err)
	}
	if inner != nil && !inner.closed {
		c.errorf("the inner stream was not closed")
	}
}

// optional returns the decorator as an optional interface, which it must have.
func optional[T any](c *wrapCheck) (T, bool) {
	v, ok := c.w.(T)
	if !ok {
		c.errorf("the decorator hides the optional interface %v", reflect.TypeFor[T]())
		c.spy.call(c.ctx, c.method) // which the caller of this check expects
	}
	return v, ok
}

var errFn = errors.New("the caller's function returned this")

func wrapWalk(c *wrapCheck) error {
	s, ok := optional[search.Searcher](c)
	if !ok {
		return c.spy.err
	}
	opts := filled[search.WalkOptions]()
	var got search.Entry
	err := s.Walk(c.ctx, "name", opts, func(e search.Entry) error { got = e; return errFn })
	c.args("name", opts)
	c.result(got, spyEntry)
	return c.fromFn(err)
}

// fromFn checks that err wraps the error of the caller's function, and returns the error of the
// spy.
func (c *wrapCheck) fromFn(err error) error {
	if !errors.Is(err, errFn) {
		c.errorf("the caller's function returned %v, but the call gave %v", errFn, err)
	}
	if errors.Is(err, errSpy) {
		return errSpy
	}
	return nil
}

func wrapGrep(c *wrapCheck) error {
	s, ok := optional[search.Searcher](c)
	if !ok {
		return c.spy.err
	}
	opts := filled[search.GrepOptions]()
	var got search.GrepMatch
	stats, err := s.Grep(c.ctx, opts, func(m search.GrepMatch) error { got = m; return errFn })
	c.args(opts)
	c.result(got, spyMatch)
	c.result(stats, spyStats)
	return c.fromFn(err)
}

func wrapGlob(c *wrapCheck) error {
	s, ok := optional[search.Searcher](c)
	if !ok {
		return c.spy.err
	}
	opts := filled[search.GlobOptions]()
	entries, err := s.Glob(c.ctx, opts)
	c.args(opts)
	c.result(entries, []search.Entry{spyEntry})
	return err
}

func wrapReadFiles(c *wrapCheck) error {
	m, ok := optional[env.MultiReader](c)
	if !ok {
		return c.spy.err
	}
	names := roomy("b", "a")
	contents, err := m.ReadFiles(c.ctx, names, 7)
	c.args([]string{"b", "a"}, int64(7))
	c.unchanged("names", names, "b", "a")
	c.result(contents, []env.FileContent{spyFile})
	return err
}

// withoutOptional checks that the optional interfaces work around an environment that has none.
func (c *wrapCheck) withoutOptional(wrap func(env.Environment) env.Environment) {
	c.method, c.spy = "Walk", &spy{}
	w := wrap(plain{c.spy})
	var names []string
	err := search.Walk(context.Background(), w, "name", search.WalkOptions{NoIgnore: true},
		func(e search.Entry) error {
			names = append(names, e.Name)
			return nil
		})
	if err != nil || !slices.Equal(names, []string{"spy"}) {
		c.errorf("around an environment without search.Searcher: entries %q, error %v", names, err)
	}
	c.method = "Glob"
	found, err := search.Glob(context.Background(), w, search.GlobOptions{
		Pattern: "s*", Dir: "name",
		NoIgnore: true,
	})
	if err != nil || len(found) != 1 || found[0].Name != "spy" {
		c.errorf("around an environment without search.Searcher: entries %v, error %v", found, err)
	}
	c.method = "ReadFiles"
	contents, err := env.ReadFiles(context.Background(), w, []string{"name"}, 0)
	if err != nil || len(contents) != 1 || contents[0].Name != "name" || !errors.Is(contents[0].Err,
		errSpyRead) {
		c.errorf("around an environment without env.MultiReader: contents %v, error %v", contents, err)
	}
}
