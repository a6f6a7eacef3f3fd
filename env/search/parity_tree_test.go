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

// nastyLines are the lines of the files in the nasty tree.
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

// nastyTexts returns the content of files by their names.
func nastyTexts() map[string]string {
	text := strings.Join(nastyLines, "\n") + "\n"
	crlf := strings.ReplaceAll(text, "\n", "\r\n")
	invalid := strings.Join(nastyInvalid, "\n") + "\n"
	long := strings.Repeat("0123456789 lorem ipsum ", 300<<10/23)
	longer := strings.Repeat("lorem ipsum ", 1<<20/12)
	texts := map[string]string{
		"empty": "", "one newline": "\n", "newlines": "\n\n\n", "one byte": "a",
		"no newline at the end": strings.TrimSuffix(text, "\n"),
		"crlf":                  crlf,
		"crlf without the last": strings.TrimSuffix(crlf, "\r\n"),
		"mixed endings":         text + crlf + text,
		"ends in cr":            "nil\r\nnil\r",
		"cr cr lf":              "nil\r\r\nend\r\r\n",
		"only cr":               strings.ReplaceAll(text, "\n", "\r"),
		"bom":                   "\xef\xbb\xbf" + text,
		"two boms":              "\xef\xbb\xbf\xef\xbb\xbf" + text,
		"only bom":              "\xef\xbb\xbf",
		"late bom":              text + "\xef\xbb\xbf" + text,
		"invalid":               invalid + text,
		"invalid crlf":          strings.ReplaceAll(invalid, "\n", "\r\n"),
		"latin1":                "Gr\xf6\xdfe\nfunc na\xefve() {\n",
		"nul first":             "\x00" + text,
		"nul early":             text + "\x00" + text,
		"nul late":              strings.Repeat(text, 12) + "\x00\n" + text,
		"nul at the edge":       strings.Repeat("a", 8<<10-1) + "\x00\nnil\n",
		"nul after the edge":    strings.Repeat("a", 8<<10) + "\x00\nnil\n",
		"long line":             "before\n" + long + "nil\n" + longer + " the end\nafter nil\n",
		"long line at the end":  text + long,
		"long line crlf":        text + long + "\r\ntail\r\n",
		"many lines":            strings.Repeat(text, 300),
		"many short lines":      strings.Repeat("a\nb\n\n", 1000),
		"ends at a buffer":      strings.Repeat("x", 64<<10-1) + "\nnil\n",
		"ends at another":       strings.Repeat(strings.Repeat("n", 127)+"\n", 2<<10+1),
		".ignore":               "main.go\n",
		"sub/.ignore":           "*\n",
		".gitignore": "*.log\n!keep.log\n/build/\n/only-here\nanchored/here\n**/cache/\nspace\\ \n" +
			"\\#odd\n\\!odd\n*.tmp\n[0-9].num\nq?.x\nfoo/**/bar\nabc/**\n",
		"tmp/.gitignore":         "!*.tmp\n/keep.log\n",
		"all/.gitignore":         "*\n!*.go\n!*/\n!.gitignore\n",
		"ignore crlf/.gitignore": "*.x\r\n!y.x\r\n",
		"nested/.gitignore":      "b.log\n",
		".git/info/exclude":      "excluded\n",
		".git/HEAD":              "ref: refs/heads/main\n",
		"nested/.git/HEAD":       "ref: refs/heads/main\n",
	}
	for _, name := range []string{
		"-e", "--help", "-", "star*", "question?", "[class]", "{a,b}", `back\slash`, "new\nline",
		"tab\t", "quote'", `quote"`, "$dollar", "~", "!bang", "#hash", " space ", "semi;colon & and",
		"na\xefve", "\xff\xfe", "größe", "gro\u0308\u00dfe", strings.Repeat("é", 127),
		".hidden", ".hidden.d/.x/y", "main.go", "main_test.go", "style.css", "README.md", "data.json",
		"run.sh", "page.html", "config.yaml", "Makefile", "lib.c", "script.py", "note.txt", "UPPER.GO",
		"sub/main.go", "sub/deeper/main.go", "sub/deeper/x.txt", strings.Repeat("deep/", 100) + "file.go",
		strings.Repeat(strings.Repeat("d", 200)+"/", 8) + "file.go",
		// These are ignored, or nearly.
		"a.log", "keep.log", "build/x.go", "sub/build/x.go", "only-here", "sub/only-here",
		"anchored/here", "sub/anchored/here", "x/y/cache/z", "cache", "space ", "#odd", "!odd", "1.num",
		"a.num", "qq.x", "foo/bar", "foo/x/y/bar", "abc/x", "abc/y/z", "tmp/a.tmp", "tmp/keep.log",
		"tmp/in/a.tmp", "tmp/in/keep.log", "all/a.go", "all/a.c", "all/in/b.go", "all/in/b.c",
		"ignore crlf/a.x", "ignore crlf/y.x", "excluded", "sub/excluded", "nested/a.log",
		"nested/excluded", "nested/b.log", ".git/config",
	} {
		texts[name] = text
	}
	return texts
}

// nasty creates the nasty tree, with all texts passed through as.
func nasty(t *testing.T, root string, as func(string) string) {
	t.Helper()
	for name, content := range nastyTexts() {
		writeFile(t, root, name, as(content))
	}
	text := strings.Join(nastyLines, "\n") + "\n"
	for name, order := range map[string]binary.AppendByteOrder{
		"utf-16le": binary.LittleEndian, "utf-16be": binary.BigEndian,
	} {
		for suffix, text := range map[string]string{
			"": text, " crlf": strings.ReplaceAll(text, "\n", "\r\n"),
			" long": strings.Repeat(text, 30), " empty": "",
		} {
			writeFile(t, root, name+suffix, encode(order, utf16.Encode([]rune(as(text)))...))
		}
		writeFile(t, root, name+" broken", encode(order, 'a', 0xd800, 'b')+"x")
	}
	for i := range 50 {
		writeFile(t, root, fmt.Sprintf("many/%d/file %d", i%7, i), as(nastyLines[i%len(nastyLines)]))
	}
	for name, to := range map[string]string{
		"link": "main.go", "link to sub": "sub", "sub/link up": "..", "link nowhere": "missing",
		"link to itself": "link to itself", "link out": "/etc/passwd",
		"link 1": "link 2", "link 2": "link 1",
	} {
		symlink(t, to, filepath.Join(root, name))
	}
	for _, name := range []string{"no files/no files", ".no files"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	fifo(t, filepath.Join(root, "fifo"))
	fifo(t, filepath.Join(root, "sub", "fifo.go"))
}

// encode returns UTF-16 with a byte order mark.
func encode(order binary.AppendByteOrder, units ...uint16) string {
	content := order.AppendUint16(nil, 0xfeff)
	for _, unit := range units {
		content = order.AppendUint16(content, unit)
	}
	return string(content)
}

func fifo(t *testing.T, name string) {
	t.Helper()
	if err := unix.Mkfifo(name, 0o666); err != nil {
		t.Fatal(err)
	}
}
