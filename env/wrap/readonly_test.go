package wrap_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

func TestReadOnlyRefuses(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "kept", "content")
	untouched := iotest.ErrReader(errors.New("the reader was used"))
	calls := map[string]func(env.Environment) error{
		"WriteFile": func(e env.Environment) error {
			_, err := e.WriteFile(t.Context(), "kept", untouched, env.WriteOptions{})
			return err
		},
		"Remove": func(e env.Environment) error {
			return e.Remove(t.Context(), "kept", env.RemoveOptions{Recursive: true})
		},
		"CopyIn": func(e env.Environment) error { return e.CopyIn(t.Context(), ".", untouched) },
		"Exec": func(e env.Environment) error {
			_, err := e.Exec(t.Context(), env.Command{Argv: []string{"ls"}})
			return err
		},
	}
	deny := func(env.Command) bool { return false }
	for name, e := range map[string]env.Environment{
		"no predicate": wrap.ReadOnly(inner, nil),
		"deny":         wrap.ReadOnly(inner, deny),
	} {
		for call, do := range calls {
			err := do(e)
			if !errors.Is(err, env.ErrReadOnly) {
				t.Errorf("%s: %s gives %v, want %v", name, call, err, env.ErrReadOnly)
			}
			var pe *fs.PathError
			var se *env.StartError
			if call == "Exec" && !errors.As(err, &se) {
				t.Errorf("%s: %s gives a %T, want a *StartError", name, call, err)
			}
			if call != "Exec" && !errors.As(err, &pe) {
				t.Errorf("%s: %s gives a %T, want a *fs.PathError", name, call, err)
			}
		}
	}
	if got := inner.called(); len(got) > 0 {
		t.Errorf("refused calls reach the environment: %v", got)
	}

	e := wrap.ReadOnly(inner, nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for call, do := range calls {
		if err := do(e); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close gives %v, want %v", call, err, fs.ErrClosed)
		}
	}
	if !inner.closed {
		t.Error("Close does not close the environment inside")
	}
}

func TestReadOnlyAllows(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	var ran []string
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		ran = append(ran, strings.Join(cmd.Argv, " ")+" in "+cmd.Dir+" with "+strings.Join(cmd.Vars, " "))
		return env.Result{ExitCode: 7}, nil
	}
	cmd := env.Command{Argv: []string{"git", "status"}, Dir: "d", Vars: []string{"A=b"}}
	e := wrap.ReadOnly(inner, func(judged env.Command) bool {
		ok := judged.Argv[0] == "git" && judged.Dir == "d" && slices.Equal(judged.Vars, []string{"A=b"})
		// Neither the predicate nor the caller, who may hold on to the slices, can change what was
		// judged.
		judged.Argv[0], judged.Vars[0] = "rm", "X=y"
		cmd.Argv[1], cmd.Vars[0] = "push", "Y=z"
		return ok
	})
	result, err := e.Exec(t.Context(), cmd)
	if err != nil || result.ExitCode != 7 {
		t.Errorf("Exec gives %+v, %v, want exit code 7, nil", result, err)
	}
	if diff := cmp.Diff([]string{"git status in d with A=b"}, ran); diff != "" {
		t.Errorf("what ran (-want +got):\n%s", diff)
	}
}

func TestReadOnlyReads(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "dir/file.txt", "needle\n")
	e := wrap.ReadOnly(inner, nil)
	ctx := t.Context()
	if got, err := env.ReadFile(ctx, e, "dir/file.txt", 0); string(got) != "needle\n" || err != nil {
		t.Errorf("ReadFile gives %q, %v", got, err)
	}
	if got, err := e.ReadDir(ctx, "dir"); len(got) != 1 || err != nil {
		t.Errorf("ReadDir gives %v, %v", got, err)
	}
	if got, err := e.Stat(ctx, "dir"); err != nil || !got.IsDir() {
		t.Errorf("Stat gives %v, %v", got, err)
	}
	if got, err := e.Lstat(ctx, "dir"); err != nil || !got.IsDir() {
		t.Errorf("Lstat gives %v, %v", got, err)
	}
	if _, err := e.ReadLink(ctx, "dir/file.txt"); err == nil || errors.Is(err, env.ErrReadOnly) {
		t.Errorf("ReadLink of a file gives %v", err)
	}
	if got, err := e.CopyOut(ctx, "dir", "file.txt"); err != nil {
		t.Errorf("CopyOut gives %v, %v", got, err)
	}
	if got, err := search.Glob(ctx, e, search.GlobOptions{Pattern: "**/*.txt"}); len(got) != 1 ||
		err != nil {
		t.Errorf("Glob gives %v, %v", got, err)
	}
	if stats, err := search.Grep(ctx, e, search.GrepOptions{Pattern: "needle"},
		func(search.GrepMatch) error { return nil }); stats.Matches != 1 || err != nil {
		t.Errorf("Grep gives %+v, %v", stats, err)
	}
	if _, err := e.Open(ctx, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a missing file gives %v, want %v", err, fs.ErrNotExist)
	}
}

// TestReadOnlySearchesBesideExec proves that search still works where the environment does it by
// running a program.
func TestReadOnlySearchesBesideExec(t *testing.T) {
	t.Parallel()
	inner := &searchingEnv{scriptedEnv: newScriptedEnv(t)}
	e := wrap.ReadOnly(inner, nil)
	if _, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "x"}, nil); err != nil {
		t.Errorf("Grep gives %v", err)
	}
	if diff := cmp.Diff([]string{"Exec"}, inner.called()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// searchingEnv searches by a command.
type searchingEnv struct{ *scriptedEnv }

func (s *searchingEnv) Walk(
	ctx context.Context, root string, _ search.WalkOptions, _ func(search.Entry) error,
) error {
	_, err := s.Exec(ctx, env.Command{Argv: []string{"find", root}})
	return err
}

func (s *searchingEnv) Grep(
	ctx context.Context, opts search.GrepOptions, _ func(search.GrepMatch) error,
) (search.GrepStats, error) {
	_, err := s.Exec(ctx, env.Command{Argv: []string{"grep", opts.Pattern}})
	return search.GrepStats{}, err
}

func (s *searchingEnv) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	_, err := s.Exec(ctx, env.Command{Argv: []string{"find", opts.Pattern}})
	return nil, err
}

func TestReadOnlyFiles(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "file", "content")
	f, err := wrap.ReadOnly(inner, nil).Open(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, ok := f.(interface{ Chmod(fs.FileMode) error }); ok {
		t.Errorf("a %T can change the mode of the file", f)
	}
	if _, ok := f.(io.Writer); ok {
		t.Errorf("a %T can write", f)
	}
	if got, err := io.ReadAll(f); string(got) != "content" || err != nil {
		t.Errorf("reading gives %q, %v", got, err)
	}
	seeker, ok := f.(io.ReadSeeker)
	if !ok {
		t.Fatalf("a %T cannot seek, but the file inside can", f)
	}
	if _, err := seeker.Seek(3, io.SeekStart); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(f); string(got) != "tent" || err != nil {
		t.Errorf("reading after Seek gives %q, %v", got, err)
	}
	p := make([]byte, 3)
	if _, err := f.(io.ReaderAt).ReadAt(p, 0); string(p) != "con" || err != nil {
		t.Errorf("ReadAt gives %q, %v", p, err)
	}
}

func TestReadOnlyPlainFiles(t *testing.T) {
	t.Parallel()
	f, err := wrap.ReadOnly(plainFiles{newScriptedEnv(t)}, nil).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(io.Seeker); ok {
		t.Errorf("a %T can seek, but the file inside cannot", f)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != 2 {
		t.Errorf("Stat gives %v, %v, want a size of 2", info, err)
	}
	if got, err := io.ReadAll(f); string(got) != "hi" || err != nil {
		t.Errorf("reading gives %q, %v", got, err)
	}
}

// plainFiles has files that can be read from start to end only.
type plainFiles struct{ *scriptedEnv }

func (p plainFiles) Open(context.Context, string) (fs.File, error) {
	f, err := fstest.MapFS{"f": {Data: []byte("hi")}}.Open("f")
	return struct{ fs.File }{f}, err
}

func TestReadOnlyInfo(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	want := inner.Info()
	if diff := cmp.Diff(want, wrap.ReadOnly(inner,
		func(env.Command) bool { return true }).Info()); diff != "" {
		t.Errorf("with a predicate (-want +got):\n%s", diff)
	}
	want.Shell, want.NoShell = nil, env.ErrReadOnly.Error()
	if diff := cmp.Diff(want, wrap.ReadOnly(inner, nil).Info()); diff != "" {
		t.Errorf("without a predicate (-want +got):\n%s", diff)
	}
}
