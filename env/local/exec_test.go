package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// TestExecStartErrors checks the messages of errors whose kinds the conformance suite checks.
func TestExecStartErrors(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	write(t, filepath.Join(dir, "plain"), "echo hi\n", 0o644)
	write(t, filepath.Join(dir, "noshebang"), "echo hi\n", 0o755)
	write(t, filepath.Join(dir, "nointerp"), "#!/no/such/interpreter\n", 0o755)
	for _, tt := range []struct {
		cmd  env.Command
		want error
		text string
	}{
		{env.Command{}, fs.ErrInvalid, "empty argv"},
		{env.Command{Argv: []string{"echo", "a\x00b"}}, fs.ErrInvalid, "argument 1"},
		{env.Command{Argv: []string{"true"}, Vars: []string{"NAME"}}, fs.ErrInvalid, "NAME"},
		{env.Command{Argv: []string{"true"}, Timeout: -1}, fs.ErrInvalid, "timeout"},
		{env.Command{Argv: []string{"no-such-program-x"}}, fs.ErrNotExist, "PATH"},
		{env.Command{Argv: []string{"./absent"}}, fs.ErrNotExist, "./absent"},
		{env.Command{Argv: []string{"./plain"}}, fs.ErrPermission, "permission"},
		{
			env.Command{Argv: []string{"plain"}, Vars: []string{"PATH=" + dir}},
			fs.ErrPermission, "plain",
		},
		{env.Command{Argv: []string{dir}}, fs.ErrPermission, "directory"},
		{env.Command{Argv: []string{"./nointerp"}}, fs.ErrNotExist, "interpreter"},
		{env.Command{Argv: []string{"./noshebang"}}, nil, "exec format"},
		{env.Command{Argv: []string{"echo", strings.Repeat("x", 8<<20)}}, nil, "too long"},
	} {
		_, err := e.Exec(t.Context(), tt.cmd)
		var start *env.StartError
		if !errors.As(err, &start) || tt.want != nil && !errors.Is(err, tt.want) ||
			!strings.Contains(err.Error(), tt.text) {
			t.Errorf("error %.200v (%T), want a *env.StartError with %v and %q", err, err, tt.want, tt.text)
		}
	}
}

func TestExecPath(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{Vars: []string{"PATH=base:/usr/bin:/bin"}})
	dir := e.Info().WorkDir
	for _, name := range []string{"base", "other", "sub", "sub/base", "denied"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho %s\n"
	write(t, dir+"/base/prog-x", fmt.Sprintf(script, "base"), 0o755)
	write(t, dir+"/sub/base/prog-x", fmt.Sprintf(script, "sub/base"), 0o755)
	write(t, dir+"/other/prog-x", fmt.Sprintf(script, "other"), 0o755)
	write(t, dir+"/prog-x", fmt.Sprintf(script, "."), 0o755)
	write(t, dir+"/denied/prog-x", "", 0o644)
	for _, tt := range []struct {
		name, dir string
		vars      []string
		want      string
	}{
		{"relative element", "", nil, "base"},
		{"relative element in another directory", "sub", nil, "sub/base"},
		{"the command's PATH", "", []string{"PATH=" + dir + "/other"}, "other"},
		{"of two the last", "", []string{"PATH=/", "PATH=" + dir + "/other"}, "other"},
		{"empty element is the directory", "", []string{"PATH=:/bin"}, "."},
		{"a file that is not executable is skipped", "", []string{"PATH=denied:other"}, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := env.Command{Argv: []string{"prog-x"}, Dir: tt.dir, Vars: tt.vars}
			if got := output(t, e, cmd); got != tt.want+"\n" {
				t.Errorf("ran the program in %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExecVars(t *testing.T) {
	needUnix(t)
	t.Setenv("LOCAL_TEST_PLAIN", "host")
	t.Setenv("LOCAL_TEST_API_KEY", "secret")
	t.Setenv("SANDBOXAGENT_EXEC_outer_1", "1")
	show := sh(`echo "${LOCAL_TEST_PLAIN-unset} ${LOCAL_TEST_API_KEY-unset} ${A-unset} ` +
		`${SANDBOXAGENT_EXEC_outer_1-unset}"`)
	for _, tt := range []struct {
		name string
		cfg  local.Config
		vars []string
		want string
	}{
		{"filtered", local.Config{}, nil, "host unset unset 1"},
		{"all", local.Config{Inherit: &vars.Filter{Mode: vars.All}}, nil, "host secret unset 1"},
		{"none", local.Config{Inherit: &vars.Filter{Mode: vars.None}}, nil, "unset unset unset 1"},
		{"added", local.Config{Vars: []string{"A=1", "A=2"}}, nil, "host unset 2 1"},
		{
			"command",
			local.Config{Vars: []string{"A=1"}},
			[]string{"A=2", "A=", "A=x y", "LOCAL_TEST_PLAIN=mine"},
			"mine unset x y 1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := show
			cmd.Vars = tt.vars
			if got := output(t, newEnv(t, tt.cfg), cmd); got != tt.want+"\n" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExecPWD(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	if err := os.Mkdir(e.Info().WorkDir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	got := "\n" + output(t, e, env.Command{Argv: []string{"env"}, Dir: "sub"})
	want := "\nPWD=" + e.Info().WorkDir + "/sub\n"
	if !strings.Contains(got, want) || strings.Contains(got, "\nOLDPWD=") {
		t.Errorf("variables %q, want %q and no OLDPWD", got, want)
	}
}

// TestExecEmptyReads passes input from readers that return neither bytes nor an error.
func TestExecEmptyReads(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var calls atomic.Int64
	now, over := "x", false
	run := func(cmd env.Command, read func(p []byte) (int, error)) (string, error) {
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout = readerFunc(func(p []byte) (int, error) {
			calls.Add(1)
			return read(p)
		}), &out
		_, err := e.Exec(t.Context(), cmd)
		return out.String(), err
	}
	out, err := run(env.Command{Argv: []string{"cat"}}, func(p []byte) (int, error) {
		switch {
		case calls.Load()%3 != 0:
			return 0, nil
		case over:
			return 0, io.EOF
		}
		over = true
		return copy(p, now), nil
	})
	if out != now || err != nil {
		t.Errorf("a reader with some empty reads: %q, %v", out, err)
	}
	_, err = run(env.Command{Argv: []string{"cat"}}, func([]byte) (int, error) { return 0, nil })
	if !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that never returns bytes: %v", err)
	}
	released, again := make(chan struct{}), make(chan struct{}, 1)
	first := true
	_, err = run(env.Command{Argv: []string{"true"}}, func([]byte) (int, error) {
		if <-released; !first {
			select {
			case again <- struct{}{}:
			default:
			}
		}
		first = false
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	close(released)
	// Only time can show that no call follows.
	select {
	case <-again:
		t.Error("the reader was called again after Exec had returned")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestExecStdinFails(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	boom := errors.New("boom")
	var out bytes.Buffer
	cmd := sh("cat; exit 3")
	cmd.Stdin = io.MultiReader(strings.NewReader("head"), iotest.ErrReader(boom))
	cmd.Stdout = &out
	r, err := e.Exec(t.Context(), cmd)
	if !errors.Is(err, boom) || r.ExitCode != 3 || out.String() != "head" {
		t.Error(r, err, out.String())
	}
}

func TestExecShortWrite(t *testing.T) {
	needUnix(t)
	cmd := sh("echo output")
	cmd.Stdout = writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil })
	if _, err := newEnv(t, local.Config{}).Exec(t.Context(), cmd); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}
