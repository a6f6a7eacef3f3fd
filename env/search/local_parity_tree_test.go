//go:build unix

package search_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// nastyLines are what the files in a folder of nasty names have.
var nastyLines = []string{
	"func main() { return nil }",
	"FUNC Main() { RETURN Nil }",
	"",
	"  leading and trailing spaces  ",
	"\ttab\tseparated\t",
	"Größe, Straße, ÉCOLE, école, œuvre, Ωmega, ωmega",
	"kelvin K k K, long s ſ s S, dotless ı i I İ",
	"日本語のテキスト and русский текст",
	"emoji 😀👍 and combining e\u0301",
	"a.b a+b a*b a(b) a[b] a{2} a\\b a^b a$b a|b a?b",
	"foo_bar fooBar foo-bar foo.bar FOO_BAR 42 3.14 0xDEADBEEF 1e10",
	"TODO(user): fix this; FIXME later",
	"http://example.com/path?query=value&other=1#fragment",
	"error: something failed with ErrNotExist or ErrPermission",
	"if err != nil { return fmt.Errorf(\"%w: %s\", err, name) }",
	"a lone carriage\rreturn, a vertical\vtab, a form\ffeed",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
	"abcabcabcabc xyzzy",
	"# comment",
	"// comment",
	"/* comment */",
	"'single' \"double\" `back`",
	"user@example.com, first.last+tag@sub.example.co.uk",
	"2024-01-31T12:34:56Z 10.0.0.1 fe80::1",
	"the end",
}

// nastyInvalid are lines with bytes that are not UTF-8.
var nastyInvalid = []string{
	"a\xffb", "\xc3", "caf\xe9 au lait", "err\xff\xfeerr",
	"\xed\xa0\x80 surrogate", "replacement \ufffd character", "cut \xf0\x9f\x98",
}

// nastyTexts are files by their names. A line ending that is there becomes another in some of them.
func nastyTexts() map[string]string {
	text := strings.Join(nastyLines, "\n") + "\n"
	crlf := strings.ReplaceAll(text, "\n", "\r\n")
	long, longer := strings.Repeat("0123456789 lorem ipsum ",
		300<<10/23), strings.Repeat("lorem ipsum ", 1<<20/12)
	texts := map[string]string{
		"empty": "", "one newline": "\n", "newlines": "\n\n\n",
		"no newline at the end": strings.TrimSuffix(text, "\n"), "one byte": "a",
		"crlf": crlf, "crlf without the last": strings.TrimSuffix(crlf, "\r\n"), "mixed endings": text +
			crlf + text, "ends in cr": "nil\r\nnil\r",
		"cr cr lf": "nil\r\r\nend\r\r\n", "only cr": strings.ReplaceAll(text, "\n",
			"\r"), "bom": "\xef\xbb\xbf" + text, "bom crlf": "\xef\xbb\xbf" + crlf,
		"two boms": "\xef\xbb\xbf\xef\xbb\xbf" + text, "only bom": "\xef\xbb\xbf", "late bom": text +
			"\xef\xbb\xbf" + text,
		"invalid": strings.Join(nastyInvalid, "\n") + "\n" +
			text, "invalid crlf": strings.Join(nastyInvalid,
			"\r\n"), "latin1": "Gr\xf6\xdfe\nfunc na\xefve() {\n",
		"nul first": "\x00" + text, "nul early": text + "\x00" + text, "nul late": strings.Repeat(text,
			12) + "\x00\n" + text,
		"nul at the edge":     strings.Repeat("a", 8<<10-1) + "\x00\nnil\n",
		"nul behind the edge": strings.Repeat("a", 8<<10) + "\x00\nnil\n",
		"long line": "before\n" + long + "nil\n" + longer +
			" the end\nafter nil\n", "long line at the end": text + long, "long line crlf": text + long +
			"\r\ntail\r\n",
		"many lines": strings.Repeat(text, 300), "many short lines": strings.Repeat("a\nb\n\n", 1000),
		"ends at a buffer": strings.Repeat("x", 64<<10-1) + "\n" +
			"nil\n", "ends at another": strings.Repeat(strings.Repeat("n", 127)+"\n", 2<<10+1),
		"-e": text, "--help": text, "-": text, "star*": text, "question?": text, "[class]": text,
		"{a,b}": text, `back\slash`: text, "new\nline": text,
		"tab\t": text, "quote'": text, `quote"`: text, "$dollar": text, "~": text, "!bang": text,
		"#hash": text, " space ": text, "semi;colon & and": text,
		"na\xefve": text, "\xff\xfe": text, "größe": text, "gro\u0308\u00dfe": text, "日本語": text,
		strings.Repeat("n", 255): text, strings.Repeat("é", 127): text,
		".hidden": text, ".hidden.d/.x/y": text, "main.go": text, "main_test.go": text, "style.css": text,
		"README.md": text, "data.json": text, "run.sh": text,
		"page.html": text, "config.yaml": text, "Makefile": text, "lib.c": text, "lib.h": text,
		"script.py": text, "note.txt": text, "UPPER.GO": text,
		"sub/main.go": text, "sub/deeper/main.go": text, "sub/deeper/x.txt": text, strings.Repeat("deep/",
			100) + "file.go": text,
		strings.Repeat(strings.Repeat("d", 200)+"/", 8) + "file.go": text, ".ignore": "main.go\n",
		"sub/.ignore": "*\n",
	}
	for name, content := range nastyIgnored(text) {
		texts[name] = content
	}
	return texts
}

// nastyIgnored are ignore files, and what they speak about.
func nastyIgnored(text string) map[string]string {
	return map[string]string{
		".gitignore": "*.log\n!keep.log\n/build/\n/only-here\nanchored/here\n**/cache/\nspace\\ \n\\#odd\n\\!odd\n*.tmp\n[0-9].num\nq?.x\nfoo/**/bar\nabc/**\n",
		"a.log":      text, "keep.log": text, "build/x.go": text, "sub/build/x.go": text,
		"only-here": text, "sub/only-here": text, "anchored/here": text,
		"sub/anchored/here": text, "x/y/cache/z": text, "cache": text, "space ": text, "#odd": text,
		"!odd": text, "1.num": text, "a.num": text, "qq.x": text,
		"foo/bar": text, "foo/x/y/bar": text, "abc/x": text, "abc/y/z": text,
		"tmp/.gitignore": "!*.tmp\n/keep.log\n", "tmp/a.tmp": text, "tmp/keep.log": text,
		"tmp/in/a.tmp": text, "tmp/in/keep.log": text, "all/.gitignore": "*\n!*.go\n!*/\n!.gitignore\n",
		"all/a.go": text, "all/a.c": text, "all/in/b.go": text,
		"all/in/b.c": text, "ignore crlf/.gitignore": "*.x\r\n!y.x\r\n", "ignore crlf/a.x": text,
		"ignore crlf/y.x":   text,
		".git/info/exclude": "excluded\n", "excluded": text, "sub/excluded": text,
		"nested/.git/HEAD": "ref: refs/heads/main\n", "nested/a.log": text,
		"nested/excluded": text, "nested/.gitignore": "b.log\n", "nested/b.log": text,
		".git/HEAD": "ref: refs/heads/main\n", ".git/config": text,
	}
}

// nasty makes a folder with nasty names and content. Texts are passed through a function first.
func nasty(t *testing.T, root string, as func(string) string) {
	t.Helper()
	for name, content := range nastyTexts() {
		nastyFile(t, root, name, as(content))
	}
	for name, order := range map[string]binary.AppendByteOrder{
		"utf-16le": binary.LittleEndian,
		"utf-16be": binary.BigEndian,
	} {
		mark := order.AppendUint16(nil, 0xfeff)
		text := strings.Join(nastyLines, "\n") + "\n"
		for suffix, text := range map[string]string{"": text, " crlf": strings.ReplaceAll(text, "\n",
			"\r\n"), " long": strings.Repeat(text, 30), " empty": ""} {
			content := mark
			for _, unit := range utf16.Encode([]rune(as(text))) {
				content = order.AppendUint16(content, unit)
			}
			nastyFile(t, root, name+suffix, string(content))
		}
		nastyFile(t, root, name+" broken", string(order.AppendUint16(order.AppendUint16(order.AppendUint16(mark, 'a'), 0xd800), 'b'))+"x")
	}
	for i := range 50 {
		nastyFile(t, root, fmt.Sprintf("many/%d/file %d", i%7, i), as(nastyLines[i%len(nastyLines)]))
	}
	for name, to := range map[string]string{
		"link": "main.go", "link to folder": "sub", "sub/link up": "..", "link nowhere": "missing",
		"link to itself": "link to itself", "link out": "/etc/passwd",
		"link 1": "link 2", "link 2": "link 1",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"no files", "no files/no files", ".no files"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	fifo(t, filepath.Join(root, "fifo"))
	fifo(t, filepath.Join(root, "sub", "fifo.go"))
}

func nastyFile(t *testing.T, root, name, content string) {
	t.Helper()
	full := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, name string) {
	t.Helper()
	if err := unix.Mkfifo(name, 0o666); err != nil {
		t.Fatal(err)
	}
}
