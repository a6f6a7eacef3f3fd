package local_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

func TestExecExit(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	for _, tt := range []struct {
		script string
		code   int
		signal string
	}{
		{"exit 0", 0, ""},
		{"exit 1", 1, ""},
		{"exit 127", 127, ""},
		{"exit 255", 255, ""},
		{"kill -TERM $$", 143, "SIGTERM"},
		{"kill -KILL $$", 137, "SIGKILL"},
		{"kill -SEGV $$", 139, "SIGSEGV"},
		{"exit 143", 143, ""},
	} {
		t.Run(tt.script, func(t *testing.T) {
			r, err := e.Exec(t.Context(), sh(tt.script))
			if err != nil || r.ExitCode != tt.code || r.Signal != tt.signal || r.TimedOut || r.Detached ||
				r.Elapsed <= 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func TestExecStartErrors(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	write(t, filepath.Join(dir, "plain"), "echo hi\n", 0o644)
	write(t, filepath.Join(dir, "noshebang"), "echo hi\n", 0o755)
	write(t, filepath.Join(dir, "nointerp"), "#!/no/such/interpreter\n", 0o755)
	for _, tt := range []struct {
		name string
		cmd  env.Command
		want error
		says string
	}{
		{"no argv", env.Command{}, fs.ErrInvalid, "empty argv"},
		{"empty program", env.Command{Argv: []string{""}}, fs.ErrInvalid, "empty argv"},
		{"NUL in argument", env.Command{Argv: []string{"echo", "a\x00b"}}, fs.ErrInvalid, "argument 1"},
		{
			"NUL in variable",
			env.Command{Argv: []string{"true"}, Vars: []string{"A=\x00"}},
			fs.ErrInvalid,
			"A",
		},
		{
			"variable without =",
			env.Command{Argv: []string{"true"}, Vars: []string{"A"}},
			fs.ErrInvalid,
			"A",
		},
		{"negative timeout", env.Command{Argv: []string{"true"}, Timeout: -1}, fs.ErrInvalid, "timeout"},
		{"not in PATH", env.Command{Argv: []string{"no-such-program-x"}}, fs.ErrNotExist, "PATH"},
		{"no such file", env.Command{Argv: []string{"./absent"}}, fs.ErrNotExist, "./absent"},
		{"not executable", env.Command{Argv: []string{"./plain"}}, fs.ErrPermission, "permission"},
		{
			"not executable in PATH",
			env.Command{Argv: []string{"plain"}, Vars: []string{"PATH=" + dir}},
			fs.ErrPermission, "plain",
		},
		{"folder", env.Command{Argv: []string{dir}}, fs.ErrPermission, "directory"},
		{"no interpreter", env.Command{Argv: []string{"./nointerp"}}, fs.ErrNotExist, "interpreter"},
		{"no format", env.Command{Argv: []string{"./noshebang"}}, nil, "exec format"},
		{
			"argument too long",
			env.Command{Argv: []string{"echo", strings.Repeat("x", 8<<20)}},
			nil,
			"too long",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.Exec(t.Context(), tt.cmd)
			var start *env.StartError
			if !errors.As(err, &start) {
				t.Fatalf("error %v (%T), want a *env.StartError", err, err)
			}
			if (tt.want != nil && !errors.Is(err, tt.want)) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %v that says %q", err, tt.want, tt.says)
			}
		})
	}
}

func TestExecDir(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "", 0o755)
	for give, want := range map[string]string{
		"": dir, ".": dir, "a": dir + "/a", "a/b/..": dir + "/a", "/": "/", dir + "/a/b": dir + "/a/b",
	} {
		cmd := sh("pwd -P")
		cmd.Dir = give
		real, err := filepath.EvalSymlinks(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, e, cmd); got != real+"\n" {
			t.Errorf("Dir %q: ran in %q, want %q", give, got, real)
		}
	}
	for give, want := range map[string]error{
		"absent": fs.ErrNotExist, "file": env.ErrNotDir, "file/x": env.ErrNotDir, "a\x00": fs.ErrInvalid,
	} {
		for _, argv := range [][]string{{"true"}, {"no-such-program-x"}, {"./x"}} {
			_, err := e.Exec(t.Context(), env.Command{Argv: argv, Dir: give})
			var pe *fs.PathError
			if !errors.As(err, &pe) || pe.Op != "chdir" || pe.Path != give || !errors.Is(err, want) {
				t.Errorf("Dir %q, argv %q: %v, want a chdir error with %v", give, argv, err, want)
			}
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
	write(t, dir+"/prog-x", fmt.Sprintf(script, "here"), 0o755)
	write(t, dir+"/denied/prog-x", "", 0o644)
	for _, tt := range []struct {
		name, dir string
		vars      []string
		want      string
	}{
		{"relative element", "", nil, "base"},
		{"relative element in another folder", "sub", nil, "sub/base"},
		{"the command's PATH", "", []string{"PATH=" + dir + "/other"}, "other"},
		{"of two the last", "", []string{"PATH=/", "PATH=" + dir + "/other"}, "other"},
		{"empty element is the folder", "", []string{"PATH=:/bin"}, "here"},
		{"one that is not executable is passed over", "", []string{"PATH=denied:other"}, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := env.Command{Argv: []string{"prog-x"}, Dir: tt.dir, Vars: tt.vars}
			if got := output(t, e, cmd); got != tt.want+"\n" {
				t.Errorf("found the one in %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExecArgvIsExact(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	args := []string{"", " ", "a b", "$HOME", "`id`", "'", `"`, `\`, "*", "-n", "\n", "\xff\xfe", "中"}
	got := output(t, e, sh(`printf '%s\0' "$0" "$@"`, args...))
	if want := "sh\x00" + strings.Join(args, "\x00") + "\x00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	large := slices.Repeat([]string{strings.Repeat("x", 64<<10)}, 16)
	if got := output(t, e, sh(`printf '%s' "$*" | wc -c`,
		large...)); strings.TrimSpace(got) != fmt.Sprint(16*(64<<10)+15) {
		t.Errorf("1 MiB of arguments arrived as %s bytes", got)
	}
}

func TestExecVars(t *testing.T) {
	needUnix(t)
	t.Setenv("LOCAL_TEST_PLAIN", "host")
	t.Setenv("LOCAL_TEST_API_KEY", "secret")
	t.Setenv("SANDBOXAGENT_EXEC_outer_1", "1")
	show := sh(`echo "${LOCAL_TEST_PLAIN-unset} ${LOCAL_TEST_API_KEY-unset} ${A-unset} ${SANDBOXAGENT_EXEC_outer_1-unset}"`)
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
		{"command", local.Config{Vars: []string{"A=1"}}, []string{
			"A=2", "A=", "A=x y",
			"LOCAL_TEST_PLAIN=mine",
		}, "mine unset x y 1"},
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
	cmd := env.Command{Argv: []string{"env"}, Dir: "sub"}
	if got, want := output(t, e, cmd), "PWD="+e.Info().WorkDir+"/sub\n"; !strings.Contains(got, want) {
		t.Errorf("variables %q, want %q among them", got, want)
	}
	for _, line := range strings.Split(output(t, e, cmd), "\n") {
		if strings.HasPrefix(line, "OLDPWD=") {
			t.Errorf("%q is this process's", line)
		}
	}
}

func TestExecStreams(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var stdout, stderr bytes.Buffer
	cmd := sh(`printf 'a\0\377\r\n'; printf 'err' >&2; cat`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("in\x00\xff"), &stdout, &stderr
	if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	if stdout.String() != "a\x00\xff\r\nin\x00\xff" || stderr.String() != "err" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	if got := output(t, e, sh("cat; readlink /proc/self/fd/0 2>/dev/null || true")); runtime.GOOS == "linux" && got != "/dev/null\n" {
		t.Errorf("without Stdin there is %q", got)
	}
}

func TestExecOneWriterForBoth(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var both bytes.Buffer // not safe for concurrent use, which -race would tell
	cmd := sh(`i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done`)
	cmd.Stdout, cmd.Stderr = &both, &both
	if _, err := e.Exec(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	if both.String() != want.String() {
		t.Error("the two streams are not in the order of writing")
	}
}

type uncomparable struct{ into []*bytes.Buffer }

func (w uncomparable) Write(p []byte) (int, error) { return w.into[0].Write(p) }

func TestExecWritersThatCannotBeCompared(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var a, b bytes.Buffer
	cmd := sh("echo out; echo err >&2")
	cmd.Stdout, cmd.Stderr = uncomparable{[]*bytes.Buffer{&a}}, uncomparable{[]*bytes.Buffer{&b}}
	if _, err := e.Exec(t.Context(), cmd); err != nil || a.String() != "out\n" ||
		b.String() != "err\n" {
		t.Errorf("%v, stdout %q, stderr %q", err, a.String(), b.String())
	}
}

func TestExecLargeStdin(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	size := int64(50 << 20)
	if testing.Short() {
		size = 5 << 20
	}
	in, out := sha256.New(), sha256.New()
	cmd := env.Command{
		Argv:   []string{"cat"},
		Stdin:  io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), in),
		Stdout: out,
	}
	if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	if !bytes.Equal(in.Sum(nil), out.Sum(nil)) {
		t.Error("what came out is not what went in")
	}
}

func TestExecStdinNotRead(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	t.Run("large", func(t *testing.T) {
		cmd := sh("exit 3")
		cmd.Stdin = io.LimitReader(rand.NewChaCha8([32]byte{}), 10<<20)
		if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 3 {
			t.Error(r, err)
		}
	})
	t.Run("blocking", func(t *testing.T) {
		r, w := io.Pipe()
		defer func() { _ = w.Close() }()
		cmd := sh("exit 3")
		cmd.Stdin = r
		if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 3 {
			t.Error(r, err)
		}
	})
	t.Run("failing", func(t *testing.T) {
		boom := errors.New("boom")
		var out bytes.Buffer
		cmd := sh("cat; exit 3")
		cmd.Stdin = io.MultiReader(strings.NewReader("head"), readerFunc(func([]byte) (int,
			error,
		) {
			return 0, boom
		}))
		cmd.Stdout = &out
		if r, err := e.Exec(t.Context(), cmd); !errors.Is(err, boom) || r.ExitCode != 3 ||
			out.String() != "head" {
			t.Error(r, err, out.String())
		}
	})
}

// TestExecConstantMemory prints far more than there may be memory for.
func TestExecConstantMemory(t *testing.T) {
	needUnix(t)
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	for name, pause := range map[string]time.Duration{
		"fast writer": 0,
		"slow writer": 20 * time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, local.Config{})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var n int64
			cmd := env.Command{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}}
			cmd.Stdout = writerFunc(func(p []byte) (int, error) {
				n += int64(len(p))
				if pause > 0 {
					time.Sleep(pause)
				}
				return len(p), nil
			})
			if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 0 || n != size {
				t.Fatalf("%+v, %v, %d bytes of %d", r, err, n, size)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
				t.Errorf("%d bytes were allocated for %d bytes of output", used, size)
			}
		})
	}
}

func TestExecWriterError(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	full := errors.New("full")
	calls := 0
	var stderr bytes.Buffer
	cmd := sh(`i=0; while [ $i -lt 100 ]; do printf '%01000d' $i; i=$((i+1)); done; echo end >&2; exit 5`)
	cmd.Stdout = writerFunc(func([]byte) (int, error) { calls++; return 0, full })
	cmd.Stderr = &stderr
	r, err := e.Exec(t.Context(), cmd)
	if !errors.Is(err, full) || r.ExitCode != 5 || calls != 1 || stderr.String() != "end\n" {
		t.Errorf("%+v, error %v, %d calls, stderr %q", r, err, calls, stderr.String())
	}
	cmd.Stdout = writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil })
	if _, err := e.Exec(t.Context(), cmd); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that writes less gives %v", err)
	}
}

func TestExecContextEnded(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	cause := errors.New("the user had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	var start *env.StartError
	_, err := e.Exec(ctx, sh("echo ran >ran"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !errors.As(err, &start) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(e.Info().WorkDir + "/ran"); err == nil {
		t.Error("the command ran")
	}
}

func TestExecParallel(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			var out bytes.Buffer
			cmd := sh(`read x; echo "$x $N"; exit $N`)
			cmd.Vars = []string{fmt.Sprintf("N=%d", i)}
			cmd.Stdin, cmd.Stdout = strings.NewReader(fmt.Sprintf("line %d\n", i)), &out
			r, err := e.Exec(t.Context(), cmd)
			if want := fmt.Sprintf("line %d %d\n", i, i); err != nil || r.ExitCode != i ||
				out.String() != want {
				t.Errorf("%d: %+v, %v, %q", i, r, err, out.String())
			}
		})
	}
	wg.Wait()
}

// TestExecJustWritten runs programs that were just written while other commands start: a child that
// is about to execute something else still has the file open.
func TestExecJustWritten(t *testing.T) {
	needUnix(t)
	e := newEnv(t, local.Config{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 25 {
				name := fmt.Sprintf("prog-%d-%d", i, j)
				body := strings.NewReader("#!/bin/sh\nexit 7\n")
				if _, err := e.WriteFile(t.Context(), name, body, env.WriteOptions{Mode: 0o755}); err != nil {
					t.Error(err)
				}
				if r, err := e.Exec(t.Context(), env.Command{Argv: []string{"./" + name}}); err != nil ||
					r.ExitCode != 7 {
					t.Error(r, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestExecEmptyReads gives input by a reader that may give nothing without an error.
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
		t.Errorf("a reader that hesitates: %q, %v", out, err)
	}
	if _, err := run(env.Command{Argv: []string{"cat"}}, func([]byte) (int, error) {
		return 0,
			nil
	}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing for ever: %v", err)
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
	// Only time can show that nothing comes.
	select {
	case <-again:
		t.Error("the reader was called again after Exec had returned")
	case <-time.After(50 * time.Millisecond):
	}
}
