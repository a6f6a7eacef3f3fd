package tool

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// here returns a local environment in a new directory with files.
func here(t *testing.T, files map[string]string) (env.Environment, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, dir
}

// posix skips a test that needs a POSIX shell.
func posix(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the test speaks to a POSIX shell, and Windows has none of its own")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLocalReadThenEdit_9_12(t *testing.T) {
	e, dir := here(t, map[string]string{"src/a.go": "package a\n\nvar X = 1\n"})
	for _, step := range []struct {
		tool string
		args args
		want string
	}{
		{"write_file", args{"file_path": "n/new.txt", "content": "x\n"}, "created n/new.txt: 2 bytes"},
		{"read_file", args{"file_path": "src/a.go"}, "1 | package a\n2 | \n3 | var X = 1\n"},
		{
			"edit_file",
			args{"file_path": "src/a.go", "old_string": "X = 1", "new_string": "X = 2"},
			"made 1 replacement in src/a.go, at line 3",
		},
		{"apply_patch", patch("*** Update File: src/a.go\n*** Move to: src/b.go\n@@\n-var X = 2\n+var " +
			"X = 3\n*** Delete File: n/new.txt\n"), "A src/b.go\nD src/a.go\nD n/new.txt\n"},
		{"grep", args{"pattern": "X ="}, "src/b.go:3:var X = 3\n"},
		{"glob", args{"pattern": "**/*.go"}, "src/b.go\n"},
		{"list_dir", args{"path": "."}, "n/  directory\nsrc/  directory\n"},
	} {
		o := use(t, e, step.tool, step.args)
		if diff := cmp.Diff(step.want, o.Result.Text()); diff != "" || o.Err != nil {
			t.Fatalf("%s: %v\n%s", step.tool, o.Err, diff)
		}
	}
	if got := read(t, filepath.Join(dir, "src", "b.go")); got != "package a\n\nvar X = 3\n" {
		t.Errorf("got %q", got)
	}
}

// No patch leaves the working directory of a real machine.
func TestLocalPatchStaysInWorkDir_F17(t *testing.T) {
	e, dir := here(t, map[string]string{"a.txt": "one\n"})
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"abs": outside, "rel": "../outside", "file": canary,
		"new": filepath.Join(outside, "new"), "sub/deep": "../../outside",
	} {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, full); err != nil {
			t.Skipf("this system makes no links for this user: %v", err)
		}
	}
	for _, name := range []string{
		"abs/x", "rel/x", "file", "new", "sub/deep/x", "../outside/x",
		filepath.ToSlash(outside) + "/x", "abs/../outside/x", "rel/canary",
	} {
		for _, body := range []string{"*** Add File: " + name + "\n+x\n", "*** Update File: " + name +
			"\n@@\n-one\n+x\n", "*** Update File: a.txt\n*** Move to: " + name + "\n"} {
			// A name with .. is taken as written, before links are followed: abs/../outside is below the
			// root.
			if o := use(t, e, "apply_patch", patch(body)); o.Err == nil && name != "abs/../outside/x" {
				t.Errorf("%s was taken:\n%s", name, body)
			}
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 || read(t, canary) != "one\n" {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if o := use(t, e, "apply_patch", patch("*** Delete File: file\n")); o.Err != nil ||
		read(t, canary) != "one\n" {
		t.Errorf("a link cannot be deleted: %v", o.Err)
	}
}

func TestLocalShell(t *testing.T) {
	posix(t)
	e, dir := here(t, nil)
	for _, tt := range []struct {
		name, command, want string
		kind                ErrorKind
	}{
		{"order", "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n[exit code 0 after ", ""},
		{"exit code", "echo x; exit 7", "x\n[exit code 7 after ", KindShellExit},
		{"command not found", "no-such-command-here", "[exit code 127 after ", KindShellExit},
		{"no input", "cat; echo end", "end\n[exit code 0 after ", ""},
		{"colours", `printf '\033[31mred\033[0m\r\n'`, "red\n[exit code 0 after ", ""},
		{"working directory", "pwd -P", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := use(t, e, "shell", args{"command": tt.command})
			check(t, o, tt.kind, tt.want)
		})
	}
	t.Run("background", func(t *testing.T) {
		o := use(t, e, "shell", args{"command": "echo $$ > pid; sleep 60 & echo started"})
		if o.Err != nil || !strings.Contains(o.Result.Text(), "started\n[exit code 0") ||
			!strings.Contains(o.Result.Text(), "A background process") {
			t.Errorf("%s", o.Result.Text())
		}
		read(t, filepath.Join(dir, "pid"))
	})
	t.Run("timeout_9_4_4", func(t *testing.T) {
		o := use(t, e, "shell", args{"command": "echo begin; sleep 60", "timeout_ms": 3000})
		if kind(o) != KindShellTimeout ||
			!strings.HasPrefix(o.Result.Text(), "begin\n[The command was killed") {
			t.Errorf("%s: %s", kind(o), o.Result.Text())
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := Scope{Env: e, OnOutput: func(p []byte) { cancel() }}
		o := registry(t).Run(ctx, s, call(t, "shell", args{"command": "echo begin; sleep 60"}))
		if kind(o) != KindCanceled || !strings.HasPrefix(o.Result.Text(), "begin\nthe call was "+
			"canceled") {
			t.Errorf("%s: %s", kind(o), o.Result.Text())
		}
	})
}

// The model sees the ends of a long output; all of it can be read and searched.
func TestLocalShellOutput_C1(t *testing.T) {
	posix(t)
	e, _ := here(t, nil)
	outputs := map[string]func() (io.ReadCloser, error){}
	s := Scope{Env: e, Spool: dirSpool{dir: t.TempDir()}}
	s.Outputs = func(id string) (io.ReadCloser, error) { return outputs[id]() }
	const loop = `i=0; while [ $i -lt 150000 ]; do echo "line $i"; i=$((i+1)); done`
	o := useIn(t, s, "shell", args{"command": loop, "timeout_ms": 60_000})
	text := o.Result.Text()
	if o.Err != nil || !o.Truncated || o.Output.File == "" || !strings.HasPrefix(text,
		"line 0\nline 1\n") || !strings.Contains(text, "output://call_1:") ||
		!strings.Contains(text, "\nline 149999\n[exit code 0 after ") {
		t.Fatalf("%v: %.200q", o.Err, text)
	}
	if n := strings.Count(text, "\n"); n > 256+5 {
		t.Errorf("the model sees %d lines", n)
	}
	outputs["call_1"] = o.Output.Open
	o = useIn(t, s, "grep", `{"pattern": "^line 77777$", "path": "output://call_1"}`)
	checkText(t, o, "", "output://call_1:77778:line 77777\n")
	o = useIn(t, s, "read_file", `{"file_path": "output://call_1", "offset": 77778, "limit": 1}`)
	check(t, o, "", "77778 | line 77777\n")
}

// TestLocalShellMemory_F13: 128 MiB of output take little memory.
func TestLocalShellMemory_F13(t *testing.T) {
	posix(t)
	if testing.Short() {
		t.Skip("it moves 128 MiB")
	}
	e, _ := here(t, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	seen := 0
	s := Scope{Env: e, OnOutput: func(p []byte) {
		if seen += len(p); seen > 32<<20 {
			seen = 0
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapInuse)
		}
	}}
	o := useIn(t, s, "shell", `{"command": "yes | head -c 134217728", "timeout_ms": 600000}`)
	if o.Err != nil || o.Output.Size < 128<<20 {
		t.Fatalf("%v, %d bytes", o.Err, o.Output.Size)
	}
	if peak > before.HeapInuse+32<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before.HeapInuse, peak)
	}
}

// TestLocalGlobAbove searches the parent directory of the target of a symlink: the reported names
// are valid.
func TestLocalGlobAbove(t *testing.T) {
	posix(t)
	e, dir := here(t, map[string]string{"other/sub/x": "", "other/f.go": "", "g.go": ""})
	if err := os.Symlink("other/sub", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	checkText(t, use(t, e, "glob", `{"pattern": "*.go", "path": "link/.."}`), "", "link/../f.go\n")
}
