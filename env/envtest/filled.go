package envtest

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// A Fill writes the working directory of an environment that nobody else uses.
type Fill = func(ctx context.Context, e env.Environment) error

// Filled checks that an environment with a shell has what a Fill wrote, and that commands change
// nothing of it: no name, content, mode or time. Open opens the environment; the error of its Fill
// is its error.
func Filled(t *testing.T, open func(*testing.T, Fill) (env.Environment, error)) {
	t.Helper()
	wanted := errors.New("the upload fails")
	e, err := open(t, func(context.Context, env.Environment) error { return wanted })
	if err == nil {
		t.Errorf("it opens although the working directory is not filled; close: %v", e.Close())
	} else if !errors.Is(err, wanted) {
		t.Errorf("the error is %v, want that of the fill", err)
	}
	e, err = open(t, func(ctx context.Context, e env.Environment) error {
		_, err := e.WriteFile(ctx, "dir/file", strings.NewReader("original\n"),
			env.WriteOptions{Mode: 0o640})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := e.Info().Strength(env.ReadOnlyFiles); got != env.Enforced {
		t.Errorf("the guarantee %s is %q", env.ReadOnlyFiles, got)
	}
	before, err := e.Stat(t.Context(), "dir/file")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"echo changed >dir/file", "echo changed >>dir/file", "rm -f dir/file", "mv dir/file other",
		"touch new", "mkdir new", "ln -s /etc new", "chmod 600 dir/file", "chmod 777 .",
		"touch -d 2000-01-01 dir/file", "ln dir/file new",
	} {
		cmd := env.Command{Argv: append(e.Info().Shell, script)}
		out, res, err := env.Output(t.Context(), e, cmd, env.OutputOptions{Combined: true})
		text := strings.ToLower(string(out.Stdout.Bytes()))
		if err != nil || res.ExitCode == 0 || !strings.Contains(text, "read-only file system") {
			t.Errorf("%s: %+v, %v: %s", script, res, err, text)
		}
	}
	_, err = e.WriteFile(t.Context(), "new", strings.NewReader(""), env.WriteOptions{})
	if err == nil {
		t.Error("a file can be written")
	}
	after, err := e.Stat(t.Context(), "dir/file")
	if err != nil || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file was %v, and is %v, %v", before, after, err)
	}
	data, err := env.ReadFile(t.Context(), e, "dir/file", 100)
	if err != nil || string(data) != "original\n" {
		t.Errorf("the file has %q, %v", data, err)
	}
	if _, err := e.Stat(t.Context(), "new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new: %v", err)
	}
	script := "echo temporary >~/f && cat ~/f && echo more >/tmp/f"
	cmd := env.Command{Argv: append(e.Info().Shell, script)}
	out, res, err := env.Output(t.Context(), e, cmd, env.OutputOptions{Combined: true})
	if err != nil || res.ExitCode != 0 || string(out.Stdout.Bytes()) != "temporary\n" {
		t.Errorf("in the home directory: %+v, %v: %s", res, err, out.Stdout.Bytes())
	}
}
