package envtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

func TestCheckWrap(t *testing.T) {
	CheckWrap(t, func(e env.Environment) env.Environment { return e })
	CheckWrap(t, func(e env.Environment) env.Environment {
		return wrap.Logging(e, slog.New(slog.DiscardHandler), nil)
	})
}

// forwarding is a decorator that does everything right. Each test breaks one thing.
type forwarding struct{ altered }

func (f *forwarding) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, f.Environment, root, opts, fn)
}

func (f *forwarding) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, f.Environment, opts, fn)
}

func (f *forwarding) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, f.Environment, opts)
}

func (f *forwarding) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	return env.ReadFiles(ctx, f.Environment, names, limit)
}

// walkOnly is a decorator with one method of an optional interface.
type walkOnly struct{ altered }

func (f *walkOnly) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, f.Environment, root, opts, fn)
}

func hidesGlob(e env.Environment) env.Environment { return &walkOnly{newAltered(e)} }

// A decorator decorates an environment.
type decorator func(env.Environment) env.Environment

// withWrap returns a decorator of which f changes methods.
func withWrap(f func(inner env.Environment, a *altered)) decorator {
	return func(e env.Environment) env.Environment {
		d := &forwarding{newAltered(e)}
		f(e, &d.altered)
		return d
	}
}

// execWrap returns a decorator that replaces Exec.
func execWrap(f func(exec execFunc, cmd env.Command) (env.Result, error)) decorator {
	return func(e env.Environment) env.Environment {
		replaced, _ := execOf(f)(nil, e).(*altered)
		return &forwarding{*replaced}
	}
}

// commandWrap returns a decorator that changes commands.
func commandWrap(f func(cmd *env.Command)) decorator {
	return execWrap(func(exec execFunc, cmd env.Command) (env.Result, error) {
		f(&cmd)
		return exec(cmd)
	})
}

// brokenWrap is a decorator that breaks one thing.
type brokenWrap struct {
	name string
	wrap decorator
	want string // the start of one of the problems
}

func brokenExecWraps() []brokenWrap {
	return []brokenWrap{
		{
			"embeds and hides Walker", func(e env.Environment) env.Environment { return plain{e} },
			"Walk: the decorator hides",
		},
		{"hides Searcher", hidesGlob, "Grep: the decorator hides"},
		{
			"sorts the caller's variables", commandWrap(func(cmd *env.Command) { slices.Sort(cmd.Vars) }),
			"Exec: the inner environment got the arguments",
		},
		{"appends to Argv", execWrap(func(exec execFunc, cmd env.Command) (env.Result, error) {
			_ = append(cmd.Argv, "more")
			return exec(cmd)
		}), "Exec: the caller's Argv was changed"},
		{
			"loses Dir", commandWrap(func(cmd *env.Command) { cmd.Dir = "" }),
			"Exec: the inner environment got the arguments",
		},
		{
			"loses Timeout", commandWrap(func(cmd *env.Command) { cmd.Timeout = 0 }),
			"Exec: the inner environment got the arguments",
		},
		{"adds a reader", commandWrap(func(cmd *env.Command) {
			cmd.Stdin = io.MultiReader()
		}), "Exec: the inner environment got the arguments"},
		{"wraps one writer twice", commandWrap(func(cmd *env.Command) {
			if cmd.Stdout != nil && cmd.Stderr != nil {
				cmd.Stdout, cmd.Stderr = &uncomparableWriter{cmd.Stdout.Write},
					&uncomparableWriter{cmd.Stderr.Write}
			}
		}), "Exec: the caller's Stdout and Stderr are the same value"},
		{"swallows errors of writers", commandWrap(func(cmd *env.Command) {
			if w := cmd.Stdout; w != nil && cmd.Stdin == nil {
				cmd.Stdout = &uncomparableWriter{func(p []byte) (int, error) {
					_, _ = w.Write(p)
					return len(p), nil
				}}
			}
		}), "Exec: the caller's writer returned"},
		{"loses a field of Result", execWrap(func(exec execFunc, cmd env.Command) (env.Result, error) {
			res, err := exec(cmd)
			res.Detached = false
			return res, err
		}), "Exec: the inner environment returned"},
		{"tries again", execWrap(func(exec execFunc, cmd env.Command) (env.Result, error) {
			res, err := exec(cmd)
			if err != nil {
				return exec(cmd)
			}
			return res, err
		}), `Exec: the inner environment got the calls ["Exec" "Exec"]`},
		{"drops the context", withWrap(func(inner env.Environment, a *altered) {
			a.exec = func(_ context.Context, cmd env.Command) (env.Result, error) {
				return inner.Exec(context.Background(), cmd)
			}
		}), "Exec: the context does not hold"},
	}
}

func brokenTerminalWraps() []brokenWrap {
	return []brokenWrap{
		{
			"loses User", commandWrap(func(cmd *env.Command) { cmd.User = "" }),
			"Exec: the inner environment got the arguments",
		},
		{
			"loses Confine", commandWrap(func(cmd *env.Command) { cmd.Confine = nil }),
			"Exec: the inner environment got the arguments",
		},
		{
			"loses TTY", commandWrap(func(cmd *env.Command) { cmd.TTY = nil }),
			"Exec: the inner environment got the arguments",
		},
		{"gives a terminal another size", commandWrap(func(cmd *env.Command) {
			if cmd.TTY != nil {
				cmd.TTY = &env.TTY{Resize: cmd.TTY.Resize}
			}
		}), "Exec: the inner environment got the arguments"},
		{"loses Resize", commandWrap(func(cmd *env.Command) {
			if cmd.TTY != nil {
				cmd.TTY = &env.TTY{Size: cmd.TTY.Size}
			}
		}), "Exec: the inner environment got the arguments"},
		{"changes the caller's TTY", commandWrap(func(cmd *env.Command) {
			if cmd.TTY != nil {
				tty := *cmd.TTY
				cmd.TTY.Size = env.TTYSize{}
				cmd.TTY = &tty
			}
		}), "Exec: the caller's TTY was changed"},
		{"gives a terminal a writer for stderr", commandWrap(func(cmd *env.Command) {
			if cmd.Stderr == nil {
				cmd.Stderr = io.Discard
			}
		}), "Exec: the inner environment got the arguments"},
	}
}

func brokenFileWraps() []brokenWrap {
	return []brokenWrap{
		{"detaches the context", withWrap(func(inner env.Environment, a *altered) {
			a.stat = func(ctx context.Context, name string) (fs.FileInfo, error) {
				return inner.Stat(context.WithoutCancel(ctx), name)
			}
		}), "Stat: the context does not end"},
		{"hides MultiReader", hidesGlob, "ReadFiles: the decorator hides"},
		{"hides errors", withWrap(func(inner env.Environment, a *altered) {
			a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
				entries, err := inner.ReadDir(ctx, name)
				if err != nil {
					err = errors.New("readdir failed")
				}
				return entries, err
			}
		}), "ReadDir: the inner environment returned the error"},
		{"cleans names", withWrap(func(inner env.Environment, a *altered) {
			a.open = func(ctx context.Context, name string) (fs.File, error) {
				return inner.Open(ctx, "/"+name)
			}
		}), "Open: the inner environment got the arguments"},
		{"loses options", withWrap(func(inner env.Environment, a *altered) {
			a.writeFile = func(ctx context.Context, name string, r io.Reader,
				_ env.WriteOptions,
			) (env.Written, error) {
				return inner.WriteFile(ctx, name, r, env.WriteOptions{})
			}
		}), "WriteFile: the inner environment got the arguments"},
		{"cuts the reader short", withWrap(func(inner env.Environment, a *altered) {
			a.copyIn = func(ctx context.Context, dir string, archive io.Reader) error {
				data, _ := io.ReadAll(archive)
				return inner.CopyIn(ctx, dir, bytes.NewReader(data))
			}
		}), "CopyIn: the inner environment read"},
		{"does not close the stream", withWrap(func(inner env.Environment, a *altered) {
			a.copyOut = func(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
				r, err := inner.CopyOut(ctx, dir, names...)
				if err != nil {
					return nil, err
				}
				return io.NopCloser(r), nil
			}
		}), "CopyOut: the inner stream was not closed"},
		{"removes twice", withWrap(func(inner env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
				_ = inner.Remove(ctx, name, opts)
				return inner.Remove(ctx, name, opts)
			}
		}), `Remove: the inner environment got the calls ["Remove" "Remove"]`},
		{"does not close", withWrap(func(_ env.Environment, a *altered) {
			a.close = func() error { return nil }
		}), "Close: the inner environment got the calls []"},
		{"changes Info", withWrap(func(inner env.Environment, a *altered) {
			a.info = func() env.Info {
				info := inner.Info()
				info.Guarantees = nil
				return info
			}
		}), "Info: the inner environment returned"},
	}
}

func TestCheckWrapNoticesBrokenDecorators(t *testing.T) {
	for _, tc := range slices.Concat(brokenExecWraps(), brokenTerminalWraps(), brokenFileWraps()) {
		t.Run(tc.name, func(t *testing.T) {
			problems := checkWrap(tc.wrap)
			for _, p := range problems {
				if strings.HasPrefix(p, tc.want) {
					return
				}
			}
			t.Errorf("CheckWrap found %q, but no problem that starts with %q", problems, tc.want)
		})
	}
	if problems := checkWrap(withWrap(func(env.Environment, *altered) {})); len(problems) > 0 {
		t.Errorf("CheckWrap rejects a good decorator: %q", problems)
	}
}

// TestDecorated runs the suite on the decorators that change nothing it checks, around a local
// environment: on the methods that they wrap, and on all cases if the tests may take minutes.
func TestDecorated(t *testing.T) {
	groups := []string{"exec", "file", "remove", "readfiles", "info"}
	if !testing.Short() {
		groups = nil
	}
	Run(t, Options{
		Groups: groups,
		New: func(t *testing.T) env.Environment {
			e, err := local.New(local.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return wrap.Logging(wrap.FilterVars(e, nil), slog.New(slog.DiscardHandler), nil)
		},
		Known: map[string]string{"exec/bad_vars": "FilterVars drops a malformed variable"},
	})
}
