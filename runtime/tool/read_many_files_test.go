package tool

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

func TestReadManyFiles(t *testing.T) {
	m := newMemory(map[string]string{
		"a.txt": "one\ntwo\n", "src/b.go": "package b", "src/c.go": "\uFEFFpackage c\r\n",
		"src/d/e.go": "package e\n", "empty": "", "d/": "",
		"elf": "\x7fELF\x02\x01\x01\x00\x00", "img": "GIF89a\x00", "big": strings.Repeat("x",
			maxManyFile+1), "long.log": numbered(2500),
		"secret": "x", "odd\nname": "x\n",
	})
	m.fail = map[string]error{"open secret": fs.ErrPermission}
	checkCalls(t, ReadManyFiles(), m, []callCase{
		{
			"names", `{"paths": ["src/b.go", "a.txt"]}`, "",
			"=== src/b.go ===\n1 | package b\n\n=== a.txt ===\n1 | one\n2 | two\n\n",
		},
		{
			"each once", `{"paths": ["a.txt", "./a.txt", "/work/../work/a.txt", "a.txt"]}`, "",
			"=== a.txt ===\n1 | one\n2 | two\n\n=== /work/../work/a.txt ===\n1 | one\n2 | two\n\n",
		},
		{
			"pattern", `{"patterns": ["src/*.go"]}`, "",
			"=== src/b.go ===\n1 | package b\n\n=== src/c.go ===\n1 | package c\n[lines end with " +
				"CRLF]\n[the file starts with a byte order mark]\n\n",
		},
		{
			"another name of the parameter", `{"include": ["src/d/*"]}`, "",
			"=== src/d/e.go ===\n1 | package e\n\n",
		},
		{
			"names and patterns", `{"paths": ["src/d/e.go"], "patterns": ["**/e.go", "*.md"]}`, "",
			"=== src/d/e.go ===\n1 | package e\n\n[no files match *.md]\n",
		},
		{
			"not text", `{"paths": ["elf", "img", "empty"]}`, "",
			"=== elf ===\n[a binary file: an ELF program or library, 9 bytes]\n\n=== img ===\n[an image: " +
				"image/gif, 7 bytes; read_file shows it]\n\n=== empty ===\n[empty]\n\n",
		},
		{
			"some are missing", `{"paths": ["nope", "a.txt", "d", "secret"]}`, "",
			"=== nope ===\n[not read: nope does not exist]\n\n=== a.txt ===\n1 | one\n2 | two\n\n=== d " +
				"===\n[not read: d is a directory]\n\n=== secret ===\n[not read: no permission: open secret: " +
				"permission denied]\n\n",
		},
		{
			"all are missing", `{"paths": ["nope", "no"]}`, KindNotFound,
			"=== nope ===\n[not read: nope does not exist]\n\n=== no ===\n[not read: no does not " +
				"exist]\n\nnone of the files could be read",
		},
		{"a name with a line break", `{"paths": ["odd\nname"]}`, "", "=== \"odd\\nname\" ===\n1 | x\n\n"},
		{"nothing", `{}`, KindValidation, "paths and patterns are both missing; name the files to read"},
		{"nothing matches", `{"patterns": ["*.md"]}`, "", "[no files match *.md]\n"},
		{
			"bad pattern", `{"patterns": ["["]}`, KindValidation,
			`the pattern is malformed: glob "[": syntax error in pattern`,
		},
	})
	t.Run("limits", func(t *testing.T) {
		text := use(t, m, "read_many_files", `{"paths": ["big", "long.log"]}`).Result.Text()
		for _, want := range []string{
			"=== big ===\n[too large to be shown with others",
			"\n2000 | 2000\n[lines 1 to 2000 of 2500; go on with offset 2001]\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in %.300q", want, text)
			}
		}
	})
}

// multiReader records the calls of ReadFiles.
type multiReader struct {
	*memory
	calls [][]string
}

func (e *multiReader) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	e.calls = append(e.calls, names)
	return env.ReadFiles(ctx, e.memory, names, limit)
}

// All files are read with one call, and no more of them than the limit.
func TestReadManyFilesAtOnce(t *testing.T) {
	files := map[string]string{"first": "x"}
	for i := range maxManyFiles + 20 {
		files[fmt.Sprintf("many/%03d", i)] = "text\n"
	}
	e := &multiReader{memory: newMemory(files)}
	text := use(t, e, "read_many_files", args{
		"paths": []string{"first"}, "patterns": []string{"many/*"},
	}).Result.Text()
	if len(e.calls) != 1 || len(e.calls[0]) != maxManyFiles || e.calls[0][0] != "first" {
		t.Errorf("%d calls: %.300v", len(e.calls), e.calls)
	}
	want := "[21 more files match many/*; give a narrower pattern or their names]\n"
	if !strings.HasSuffix(text, want) {
		t.Errorf("got … %q, want %q", text[len(text)-100:], want)
	}
}

// The output of all files together is bounded; the files after it are named.
func TestReadManyFilesTogether(t *testing.T) {
	files := map[string]string{}
	names := make([]string, 0, 8)
	for i := range 8 {
		name := fmt.Sprint("f", i)
		files[name] = strings.Repeat(strings.Repeat("x", 999)+"\n", 1000)
		names = append(names, name)
	}
	o := useIn(t, Scope{
		Env: newMemory(files), Spool: dirSpool{dir: t.TempDir()},
	}, "read_many_files", args{"paths": names})
	if o.Output.Size > maxReadBytes+2*maxManyFile || !strings.HasSuffix(o.Result.Text(),
		"=== f7 ===\n[not shown: the files above are long enough; read it in another call]\n\n") {
		t.Errorf("%d bytes, … %q", o.Output.Size, o.Result.Text()[len(o.Result.Text())-200:])
	}
}
