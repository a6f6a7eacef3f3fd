package tool

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

func TestReadFile(t *testing.T) {
	long := strings.Repeat("é", maxReadLine)
	m := newMemory(map[string]string{
		"a.txt": "one\ntwo\nthree\n", "noend": "one\ntwo", "empty": "", "crlf": "one\r\ntwo\r\n",
		"bom": "\uFEFFone\n",
		"big": numbered(5000), "long": long + "\nnext\n", "latin": "caf\xe9\n", "link": "-> a.txt",
		"d/": "", "elf": "\x7fELF\x02\x01\x01\x00\x00", "zip": "PK\x03\x04\x00", "odd": "a\x00b",
		"utf16": "\xff\xfea\x00", "lines": "\n\n\n", "esc": "\x1b[31mred\n",
	})
	checkCalls(t, ReadFile(), m, []callCase{
		{"whole", `{"file_path": "a.txt"}`, "", "1 | one\n2 | two\n3 | three\n"},
		{"absolute", `{"file_path": "/work/a.txt"}`, "", "1 | one\n2 | two\n3 | three\n"},
		{"link", `{"file_path": "link"}`, "", "1 | one\n2 | two\n3 | three\n"},
		{"no last newline", `{"file_path": "noend"}`, "", "1 | one\n2 | two\n"},
		{"only newlines", `{"file_path": "lines"}`, "", "1 | \n2 | \n3 | \n"},
		{
			"offset", `{"file_path": "a.txt", "offset": 2}`, "",
			"2 | two\n3 | three\n[lines 2 to 3, the end of the file]\n",
		},
		{
			"limit", `{"file_path": "a.txt", "limit": 2}`, "",
			"1 | one\n2 | two\n[lines 1 to 2 of 3; go on with offset 3]\n",
		},
		{"limit to the end", `{"file_path": "a.txt", "limit": 3}`, "", "1 | one\n2 | two\n3 | three\n"},
		{
			"offset and limit", `{"file_path": "a.txt", "offset": 2, "limit": 1}`, "",
			"2 | two\n[lines 2 to 2 of 3; go on with offset 3]\n",
		},
		{
			"huge limit", `{"file_path": "a.txt", "offset": 3, "limit": 9007199254740992}`, "",
			"3 | three\n[lines 3 to 3, the end of the file]\n",
		},
		{
			"beyond the end", `{"file_path": "a.txt", "offset": 4}`, KindValidation,
			"offset 4 is beyond the end of a.txt, which has 3 lines",
		},
		{"empty", `{"file_path": "empty"}`, "", "[empty is empty]"},
		{"crlf", `{"file_path": "crlf"}`, "", "1 | one\n2 | two\n[lines end with CRLF]\n"},
		{
			"byte order mark", `{"file_path": "bom"}`, "",
			"1 | one\n[the file starts with a byte order mark]\n",
		},
		{"not UTF-8", `{"file_path": "latin"}`, "", "1 | caf\uFFFD\n"},
		{"escapes stay", `{"file_path": "esc"}`, "", "1 | \x1b[31mred\n"},
		{"missing", `{"file_path": "nope"}`, KindNotFound, "nope does not exist"},
		{
			"directory", `{"file_path": "d"}`, KindOther,
			"d is a directory; use list_dir to list it: open d: is a directory",
		},
		{
			"ELF", `{"file_path": "elf"}`, KindOther,
			"elf is a binary file (an ELF program or library, 9 bytes); it cannot be shown as text",
		},
		{
			"zip", `{"file_path": "zip"}`, KindOther,
			"zip is a binary file (a zip archive or a document in zip format, 5 bytes); it cannot be " +
				"shown as text",
		},
		{
			"unknown binary", `{"file_path": "odd"}`, KindOther,
			"odd is a binary file (type unknown, 3 bytes); it cannot be shown as text",
		},
		{
			"UTF-16", `{"file_path": "utf16"}`, KindOther,
			"utf16 is a binary file (possibly text in UTF-16, 4 bytes); it cannot be shown as text",
		},
		{
			"offset zero", `{"file_path": "a.txt", "offset": 0}`, KindValidation,
			"the arguments do not fit read_file:\n- offset: minimum: got 0, want 1",
		},
		{
			"no outputs", `{"file_path": "output://x"}`, KindNotFound,
			"open output://x: this session keeps no outputs",
		},
	})
	t.Run("2000 lines", func(t *testing.T) {
		text := use(t, m, "read_file", `{"file_path": "big"}`).Result.Text()
		if !strings.HasPrefix(text, "1 | 1\n2 | 2\n") ||
			!strings.HasSuffix(text, "2000 | 2000\n[lines 1 to 2000 of 5000; go on with offset 2001]\n") {
			t.Errorf("got %.100q … %q", text, text[len(text)-100:])
		}
	})
	t.Run("long line", func(t *testing.T) {
		o := use(t, m, "read_file", `{"file_path": "long"}`)
		all := string(o.Output.Inline)
		if want := fmt.Sprintf("é [line cut: it has %d bytes]\n2 | next\n",
			len(long)+1); !utf8.ValidString(all) || !strings.HasSuffix(all, want) {
			t.Errorf("got … %q, want %q", all[len(all)-100:], want)
		}
	})
}

// A file of any size is read in bounded memory, and the output is bounded, too.
func TestReadFileHuge(t *testing.T) {
	m := newMemory(map[string]string{"huge": strings.Repeat(strings.Repeat("x", 9999)+"\n", 5000)})
	s := Scope{Env: m, Spool: dirSpool{dir: t.TempDir()}}
	o := useIn(t, s, "read_file", `{"file_path": "huge"}`)
	if o.Output.Size > maxReadBytes+1<<16 || !strings.HasSuffix(o.Result.Text(),
		"[lines 1 to 420 of more than 2098; go on with offset 421]\n") {
		t.Errorf("%d bytes, … %q", o.Output.Size, o.Result.Text()[len(o.Result.Text())-200:])
	}
}

func TestReadFileImages(t *testing.T) {
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA" +
		"DUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(map[string]string{
		"p.txt": string(png), "j": "\xff\xd8\xff\xe0rest", "g": "GIF89a\x00",
		"w": "RIFF\x00\x00\x00\x00WEBPVP8 ", "big.png": string(png) + strings.Repeat("x", maxImage),
		"wav": "RIFF\x00\x00\x00\x00WAVE",
	})
	for name, mime := range map[string]string{
		"p.txt": "image/png", "j": "image/jpeg", "g": "image/gif", "w": "image/webp",
	} {
		o := use(t, m, "read_file", args{"file_path": name})
		if len(o.Result.Parts) != 2 || o.Result.Parts[1].Image == nil ||
			o.Result.Parts[1].Image.MIME != mime ||
			!bytes.Equal(o.Result.Parts[1].Image.Data, m.nodes["/work/"+name].data) {
			t.Errorf("%s: %v", name, o.Result)
		}
	}
	check(t, use(t, m, "read_file", `{"file_path": "big.png"}`), KindOther, "too large to show")
	if o := use(t, m, "read_file", `{"file_path": "wav"}`); kind(o) != KindOther {
		t.Errorf("%s", o.Result.Text())
	}
}

// outputsOf makes the Outputs of a session.
func outputsOf(outputs map[string]string) func(string) (io.ReadCloser, error) {
	return func(id string) (io.ReadCloser, error) {
		text, ok := outputs[id]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

func TestOutputScheme_C1(t *testing.T) {
	s := Scope{Env: newMemory(nil), Outputs: outputsOf(map[string]string{
		"c/1": "\x1b[1mone\x1b[0m\r\ntwo\x00\n" + numbered(3000) + "1%\r2%\n",
	})}
	for _, tt := range []struct {
		tool string
		args args
		kind ErrorKind
		want string
	}{
		{
			"read_file",
			args{"file_path": "output://c/1", "limit": 2},
			"", "1 | one\n2 | two␀\n[lines 1 to 2 of 3003; go on with offset 3]\n",
		},
		{
			"read_file",
			args{"file_path": "output://c/1", "offset": 3003},
			"", "3003 | 2%\n[lines 3003 to 3003, the end of the file]\n",
		},
		{
			"read_file",
			args{"file_path": "output://c/2"},
			KindNotFound,
			"open output://c/2: file does not exist (only the mark of a shortened output gives such a name)",
		},
		{"grep", args{"pattern": "^one$", "path": "output://c/1"}, "", "output://c/1:1:one\n"},
		{
			"grep",
			args{"pattern": "x", "path": "output://c/2"},
			KindNotFound,
			"open output://c/2: file does not exist (only the mark of a shortened output gives such a name)",
		},
	} {
		o := useIn(t, s, tt.tool, tt.args)
		if diff := cmp.Diff(tt.want, o.Result.Text()); diff != "" || kind(o) != tt.kind {
			t.Errorf("%s %v: %s\n%s", tt.tool, tt.args, kind(o), diff)
		}
	}
}

func TestWriteFile(t *testing.T) {
	m := newMemory(map[string]string{"a.txt": "old", "d/": ""})
	m.fail = map[string]error{"write full": env.ErrNoSpace, "write secret": fs.ErrPermission}
	for _, tt := range []struct {
		name, content string
		kind          ErrorKind
		want          string
		change        event.FileChange
	}{
		{"a.txt", "new\n", "", "overwrote a.txt: 4 bytes", event.FileChange{
			Path: "a.txt", Kind: event.FileModified,
		}},
		{"/work/n/b.txt", "é", "", "created /work/n/b.txt: 2 bytes", event.FileChange{
			Path: "n/b.txt", Kind: event.FileCreated,
		}},
		{"/tmp/c", "", "", "created /tmp/c: 0 bytes", event.FileChange{
			Path: "/tmp/c", Kind: event.FileCreated,
		}},
		{"d", "x", KindOther, "d is a directory", event.FileChange{}},
		{"full", "x", KindOther, "the disk is full: write full: no space left", event.FileChange{}},
		{
			"secret", "x", KindPermission, "no permission: write secret: permission denied",
			event.FileChange{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := use(t, m, "write_file", args{"file_path": tt.name, "content": tt.content})
			checkText(t, o, tt.kind, tt.want)
			if tt.kind != "" {
				return
			}
			if diff := cmp.Diff([]event.FileChange{tt.change}, o.Changes); diff != "" ||
				string(m.nodes[m.abs(tt.name)].data) != tt.content {
				t.Error(diff)
			}
		})
	}
}

func TestEditFile(t *testing.T) {
	for _, tt := range []struct {
		name, file, old, new string
		all                  bool
		kind                 ErrorKind
		want, text           string
	}{
		{"once", "a\nb\nc\n", "b", "B", false, "", "a\nB\nc\n", "made 1 replacement in f, at line 2"},
		{
			"several lines", "a\nb\nc\n", "b\nc\n", "", false, "", "a\n",
			"made 1 replacement in f, at line 2",
		},
		{"no newline is added", "a", "a", "b", false, "", "b", "made 1 replacement in f, at line 1"},
		{
			"everywhere", "a b a\na\n", "a", "x", true, "", "x b x\nx\n",
			"made 3 replacements in f, at lines 1, 1, 2",
		},
		{"everywhere, once", "a\n", "a", "x", true, "", "x\n", "made 1 replacement in f, at line 1"},
		{
			"crlf", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", false, "", "x\r\ny\r\nz\r\nc\r\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"crlf, one line becomes two", "a\r\nb\r\n", "b", "x\ny", false, "", "a\r\nx\r\ny\r\n",
			"made 1 replacement in f, at line 2",
		},
		{
			"crlf given", "a\r\nb\r\n", "a\r\nb", "x\r\ny", false, "", "x\r\ny\r\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"crlf, break first", "a\r\nb\r\n", "\nb", "", false, "", "a\r\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"crlf, another part", "a\nb\nc\r\nd\r\ne\r\n", "a\nb\n", "x\n", false, "", "x\nc\r\nd\r\ne\r\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"byte order mark", "\uFEFFa\n", "a", "b", false, "", "\uFEFFb\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"invalid bytes stay", "\xff a\n", "a", "b", false, "", "\xff b\n",
			"made 1 replacement in f, at line 1",
		},
		{
			"not unique", strings.Repeat("a\n", 12), "a", "b", false, KindEditConflict, "",
			"old_string occurs 12 times in f, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more; add " +
				"lines around it so that it occurs once, or set replace_all",
		},
		{
			"not found", "a\n", "x", "y", false, KindEditConflict, "",
			"old_string is not in f, and no line is similar to its first line; read the file again",
		},
		{
			"only the first line", "a\nb\n", "\na\nc\n", "y", false, KindEditConflict, "",
			"old_string is not in f. Its first line is at line 1, but the lines after it differ; " +
				"read them again",
		},
		{
			"the same", "a\n", "a", "a", false, KindValidation, "",
			"old_string and new_string are the same; nothing would change",
		},
		{
			"empty", "a\n", "", "b", false, KindValidation, "",
			"old_string is empty; write a whole file with write_file",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(map[string]string{"f": tt.file})
			o := use(t, m, "edit_file", args{
				"file_path": "f", "old_string": tt.old, "new_string": tt.new, "replace_all": tt.all,
			})
			checkText(t, o, tt.kind, tt.text)
			want, changes := tt.want, []event.FileChange{{Path: "f", Kind: event.FileModified}}
			if tt.kind != "" {
				want, changes = tt.file, nil
			}
			if diff := cmp.Diff(want, string(m.nodes["/work/f"].data)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(changes, o.Changes); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		o := use(t, newMemory(nil), "edit_file", `{"file_path": "f", "old_string": "a", `+
			`"new_string": "b"}`)
		if kind(o) != KindNotFound {
			t.Errorf("%s: %s", kind(o), o.Result.Text())
		}
	})
	t.Run("concurrent change", func(t *testing.T) {
		m := newMemory(map[string]string{"f": "a"})
		o := use(t, &meddler{memory: m, name: "f"}, "edit_file", `{"file_path": "f", "old_string": `+
			`"a", "new_string": "b"}`)
		if kind(o) != KindEditConflict || string(m.nodes["/work/f"].data) != "meddled" {
			t.Errorf("%s: %s", kind(o), o.Result.Text())
		}
	})
}
