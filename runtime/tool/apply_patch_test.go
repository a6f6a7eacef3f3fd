package tool

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// add, del, move and modify are operations of a patch.
func add(name string) string { return "*** Add File: " + name + "\n+x\n" }

func del(name string) string { return "*** Delete File: " + name + "\n" }

func move(from, to string) string {
	return "*** Update File: " + from + "\n*** Move to: " + to + "\n"
}

func modify(name string) string {
	return "*** Update File: " + name + "\n@@\n one\n-two\n+TWO\n"
}

// patch puts body between the markers.
func patch(body string) args {
	return args{"patch": "*** Begin Patch\n" + body + "*** End Patch\n"}
}

// with returns files with changes: a value of "" removes a file.
func with(files, changes map[string]string) map[string]string {
	files = maps.Clone(files)
	for name, content := range changes {
		files[name] = content
		if content == "" {
			delete(files, name)
		}
	}
	return files
}

var patchFiles = map[string]string{
	"a.txt": "one\ntwo\nthree\n", "src/b.go": "package b\n\nfunc F() int {\n\treturn 1\n}\n",
	"crlf.txt": "one\r\ntwo\r\n",
	"link":     "-> a.txt", "dirlink": "-> src", "abs": "-> /work/src", "out": "-> /etc",
	"updir": "-> ../etc", "outfile": "-> /etc/passwd",
	"dangling": "-> new/file.txt", "loop": "-> loop", "src/up": "-> ../a.txt",
	"src/deep": "-> ../../etc/passwd", "chain": "-> out", "/etc/passwd": "root", "/worker/x": "x",
}

// set returns a map from pairs of a name and its content.
func set(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func TestApplyPatch(t *testing.T) {
	modified := "one\nTWO\nthree\n"
	for _, tt := range []struct {
		name, patch, text string
		changes           map[string]string
	}{
		{"add", add("n.txt"), "A n.txt\n", set("n.txt", "x\n")},
		{"add with parents", add("n/m/o.txt"), "A n/m/o.txt\n", set("n/m/o.txt", "x\n")},
		{"add overwrites", add("a.txt"), "M a.txt\n", set("a.txt", "x\n")},
		{"delete", del("a.txt"), "D a.txt\n", set("a.txt", "")},
		{"update", modify("a.txt"), "M a.txt\n", set("a.txt", modified)},
		{"update with crlf", modify("crlf.txt"), "M crlf.txt\n", set("crlf.txt", "one\r\nTWO\r\n")},
		{"unclean name", modify("./src/../a.txt"), "M a.txt\n", set("a.txt", modified)},
		{"absolute name", modify("/work/a.txt"), "M a.txt\n", set("a.txt", modified)},
		{"absolute name by a detour", modify("/etc/../work//a.txt"), "M a.txt\n", set("a.txt", modified)},
		{"through a link", modify("link"), "M link\n", set("a.txt", modified)},
		{"through a link upward within the root", modify("src/up"), "M src/up\n", set("a.txt", modified)},
		{
			"through a link to a directory", add("dirlink/n.txt"), "A dirlink/n.txt\n",
			set("src/n.txt", "x\n"),
		},
		{
			"through an absolute link into the root", add("abs/n.txt"), "A abs/n.txt\n",
			set("src/n.txt", "x\n"),
		},
		{"through a dangling link", add("dangling"), "A dangling\n", set("new/file.txt", "x\n")},
		{"delete a link", del("link"), "D link\n", set("link", "")},
		{"delete a link that leads out", del("out"), "D out\n", set("out", "")},
		{
			"rename", move("a.txt", "n/b.txt") + "@@\n-two\n+TWO\n", "A n/b.txt\nD a.txt\n",
			set("a.txt", "", "n/b.txt", modified),
		},
		{
			"rename without a change", move("a.txt", "b.txt"), "A b.txt\nD a.txt\n",
			set("a.txt", "", "b.txt", patchFiles["a.txt"]),
		},
		{
			"rename overwrites", move("a.txt", "crlf.txt"), "M crlf.txt\nD a.txt\n",
			set("a.txt", "", "crlf.txt", patchFiles["a.txt"]),
		},
		{
			"rename to the same name", move("a.txt", "./a.txt") + "@@\n-two\n+TWO\n", "M a.txt\n",
			set("a.txt", modified),
		},
		{
			"rename to a link to itself", move("a.txt", "link") + "@@\n-two\n+TWO\n", "M a.txt\n",
			set("a.txt", modified),
		},
		{
			"rename of a link to its target", move("link", "a.txt") + "@@\n-two\n+TWO\n", "M link\n",
			set("a.txt", modified),
		},
		{
			"several files", add("n.txt") + modify("a.txt") + del("crlf.txt"),
			"A n.txt\nM a.txt\nD crlf.txt\n", set("n.txt", "x\n", "a.txt", modified, "crlf.txt", ""),
		},
		{
			"one file twice", modify("a.txt") + "*** Update File: a.txt\n@@\n-three\n+3\n", "M a.txt\n",
			set("a.txt", "one\nTWO\n3\n"),
		},
		{
			"add, then update", "*** Add File: n.txt\n+one\n+two\n" + modify("n.txt"), "A n.txt\n",
			set("n.txt", "one\nTWO\n"),
		},
		{"update, then delete", modify("a.txt") + del("a.txt"), "D a.txt\n", set("a.txt", "")},
		{
			"add, then delete", "*** Add File: n.txt\n+x\n*** Delete File: n.txt\n",
			"[the patch changes nothing]\n", nil,
		},
		{
			"nothing changes", "*** Update File: a.txt\n@@\n one\n",
			"[a.txt: the patch changes nothing in it]\n", nil,
		},
		{
			"an inexact match is reported", "*** Update File: src/b.go\n@@\n return 1\n+// end\n",
			"M src/b.go\n[src/b.go, chunk 1: matched at line 4 only ignoring leading and trailing white " +
				"space; unchanged lines were kept as they are, and new ones are indented as in the file]\n",
			map[string]string{"src/b.go": "package b\n\nfunc F() int {\n\treturn 1\n\t// end\n}\n"},
		},
		{
			"lines for the end below a hint are reported", "*** Update File: a.txt\n@@ one\n+x\n",
			"M a.txt\n[a.txt, chunk 1: it has no old lines, so its lines were added at the end of the " +
				"file, not below the @@ line]\n",
			set("a.txt", "one\ntwo\nthree\nx\n"),
		},
		{"strange name", add("a b\tc.txt"), "A \"a b\\tc.txt\"\n", set("a b\tc.txt", "x\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(patchFiles)
			o := use(t, m, "apply_patch", patch(tt.patch))
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if diff := cmp.Diff(tt.text, o.Result.Text()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(with(patchFiles, tt.changes), m.files()); diff != "" {
				t.Error(diff)
			}
			var lines string
			for _, c := range o.Changes {
				lines += map[event.ChangeKind]string{
					event.FileCreated: "A ", event.FileModified: "M ", event.FileDeleted: "D ",
				}[c.Kind] + shown(c.Path) + "\n"
			}
			if want, _, _ := strings.Cut(tt.text, "["); lines != want {
				t.Errorf("the changes are\n%s", lines)
			}
		})
	}
}

func TestApplyPatchErrors(t *testing.T) {
	outside := "leads out of the working directory /work"
	for _, tt := range []struct {
		name, patch string
		kind        ErrorKind
		want        string
	}{
		{"not a patch", "x\n", KindValidation, "parse the patch: line 2 of the patch:"},
		{
			"update of a missing file", "*** Update File: n.txt\n@@\n-x\n", KindNotFound,
			"update n.txt: n.txt does not exist\nNothing was changed.\n",
		},
		{"update of a directory", "*** Update File: src\n@@\n-x\n", KindOther, "src is a directory"},
		{
			"update that does not match", "*** Update File: a.txt\n@@\n-x\n", KindEditConflict,
			"update a.txt: chunk 1 (line 3 of the patch): these lines are not in the file",
		},
		{"delete of a missing file", del("n.txt"), KindNotFound, "n.txt does not exist"},
		{
			"delete of a directory", del("src"), KindOther, "src is a directory; a patch deletes only files",
		},
		{"add over a directory", add("src"), KindOther, "src is a directory"},
		{"add below a file", add("a.txt/n.txt"), KindOther, "a.txt is not a directory"},
		{"rename to a directory", move("a.txt", "src"), KindOther, "src is a directory"},
		{"the root itself", add("."), KindOther, "is the working directory"},
		{"the root itself by its name", del("/work"), KindOther, "is the working directory"},
		{"upward", add("../n.txt"), KindPermission, outside},
		{"only upward", add(".."), KindPermission, outside},
		{"upward from below", add("src/../../n.txt"), KindPermission, outside},
		{"absolute", add("/etc/n.txt"), KindPermission, outside},
		{"absolute and upward", add("/work/../etc/n.txt"), KindPermission, outside},
		{"a directory whose name begins like the root", add("/worker/x"), KindPermission, outside},
		{"delete outside", del("/etc/passwd"), KindPermission, outside},
		{"update outside", "*** Update File: ../etc/passwd\n@@\n-root\n", KindPermission, outside},
		{"rename to outside", move("a.txt", "../n.txt"), KindPermission, outside},
		{
			"first names, then changes", add("n.txt") + add("../n.txt"), KindPermission,
			"nothing was changed: ../n.txt " + outside,
		},
		{"nul", add("a\x00b"), KindValidation, "is not a file name"},
		{"through a link to outside", add("out/n.txt"), KindPermission, outside},
		{"through a relative link to outside", add("updir/n.txt"), KindPermission, outside},
		{"through a link to a link to outside", add("chain/n.txt"), KindPermission, outside},
		{"through a link to a file outside", add("outfile"), KindPermission, outside},
		{
			"update through a link to outside", "*** Update File: outfile\n@@\n-root\n", KindPermission,
			outside,
		},
		{
			"update through a relative link to outside", "*** Update File: src/deep\n@@\n-root\n",
			KindPermission, outside,
		},
		{"delete through a link to outside", del("out/passwd"), KindPermission, outside},
		{"rename to a link to outside", move("a.txt", "outfile"), KindPermission, outside},
		{"loop of links", add("loop"), KindOther, "too many symlinks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(patchFiles)
			o := use(t, m, "apply_patch", patch(tt.patch))
			if kind(o) != tt.kind || !strings.Contains(o.Result.Text(), tt.want) {
				t.Errorf("%s: %s\nwant %s: %s", kind(o), o.Result.Text(), tt.kind, tt.want)
			}
			diff := cmp.Diff(patchFiles, m.files())
			if diff != "" || len(m.calls) > 0 || len(o.Changes) > 0 {
				t.Errorf("calls %v, changes %v\n%s", m.calls, o.Changes, diff)
			}
		})
	}
}

func TestApplyPatchPartialFailure(t *testing.T) {
	m := newMemory(patchFiles)
	o := use(t, m, "apply_patch", patch(add("n.txt")+del("crlf.txt")+
		"*** Update File: a.txt\n@@\n-nothing\n+x\n"+del("src/b.go")))
	want := "the patch was not applied completely: update a.txt: chunk 1 (line 6 of the patch): " +
		"these lines are not in the file:" + `
  "nothing"
Applied before that, and not undone:
A n.txt
D crlf.txt
Not applied:
update a.txt
delete src/b.go
`
	checkText(t, o, KindEditConflict, want)
	after := with(patchFiles, set("n.txt", "x\n", "crlf.txt", ""))
	if diff := cmp.Diff(after, m.files()); diff != "" {
		t.Error(diff)
	}
	changes := []event.FileChange{
		{Path: "n.txt", Kind: event.FileCreated}, {Path: "crlf.txt", Kind: event.FileDeleted},
	}
	if diff := cmp.Diff(changes, o.Changes); diff != "" {
		t.Error(diff)
	}
}

func TestApplyPatchHalfARename(t *testing.T) {
	m := newMemory(patchFiles)
	m.fail = map[string]error{"remove a.txt": fs.ErrPermission}
	o := use(t, m, "apply_patch", patch(move("a.txt", "b.txt")))
	for _, want := range []string{"b.txt was written, but the old file could not be removed: no " +
		"permission", "not undone:\nA b.txt\n"} {
		check(t, o, KindPermission, want)
	}
}

func TestApplyPatchEnvironmentError(t *testing.T) {
	m := newMemory(patchFiles)
	m.fail = map[string]error{"write a.txt": env.ErrGone}
	o := use(t, m, "apply_patch", patch(modify("a.txt")))
	check(t, o, KindEnvironment, "the environment no longer exists")
	if !errors.Is(o.Err, env.ErrGone) {
		t.Errorf("the cause is lost: %v", o.Err)
	}
}

func TestApplyPatchConcurrentChange(t *testing.T) {
	m := newMemory(patchFiles)
	e := &meddler{memory: m, name: "a.txt"}
	o := use(t, e, "apply_patch", patch("*** Update File: a.txt\n@@\n-two\n"))
	if kind(o) != KindEditConflict || string(m.nodes["/work/a.txt"].data) != "meddled" {
		t.Errorf("%s: %s", kind(o), o.Result.Text())
	}
}

func TestApplyPatchKeepsMode(t *testing.T) {
	m := newMemory(patchFiles)
	m.nodes["/work/a.txt"].mode = 0o755
	m.nodes["/work/crlf.txt"].mode = 0o600
	if o := use(t, m, "apply_patch", patch(modify("a.txt")+
		move("a.txt", "n.txt")+modify("crlf.txt"))); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := m.nodes["/work/n.txt"].mode; got != 0o755 {
		t.Errorf("the moved file has mode %v", got)
	}
	if got := m.nodes["/work/crlf.txt"].mode; got != 0o600 {
		t.Errorf("the changed file has mode %v", got)
	}
}

func TestApplyPatchAliases(t *testing.T) {
	for _, name := range []string{"patch", "input", "patchText"} {
		m := newMemory(patchFiles)
		o := use(t, m, "apply_patch", args{name: patch(del("a.txt"))["patch"]})
		if o.Err != nil || m.nodes["/work/a.txt"] != nil {
			t.Errorf("%s: %v", name, o.Err)
		}
	}
}

// Names that a system takes for one file although they differ are not guessed at.
func TestApplyPatchSpelling(t *testing.T) {
	for name, want := range map[string]struct {
		kind ErrorKind
		text string
	}{
		"A.TXT":     {KindNotFound, "another spelling"},
		"SRC/b.go":  {KindNotFound, "another spelling"},
		"OUT/n.txt": {KindPermission, "leads out of the working directory"},
	} {
		m := newMemory(patchFiles)
		o := use(t, folding{m}, "apply_patch", patch("*** Add File: "+name+"\n+x\n"))
		if kind(o) != want.kind || !strings.Contains(o.Result.Text(), want.text) || len(m.calls) > 0 {
			t.Errorf("%s: %s: %s", name, kind(o), o.Result.Text())
		}
	}
	// Renaming to another case of the same name would write the file and then remove it.
	m := newMemory(patchFiles)
	if o := use(t, folding{m}, "apply_patch",
		patch(move("a.txt", "A.txt"))); o.Err == nil || len(m.calls) > 0 {
		t.Errorf("%s, calls %v", o.Result.Text(), m.calls)
	}
}

func TestWindowsNames(t *testing.T) {
	r := root{dir: "C:/work", fold: true}
	for _, tt := range []struct{ name, want string }{
		{`src\a.txt`, "src/a.txt"},
		{`c:\WORK\a.txt`, "a.txt"},
		{`..\a.txt`, ""},
		{`src\..\..\a.txt`, ""},
		{`D:\a.txt`, ""},
		{`C:a.txt`, ""},
		{`a.txt:stream`, ""},
		{`\\server\share\a.txt`, ""},
	} {
		got, err := r.rel(tt.name)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

func FuzzApplyPatch(f *testing.F) {
	for _, body := range []string{
		"*** Add File: ../x\n+a\n", "*** Update File: a.txt\n*** Move to: out/x\n@@ one\n-two\n+2\n",
		del("link"),
		"*** Add File: dirlink/../../n\n+a\n", "*** Update File: updir/../etc/passwd\n@@\n-root\n",
		"*** Delete File: abs/b.go\n*** Add File: abs\n+x\n",
	} {
		f.Add("*** Begin Patch\n" + body + "*** End Patch\n")
	}
	r := registry(f, ApplyPatch())
	f.Fuzz(func(t *testing.T, text string) {
		m := newMemory(patchFiles)
		o := r.Run(t.Context(), Scope{Env: m}, call(t, "apply_patch", args{"patch": text}))
		if kind(o) == KindPanic {
			t.Fatal(o.Err)
		}
		for _, call := range m.calls {
			if _, name, _ := strings.Cut(call, " "); !strings.HasPrefix(name, "/work/") {
				t.Fatalf("%s\n%q", call, text)
			}
		}
		if string(m.nodes["/etc/passwd"].data) != "root" || string(m.nodes["/worker/x"].data) != "x" {
			t.Fatalf("a file outside was changed by %q", text)
		}
	})
}
