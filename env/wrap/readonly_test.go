package wrap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

func TestReadOnlyRejects(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "kept", "content")
	untouched := iotest.ErrReader(errors.New("the reader was read"))
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
	deny := func(env.Command) error { return errors.New("refused") }
	for name, e := range map[string]env.Environment{
		"no check": wrap.ReadOnly(inner, nil),
		"deny":     wrap.ReadOnly(inner, deny),
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
	if _, err := inner.Stat(t.Context(), "kept"); err != nil || inner.ran > 0 {
		t.Errorf("rejected calls reach the environment: %v, %d commands", err, inner.ran)
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
		t.Error("Close does not close the inner environment")
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
	e := wrap.ReadOnly(inner, func(checked env.Command) error {
		var err error
		vars := []string{"A=b"}
		if checked.Argv[0] != "git" || checked.Dir != "d" || !slices.Equal(checked.Vars, vars) {
			err = fmt.Errorf("another command: %+v", checked)
		}
		// Neither the check nor the caller, who may hold on to the slices, can change what was checked.
		checked.Argv[0], checked.Vars[0] = "rm", "X=y"
		cmd.Argv[1], cmd.Vars[0] = "push", "Y=z"
		return err
	})
	result, err := e.Exec(t.Context(), cmd)
	if err != nil || result.ExitCode != 7 {
		t.Errorf("Exec gives %+v, %v, want exit code 7, nil", result, err)
	}
	if diff := cmp.Diff([]string{"git status in d with A=b"}, ran); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestReadOnlyReads(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "dir/file.txt", "needle\n")
	inner.symlink(t, "file.txt", "dir/symlink")
	e := wrap.ReadOnly(inner, nil)
	ctx := t.Context()
	var walked []string
	err := search.Walk(ctx, e, ".", search.WalkOptions{}, func(entry search.Entry) error {
		walked = append(walked, entry.Name)
		return nil
	})
	if err != nil || !slices.Equal(walked, []string{"dir", "dir/file.txt", "dir/symlink"}) {
		t.Errorf("Walk gives %q, %v", walked, err)
	}
	if got, err := env.ReadFile(ctx, e, "dir/file.txt", 0); string(got) != "needle\n" || err != nil {
		t.Errorf("ReadFile gives %q, %v", got, err)
	}
	got, err := env.ReadFiles(ctx, e, []string{"dir/symlink", "missing"}, 0)
	if err != nil || string(got[0].Data) != "needle\n" || !errors.Is(got[1].Err, fs.ErrNotExist) {
		t.Errorf("ReadFiles gives %v, %v", got, err)
	}
	if got, err := e.ReadDir(ctx, "dir"); len(got) != 2 || err != nil {
		t.Errorf("ReadDir gives %v, %v", got, err)
	}
	if got, err := e.Stat(ctx, "dir/symlink"); err != nil || !got.Mode().IsRegular() {
		t.Errorf("Stat gives %v, %v", got, err)
	}
	if got, err := e.Lstat(ctx, "dir/symlink"); err != nil || got.Mode().IsRegular() {
		t.Errorf("Lstat gives %v, %v", got, err)
	}
	if got, err := e.ReadLink(ctx, "dir/symlink"); err != nil || got != "file.txt" {
		t.Errorf("ReadLink gives %q, %v", got, err)
	}
	if got, err := e.CopyOut(ctx, "dir", "file.txt"); err != nil || got.Close() != nil {
		t.Errorf("CopyOut gives %v, %v", got, err)
	}
	found, err := search.Glob(ctx, e, search.GlobOptions{Pattern: "**/f*.txt"})
	if len(found) != 1 || err != nil {
		t.Errorf("Glob gives %v, %v", found, err)
	}
	stats, err := search.Grep(ctx, e, search.GrepOptions{Pattern: "needle"},
		func(search.GrepMatch) error { return nil })
	if stats.Matches != 1 || err != nil {
		t.Errorf("Grep gives %+v, %v", stats, err)
	}
	if _, err := e.Open(ctx, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a missing file gives %v, want %v", err, fs.ErrNotExist)
	}
}

// TestReadOnlySearchesWithCommands proves that an environment may search by a command.
func TestReadOnlySearchesWithCommands(t *testing.T) {
	t.Parallel()
	inner := &searchingEnv{scriptedEnv: newScriptedEnv(t)}
	e := wrap.ReadOnly(inner, nil)
	if _, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "x"}, nil); err != nil {
		t.Errorf("Grep gives %v", err)
	}
	if inner.ran != 1 {
		t.Errorf("%d commands, want 1", inner.ran)
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

// osFiles has files that can be changed.
type osFiles struct{ *scriptedEnv }

func (o osFiles) Open(_ context.Context, name string) (fs.File, error) {
	return os.Open(o.host(name))
}

func TestReadOnlyFiles(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "file", "content")
	f, err := wrap.ReadOnly(osFiles{inner}, nil).Open(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(interface{ Chmod(fs.FileMode) error }); ok {
		t.Errorf("a %T can change the mode of the file", f)
	}
	if _, ok := f.(io.Writer); ok {
		t.Errorf("a %T can write", f)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 7 {
		t.Errorf("Stat gives %v, %v, want a size of 7", info, err)
	}
	if got, err := io.ReadAll(f); string(got) != "content" || err != nil {
		t.Errorf("reading gives %q, %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyInfo(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	want := inner.Info()
	if diff := cmp.Diff(want, wrap.ReadOnly(inner,
		func(env.Command) error { return nil }).Info()); diff != "" {
		t.Errorf("with a check (-want +got):\n%s", diff)
	}
	want.Shell, want.NoShell = nil, env.ErrReadOnly.Error()
	if diff := cmp.Diff(want, wrap.ReadOnly(inner, nil).Info()); diff != "" {
		t.Errorf("without a check (-want +got):\n%s", diff)
	}
}

// TestReadOnlyConfines runs commands in environments that enforce what ReadOnly promises.
func TestReadOnlyConfines(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	var got []*env.Confinement
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		got = append(got, cmd.Confine)
		return env.Result{}, nil
	}
	refuse := func(env.Command) error { return errors.New("refused") }
	exec := func(strength env.Strength, name env.GuaranteeName, confine *env.Confinement) error {
		inner.guarantees = []env.Guarantee{{Name: name, Strength: strength}}
		e := wrap.ReadOnly(inner, refuse)
		if shell := e.Info().Shell; len(shell) == 0 {
			t.Errorf("%s %s: no shell", strength, name)
		}
		_, err := e.Exec(t.Context(), env.Command{Argv: []string{"rm"}, Confine: confine})
		return err
	}
	given := &env.Confinement{Hide: "a", Read: []string{"a/b"}, Write: []string{"a/c"}}
	err := errors.Join(exec(env.Enforced, env.ConfinedCommands, nil),
		exec(env.Enforced, env.ConfinedCommands, given), exec(env.Enforced, env.ReadOnlyFiles, nil))
	if err != nil {
		t.Error(err)
	}
	want := []*env.Confinement{{}, {Hide: "a", Read: []string{"a/b", "a/c"}}, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("confinements (-want +got):\n%s", diff)
	}
	inner.guarantees = []env.Guarantee{{Name: env.ConfinedCommands, Strength: env.BestEffort}}
	accepting := wrap.ReadOnly(inner, func(env.Command) error { return nil })
	if _, err := accepting.Exec(t.Context(), env.Command{Argv: []string{"ls"}}); err != nil ||
		got[len(got)-1] == nil {
		t.Errorf("an accepted command, %v, is not confined", err)
	}
	for _, name := range []env.GuaranteeName{env.ConfinedCommands, env.ReadOnlyFiles} {
		if err := exec(env.BestEffort, name, nil); !errors.Is(err, env.ErrReadOnly) {
			t.Errorf("with %s as best effort: %v, want %v", name, err, env.ErrReadOnly)
		}
	}
}
