package local_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// noTemps checks that no temporary file was left in dir.
func noTemps(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".sandboxagent-tmp-") {
			tb.Errorf("temporary file %s was left", e.Name())
		}
	}
}

// wantContent checks the content of a file.
func wantContent(tb testing.TB, name, want string) {
	tb.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		tb.Errorf("%s has %q, %v; want %q", name, got, err, want)
	}
}

// wantPathError checks that err is a *fs.PathError of name that wraps want.
func wantPathError(tb testing.TB, err error, name string, want error) {
	tb.Helper()
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != name || !errors.Is(err, want) {
		tb.Errorf("error %v (%T), want a *fs.PathError of %q with %v", err, err, name, want)
	}
}

func put(tb testing.TB, e env.FileWriter, name, content string, opts env.WriteOptions) env.Written {
	tb.Helper()
	w, err := e.WriteFile(tb.Context(), name, strings.NewReader(content), opts)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestReadsEndWithContext(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "file", "content", env.WriteOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	f, err := e.Open(ctx, "file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = f.Read(make([]byte, 3))
	wantPathError(t, err, "file", context.Canceled)
	for op, err := range map[string]error{
		"stat": func() error { _, err := e.Stat(ctx, "file"); return err }(),
		"write": func() error {
			_, err := e.WriteFile(ctx, "file", strings.NewReader(""), env.WriteOptions{})
			return err
		}(),
		"remove": e.Remove(ctx, "file", env.RemoveOptions{}),
	} {
		t.Run(op, func(t *testing.T) { wantPathError(t, err, "file", context.Canceled) })
	}
	wantContent(t, e.Info().WorkDir+"/file", "content")
}

func TestWriteFileRefuses(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "dir/file", "old", env.WriteOptions{})
	for _, tt := range []struct {
		name, file string
		opts       env.WriteOptions
		want       error
	}{
		{"directory", "dir", env.WriteOptions{}, env.ErrIsDir},
		{"slash at the end", "absent/", env.WriteOptions{}, env.ErrIsDir},
		{"dot", ".", env.WriteOptions{}, env.ErrIsDir},
		{"file as a directory", "dir/file/x", env.WriteOptions{}, env.ErrNotDir},
		{"type bits", "new", env.WriteOptions{Mode: fs.ModeDir | 0o755}, fs.ErrInvalid},
		{"no hash", "dir/file", env.WriteOptions{IfSHA256: "zz"}, fs.ErrInvalid},
		{"short hash", "dir/file", env.WriteOptions{IfSHA256: "abcd"}, fs.ErrInvalid},
		{
			"both conditions", "dir/file",
			env.WriteOptions{IfSHA256: sum("old"), MustNotExist: true},
			fs.ErrInvalid,
		},
		{"exists", "dir/file", env.WriteOptions{MustNotExist: true}, fs.ErrExist},
		{"directory exists", "dir", env.WriteOptions{MustNotExist: true}, fs.ErrExist},
		{"other content", "dir/file", env.WriteOptions{IfSHA256: sum("other")}, env.ErrChanged},
		{"condition on a missing file", "absent", env.WriteOptions{IfSHA256: sum("")}, fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.WriteFile(t.Context(), tt.file, strings.NewReader("new"), tt.opts)
			wantPathError(t, err, tt.file, tt.want)
			wantContent(t, e.Info().WorkDir+"/dir/file", "old")
			noTemps(t, e.Info().WorkDir+"/dir")
			noTemps(t, e.Info().WorkDir)
			if _, err := e.Stat(t.Context(), "absent"); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a file appeared")
			}
		})
	}
	put(t, e, "dir/file", "new", env.WriteOptions{IfSHA256: strings.ToUpper(sum("old"))})
}

// TestInvalidNameIsExplained checks the text for a name that a program has left empty.
func TestInvalidNameIsExplained(t *testing.T) {
	e := newEnv(t, local.Config{})
	for name, want := range map[string]string{"": "the name is empty", "a\x00b": "NUL"} {
		_, err := e.WriteFile(t.Context(), name, strings.NewReader("x"), env.WriteOptions{})
		wantPathError(t, err, name, fs.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error for %q is %v, without %q", name, err, want)
		}
	}
}

// TestWriteFileCancelled ends the context of a write while its reader blocks.
func TestWriteFileCancelled(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "old", "old", env.WriteOptions{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	blocked, unblock := io.Pipe()
	defer func() { _ = unblock.Close() }()
	boom := errors.New("boom")
	for _, file := range []string{"old", "new"} {
		r := io.MultiReader(strings.NewReader("head"), readerFunc(func(p []byte) (int, error) {
			cancel(boom)
			return blocked.Read(p)
		}))
		_, err := e.WriteFile(ctx, file, r, env.WriteOptions{})
		wantPathError(t, err, file, boom)
	}
	wantContent(t, e.Info().WorkDir+"/old", "old")
	if _, err := e.Stat(t.Context(), "new"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a file appeared")
	}
	noTemps(t, e.Info().WorkDir)
}

func TestRemoveRoot(t *testing.T) {
	e := newEnv(t, local.Config{})
	err := e.Remove(t.Context(), "/", env.RemoveOptions{Recursive: true})
	if !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// TestCopyOutEnds ends an unread stream by its context, and by Close.
func TestCopyOutEnds(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "dir/x", strings.Repeat("x", 1<<20), env.WriteOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := e.CopyOut(ctx, "dir")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if r, err = e.CopyOut(t.Context(), "dir"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
