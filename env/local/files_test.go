package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// wantContent checks what a file holds.
func wantContent(tb testing.TB, name, want string) {
	tb.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		tb.Errorf("%s holds %q, %v; want %q", name, got, err, want)
	}
}

// wantPathError checks that err is a *fs.PathError about name with want inside.
func wantPathError(tb testing.TB, err error, name string, want error) {
	tb.Helper()
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != name || !errors.Is(err, want) {
		tb.Errorf("error %v (%T), want a *fs.PathError about %q with %v", err, err, name, want)
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

func TestInvalidNames(t *testing.T) {
	e := newEnv(t, local.Config{})
	ctx := t.Context()
	for _, name := range []string{"", "a\x00b"} {
		for op, call := range map[string]func() error{
			"Open":    func() error { _, err := e.Open(ctx, name); return err },
			"Stat":    func() error { _, err := e.Stat(ctx, name); return err },
			"ReadDir": func() error { _, err := e.ReadDir(ctx, name); return err },
			"WriteFile": func() error {
				_, err := e.WriteFile(ctx, name, strings.NewReader(""),
					env.WriteOptions{})
				return err
			},
			"Remove":  func() error { return e.Remove(ctx, name, env.RemoveOptions{}) },
			"CopyIn":  func() error { return e.CopyIn(ctx, name, strings.NewReader("")) },
			"CopyOut": func() error { _, err := e.CopyOut(ctx, name); return err },
		} {
			t.Run(fmt.Sprintf("%s %q", op, name), func(t *testing.T) {
				wantPathError(t, call(), name,
					fs.ErrInvalid)
			})
		}
	}
}

func TestReadErrors(t *testing.T) {
	e := newEnv(t, local.Config{})
	ctx := t.Context()
	put(t, e, "file", "x", env.WriteOptions{})
	put(t, e, "dir/inner", "x", env.WriteOptions{})
	open := func(name string) error { _, err := e.Open(ctx, name); return err }
	stat := func(name string) error { _, err := e.Stat(ctx, name); return err }
	list := func(name string) error { _, err := e.ReadDir(ctx, name); return err }
	for _, tt := range []struct {
		op   string
		call func(string) error
		name string
		want error
	}{
		{"open", open, "absent", fs.ErrNotExist},
		{"open", open, "dir", env.ErrIsDir},
		{"open", open, "https:/example.org/%C5%81", fs.ErrNotExist},
		{"stat", stat, "absent", fs.ErrNotExist},
		{"list", list, "absent", fs.ErrNotExist},
		{"list", list, "file", env.ErrNotDir},
	} {
		t.Run(tt.op+" "+tt.name, func(t *testing.T) {
			wantPathError(t, tt.call(tt.name), tt.name,
				tt.want)
		})
	}
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

func TestReadDir(t *testing.T) {
	e := newEnv(t, local.Config{})
	for _, name := range []string{"d/b", "d/a", "d/B", "d/sub/x", "d/-n", "d/ü"} {
		put(t, e, name, name, env.WriteOptions{})
	}
	entries, err := e.ReadDir(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, fmt.Sprint(entry.Name(), " ", entry.IsDir()))
	}
	want := []string{"-n false", "B false", "a false", "b false", "sub true", "ü false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWriteFile(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20} {
		content := strings.Repeat("\x00\xff\r\n", size/4+1)[:size]
		got := put(t, e, "a/b/c", content, env.WriteOptions{})
		if want := (env.Written{Size: int64(size), Created: size == 0}); got != want {
			t.Errorf("%d bytes: %+v, want %+v", size, got, want)
		}
		wantContent(t, dir+"/a/b/c", content)
	}
	noTemps(t, dir+"/a/b")
	for _, name := range []string{"a b", "-n", "ü'\"`$x\\", "..x"} {
		put(t, e, name, name, env.WriteOptions{})
		wantContent(t, filepath.Join(dir, name), name)
	}
}

func TestWriteFileRefuses(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "dir/file", "old", env.WriteOptions{})
	for _, tt := range []struct {
		name, file string
		opts       env.WriteOptions
		want       error
	}{
		{"folder", "dir", env.WriteOptions{}, env.ErrIsDir},
		{"slash at the end", "absent/", env.WriteOptions{}, env.ErrIsDir},
		{"dot", ".", env.WriteOptions{}, env.ErrIsDir},
		{"file as a folder", "dir/file/x", env.WriteOptions{}, env.ErrNotDir},
		{"type bits", "new", env.WriteOptions{Mode: fs.ModeDir | 0o755}, fs.ErrInvalid},
		{"no hash", "dir/file", env.WriteOptions{IfSHA256: "zz"}, fs.ErrInvalid},
		{"short hash", "dir/file", env.WriteOptions{IfSHA256: "abcd"}, fs.ErrInvalid},
		{"both conditions", "dir/file", env.WriteOptions{IfSHA256: sum("old"), MustNotExist: true}, fs.ErrInvalid},
		{"exists", "dir/file", env.WriteOptions{MustNotExist: true}, fs.ErrExist},
		{"folder exists", "dir", env.WriteOptions{MustNotExist: true}, fs.ErrExist},
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
}

func TestWriteFileConditionHolds(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "f", "old", env.WriteOptions{MustNotExist: true})
	put(t, e, "f", "new", env.WriteOptions{IfSHA256: strings.ToUpper(sum("old"))})
	wantContent(t, e.Info().WorkDir+"/f", "new")
	noTemps(t, e.Info().WorkDir)
}

// TestWriteFileOneWins has many writers with conditions that only the first one meets.
func TestWriteFileOneWins(t *testing.T) {
	e := newEnv(t, local.Config{})
	for round := range 20 {
		name := fmt.Sprintf("f%d", round)
		for _, opts := range []env.WriteOptions{{MustNotExist: true}, {IfSHA256: sum("first")}} {
			if opts.IfSHA256 != "" {
				put(t, e, name, "first", env.WriteOptions{})
			}
			var wins atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					_, err := e.WriteFile(t.Context(), name, strings.NewReader(fmt.Sprint("writer ", i)), opts)
					switch {
					case err == nil:
						wins.Add(1)
					case !errors.Is(err, fs.ErrExist) && !errors.Is(err, env.ErrChanged):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := wins.Load(); n != 1 {
				t.Fatalf("%+v: %d writers of 8 won", opts, n)
			}
		}
	}
	noTemps(t, e.Info().WorkDir)
}

// TestWriteFileIsAtomic reads while others write: every read sees one whole content.
func TestWriteFileIsAtomic(t *testing.T) {
	e := newEnv(t, local.Config{})
	contents := map[string]bool{}
	for i := range 4 {
		contents[strings.Repeat(fmt.Sprint(i), 100_000+i)] = true
	}
	put(t, e, "f", strings.Repeat("0", 100_000), env.WriteOptions{})
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for content := range contents {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					put(t, e, "f", content, env.WriteOptions{})
				}
			}
		})
	}
	for range 300 {
		f, err := e.Open(t.Context(), "f")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		_ = f.Close()
		if err != nil || !contents[string(got)] {
			t.Errorf("read %d bytes that nobody wrote, %v", len(got), err)
			break
		}
	}
	close(stop)
	writers.Wait()
	noTemps(t, e.Info().WorkDir)
}

func TestWriteFileThatFails(t *testing.T) {
	boom := errors.New("boom")
	for _, name := range []string{"reader fails", "context ends", "context ends while the reader blocks"} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, local.Config{})
			put(t, e, "old", "old", env.WriteOptions{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			blocked, unblock := io.Pipe()
			defer func() { _ = unblock.Close() }()
			for _, file := range []string{"old", "new"} {
				sent := false
				r := readerFunc(func(p []byte) (int, error) {
					if !sent {
						sent = true
						return copy(p, "head"), nil
					}
					switch name {
					case "reader fails":
						return 0, boom
					case "context ends":
						cancel(boom)
						return copy(p, "more"), nil
					default:
						cancel(boom)
						return blocked.Read(p)
					}
				})
				_, err := e.WriteFile(ctx, file, r, env.WriteOptions{})
				wantPathError(t, err, file, boom)
			}
			wantContent(t, e.Info().WorkDir+"/old", "old")
			if _, err := e.Stat(t.Context(), "new"); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a file appeared")
			}
			noTemps(t, e.Info().WorkDir)
		})
	}
}

func TestRemove(t *testing.T) {
	e := newEnv(t, local.Config{})
	ctx := t.Context()
	for _, name := range []string{"file", "dir/a/b", "full/x"} {
		put(t, e, name, "x", env.WriteOptions{})
	}
	if err := os.Mkdir(e.Info().WorkDir+"/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		recursive bool
		ok        bool
		want      error
	}{
		{"absent", false, false, fs.ErrNotExist},
		{"absent", true, false, fs.ErrNotExist},
		{"full", false, false, nil},
		{"file", false, true, nil},
		{"empty", false, true, nil},
		{"dir", true, true, nil},
		{"full/x", true, true, nil},
	} {
		t.Run(fmt.Sprint(tt.name, " ", tt.recursive), func(t *testing.T) {
			err := e.Remove(ctx, tt.name, env.RemoveOptions{Recursive: tt.recursive})
			_, left := os.Lstat(filepath.Join(e.Info().WorkDir, tt.name))
			switch {
			case tt.ok && (err != nil || !errors.Is(left, fs.ErrNotExist)):
				t.Errorf("%v, afterwards %v", err, left)
			case tt.want != nil:
				wantPathError(t, err, tt.name, tt.want)
			case !tt.ok && (err == nil || left != nil):
				t.Errorf("%v, afterwards %v", err, left)
			}
		})
	}
	if err := e.Remove(ctx, "/", env.RemoveOptions{Recursive: true}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("the root: %v", err)
	}
}

func TestCopy(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "src/a", "A", env.WriteOptions{Mode: 0o644})
	put(t, e, "src/sub/b", strings.Repeat("B", 200_000), env.WriteOptions{Mode: 0o644})
	out, err := e.CopyOut(t.Context(), "src")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CopyIn(t.Context(), "x/dst", out); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, e.Info().WorkDir+"/x/dst/a", "A")
	wantContent(t, e.Info().WorkDir+"/x/dst/sub/b", strings.Repeat("B", 200_000))

	out, err = e.CopyOut(t.Context(), "src", "sub/b", "a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	var names []string
	archive := tar.NewReader(out)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if diff := cmp.Diff([]string{"a", "sub/b"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestCopyErrors(t *testing.T) {
	e := newEnv(t, local.Config{})
	ctx := t.Context()
	put(t, e, "file", "x", env.WriteOptions{})
	put(t, e, "dir/x", strings.Repeat("x", 1<<20), env.WriteOptions{})
	readAll := func(dir string, names ...string) error {
		r, err := e.CopyOut(ctx, dir, names...)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}
	wantPathError(t, readAll("absent"), "absent", fs.ErrNotExist)
	wantPathError(t, readAll("file"), "file", env.ErrNotDir)
	wantPathError(t, readAll("dir", "absent"), "dir", fs.ErrNotExist)
	if err := readAll("dir", "../file"); err == nil {
		t.Error("a name that leaves the folder was packed")
	}
	wantPathError(t, e.CopyIn(ctx, "file", strings.NewReader("")), "file", env.ErrNotDir)
	wantPathError(t, e.CopyIn(ctx, "new", strings.NewReader("")), "new", io.ErrUnexpectedEOF)

	var evil bytes.Buffer
	w := tar.NewWriter(&evil)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "../evil", Size: 1, Mode: 0o644}), func() error {
		_, err := w.Write([]byte("x"))
		return err
	}(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := e.CopyIn(ctx, "dir", &evil); err == nil {
		t.Error("a name that leaves the folder was unpacked")
	}
	if _, err := os.Stat(e.Info().WorkDir + "/evil"); err == nil {
		t.Error("a file was written outside")
	}

	r, err := e.CopyOut(ctx, "dir") // closing early ends the goroutine, which the leak check sees
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	cctx, cancel := context.WithCancel(ctx)
	r, err = e.CopyOut(cctx, "dir")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream whose context ended gives %v", err)
	}
	if r, err = e.CopyOut(ctx, "dir"); err != nil { // Close ends what nobody reads
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a stream of an environment that was closed gives %v", err)
	}
}
