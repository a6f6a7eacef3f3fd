package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	envvars "github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// environmentProofs prove 9.4.
var environmentProofs = map[string]func(*testing.T){
	"9.4.1": proveOperations,
	"9.4.2": func(t *testing.T) {
		for i, want := range []string{"10s", "2m0s", "10s"} {
			p := families()[i]
			look := custom("look", "")
			look.Run = func(_ context.Context, c *tool.Call) (tool.Result, error) {
				return tool.Result{Text: fmt.Sprint("a command may take ", c.DefaultTimeout)}, nil
			}
			s := p.session(t, llmtest.Sequence(llmtest.Use(use("look", map[string]any{"target": "x"})),
				llmtest.Text("seen")), func(c *agent.Config) {
				c.Tools = []tool.Tool{look}
			})
			s.submit("look")
			if got := s.shown(1)[0]; got != "a command may take "+want {
				t.Errorf("%s: %s, want %s", p.name, got, want)
			}
		}
	},
	"9.4.3": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(
			llmtest.Use(use("shell", map[string]any{"command": "sleep 30", "timeout_ms": 50})),
			llmtest.Use(use("shell", map[string]any{"command": "sleep 30", "timeout_ms": 3_600_000})),
			llmtest.Text("too long"),
		), func(c *agent.Config) { c.Settings.MaxCommandTimeout = 200 * time.Millisecond })
		s.submit("sleep")
		wantContains(t, "the first result", s.shown(1)[0], "more than 50 ms")
		wantContains(t, "the second result", s.shown(2)[0], "more than 200 ms", "more than the maximum")
		if agent.DefaultMaxCommandTimeout != 600*time.Second {
			t.Errorf("the default cap is %s", agent.DefaultMaxCommandTimeout)
		}
	},
	"9.4.4": withFirst(proveShellTimeout),
	"9.4.5": proveVariables,
	"9.4.6": func(t *testing.T) {
		own := &userEnvironment{}
		s := newSession(t, llmtest.Sequence(llmtest.Use(shell("say hello")), llmtest.Text("said")),
			func(c *agent.Config) { c.Env = own })
		s.submit("go")
		wantContains(t, "the result", s.shown(1)[0], "my own environment ran [sh -c say hello]")
	},
}

func proveOperations(t *testing.T) {
	ctx := t.Context()
	e := openEnvironment(t, t.TempDir())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.WriteFile(ctx, "a/b/c.txt", strings.NewReader("hello world\n"), env.WriteOptions{})
	must(err)
	b, err := env.ReadFile(ctx, e, "a/b/c.txt", 0)
	must(err)
	info, err := e.Stat(ctx, "a/b/c.txt")
	must(err)
	entries, err := e.ReadDir(ctx, "a")
	must(err)
	if string(b) != "hello world\n" || info.Size() != 12 || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("%q, %v, %v", b, info, entries)
	}
	out, res, err := env.Output(ctx, e, env.Command{Argv: []string{"cat", "c.txt"}, Dir: "a/b"},
		env.OutputOptions{})
	must(err)
	if string(out.Stdout.Bytes()) != "hello world\n" || res.ExitCode != 0 {
		t.Errorf("%q, %+v", out.Stdout.Bytes(), res)
	}
	matches := 0
	_, err = search.Grep(ctx, e, search.GrepOptions{Pattern: "w.rld"},
		func(search.GrepMatch) error { matches++; return nil })
	must(err)
	files, err := search.Glob(ctx, e, search.GlobOptions{Pattern: "**/*.txt"})
	must(err)
	if matches != 1 || len(files) != 1 || files[0].Name != "a/b/c.txt" {
		t.Errorf("%d matches, files %v", matches, files)
	}
	r, err := e.CopyOut(ctx, "a")
	must(err)
	archive, err := io.ReadAll(r)
	must(err)
	must(r.Close())
	must(e.CopyIn(ctx, "copy", bytes.NewReader(archive)))
	must(fstest.TestFS(env.FS(ctx, e), "a/b/c.txt", "copy/b/c.txt"))
	must(e.Remove(ctx, "a", env.RemoveOptions{Recursive: true}))
	if _, err := e.Stat(ctx, "a"); err == nil {
		t.Error("a removed directory exists")
	}
	if i := e.Info(); i.OS == "" || i.Arch == "" || i.WorkDir == "" || len(i.Shell) == 0 {
		t.Errorf("%+v", i)
	}
}

func proveVariables(t *testing.T) {
	vars := []string{
		"PATH=/usr/bin:/bin", "HOME=/h", "LANG=C", "GOPATH=/g", "MY_API_KEY=1", "my_secret=2",
		"A_TOKEN=3", "DB_PASSWORD=4", "X_CREDENTIAL=5",
		"AWS_SECRET_KEY=6", "DATABASE_URL=postgres://u:p@h/db", "EDITOR=vi",
	}
	names := func(f *envvars.Filter) string {
		var out []string
		for _, v := range f.Apply(vars) {
			name, _, _ := strings.Cut(v, "=")
			out = append(out, name)
		}
		return strings.Join(out, " ")
	}
	for mode, want := range map[string]string{
		"filtered": "PATH HOME LANG GOPATH EDITOR", "core": "PATH HOME LANG GOPATH", "none": "",
		"all": "PATH HOME LANG GOPATH MY_API_KEY my_secret A_TOKEN DB_PASSWORD X_CREDENTIAL " +
			"AWS_SECRET_KEY DATABASE_URL EDITOR",
	} {
		m, err := envvars.ParseMode(mode)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(&envvars.Filter{Mode: m}); got != want {
			t.Errorf("%s keeps %s, want %s", mode, got, want)
		}
	}
	if got := names(nil); got != "PATH HOME LANG GOPATH EDITOR" {
		t.Errorf("the default keeps %s", got)
	}
	s := newSession(t, llmtest.Sequence(llmtest.Use(shell("env")), llmtest.Text("seen")))
	s.submit("show the variables")
	wantContains(t, "the variables of a command", s.shown(1)[0], "PATH=")
	if text := s.shown(1)[0]; strings.Contains(text, canary) || strings.Contains(text, hostCanary) ||
		strings.Contains(text, "canary-value") {
		t.Errorf("a command gets a secret:\n%s", text)
	}
}

// userEnvironment is an environment of a user of the library.
type userEnvironment struct{ env.Environment }

func (*userEnvironment) Info() env.Info {
	return env.Info{Backend: "own", OS: "linux", WorkDir: "/", Shell: []string{"sh", "-c"}}
}

func (*userEnvironment) Exec(_ context.Context, c env.Command) (env.Result, error) {
	if c.Stdout != nil {
		if _, err := fmt.Fprintf(c.Stdout, "my own environment ran %v\n", c.Argv); err != nil {
			return env.Result{}, err
		}
	}
	if c.Argv[0] == "git" {
		return env.Result{ExitCode: 128}, nil
	}
	return env.Result{}, nil
}

func (*userEnvironment) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
}

func (*userEnvironment) Open(_ context.Context, name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
