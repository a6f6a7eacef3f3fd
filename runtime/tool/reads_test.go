package tool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TestReads makes calls in the order of a session. Each writes what another step has prepared.
func TestReads(t *testing.T) {
	posix(t)
	e, dir := here(t, map[string]string{
		"a": "old\n", "b": "old\n", "c": "old\n", "d/e": "old\n", "f": "old\n", "g": "old\n",
	})
	err := errors.Join(os.Symlink("d", filepath.Join(dir, "link")),
		os.Symlink("g", filepath.Join(dir, "symlink")))
	if err != nil {
		t.Fatal(err)
	}
	tools, scope := registry(t), Scope{Env: e, Reads: new(Reads)}
	run := func(name string, a args) llm.ToolResult {
		return tools.Run(t.Context(), scope, call(t, name, a)).Result
	}
	change := func(name, content string) {
		full := filepath.Join(dir, name)
		later := time.Now().Add(time.Hour)
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(full, later, later); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string) args { return args{"file_path": name, "content": "new\n"} }
	edit := func(name string) args {
		return args{"file_path": name, "old_string": "old", "new_string": "new"}
	}
	patch := func(lines ...string) args {
		return args{"patch": "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch"}
	}
	const unread, changed = "you have not read it", "another file than the one that you have read"
	for _, step := range []struct {
		what    string
		tool    string
		args    args
		refused string
	}{
		{"a new file", "write_file", write("new"), ""},
		{"its own file", "edit_file", args{
			"file_path": "new", "old_string": "new", "new_string": "newer",
		}, ""},
		{"an unread file", "write_file", write("a"), unread},
		{"an unread file", "edit_file", edit("a"), unread},
		{"a search", "grep", args{"pattern": "old", "path": "a"}, ""},
		{"after a search", "edit_file", edit("a"), unread},
		{"reading", "read_file", args{"file_path": dir + "/a"}, ""},
		{"after reading", "edit_file", edit("a"), ""},
		{"after an edit", "write_file", write("./a"), ""},
		{"reading", "read_file", args{"file_path": "b"}, ""},
		{"change b", "", nil, ""},
		{"a changed file", "edit_file", edit("b"), changed},
		{"reading again", "shell", args{"command": "cat b | head -n 1"}, ""},
		{"after a command", "edit_file", edit("b"), ""},
		{"a command that writes", "shell", args{"command": "printf 'longer than before' >b"}, ""},
		{"after it", "write_file", write("b"), changed},
		{"an unread file", "apply_patch", patch("*** Delete File: c"), unread},
		{"an unread file", "apply_patch", patch("*** Update File: c", "-old", "+new"), unread},
		{"an unread file", "apply_patch", patch("*** Add File: c", "+new"), unread},
		{
			"a read file and an unread one", "apply_patch",
			patch("*** Update File: a", "-new", "+half", "*** Update File: c", "-old", "+half"), unread,
		},
		{"reading", "read_many_files", args{"patterns": []string{"[cd]*/**", "c"}}, ""},
		{
			"after reading", "apply_patch",
			patch("*** Update File: c", "*** Move to: moved", "-old", "+new"), "",
		},
		{
			"after moving", "edit_file",
			args{"file_path": "moved", "old_string": "new", "new_string": "x"},
			"",
		},
		{"after reading", "write_file", write("d/e"), ""},
		{"a command that fails", "shell", args{"command": "cat f; exit 3"}, "exit code 3"},
		{"after it", "write_file", write("f"), ""},
		{"a command that does not run", "shell", args{"command": "cat g\x00"}, "NUL"},
		{"after it", "write_file", write("g"), unread},
		{"a symlink to an unread file", "apply_patch", patch("*** Delete File: symlink"), ""},
		{"reading behind a symlink", "read_file", args{"file_path": "link/e"}, ""},
		{"after reading", "apply_patch", patch("*** Update File: link/e", "-new", "+newer"), ""},
		{"after patching", "write_file", write("link/e"), ""},
		{"a directory", "write_file", write("d"), "is a directory"},
	} {
		if step.tool == "" {
			change("b", "old\n")
			continue
		}
		r := run(step.tool, step.args)
		if step.refused == "" && r.IsError ||
			step.refused != "" && !strings.Contains(r.Text(), step.refused) {
			t.Errorf("%s, %s: %q, want %q", step.what, step.tool, r.Text(), step.refused)
		}
	}
	for name, want := range map[string]string{"a": "new\n", "moved": "x\n", "d/e": "new\n"} {
		if got := read(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
