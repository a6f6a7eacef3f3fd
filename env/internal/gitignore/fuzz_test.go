package gitignore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// FuzzAgainstGit compares with git on ignore files of any content at the top and in a directory,
// and names, one per line, of files that need not exist.
func FuzzAgainstGit(f *testing.F) {
	git, err := exec.LookPath("git")
	if err != nil {
		f.Skip("git is not installed: ", err)
	}
	if runtime.GOOS == "windows" {
		f.Skip("the names have bytes that Windows does not allow")
	}
	f.Add("*.log\n!keep.log\n/build/\n", "!a.log\n", "a.log\nkeep.log\nbuild/x\nd/a.log\nd/b.log")
	f.Add("a/**/b\n**/c\nd/**\n", "/e\n", "a/b\na/x/y/b\nx/c\nd/e\nd/f/e")
	f.Add("[[:alpha:]-z]\n[!a]\n[]a]\n\\ \n", "\xef\xbb\xbf*\r\n!*/\r\n", "q\na\n]\n \nd/x")
	f.Add("x**/a\\\n**\\/a\n?\n[a-", "***\n", "x/a\nxy/a\né\n[a-\nd/d/d")
	f.Add("build/\nkept \nq\\ \n/a[+-0]b\n?x**/e\nt/***/e\n", "\xef\xbb\xbf*.bom\r\n",
		"build\nd/build\nkept\nkept \nq \na/b\na.b\nqx/e\nqx/y/e\nt/u/v/e\nd/x.bom")
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, top, inner, list string) {
		g := &generator{t: t, root: root, ignore: map[string]string{"": top, "d": inner}}
		for name := range strings.SplitSeq(list, "\n") {
			if len(g.names) < 50 && isName(name) && !slices.Contains(g.names, name) {
				g.names = append(g.names, name)
			}
		}
		if len(g.names) == 0 || len(top)+len(inner) > 10_000 {
			t.Skip("no names")
		}
		if err := os.MkdirAll(filepath.Join(root, "d"), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
			g.git(git, nil, "init", "-q", "--template=")
		}
		for dir, content := range g.ignore {
			if err := os.WriteFile(filepath.Join(root, dir, ".gitignore"), []byte(content),
				0o666); err != nil {
				t.Fatal(err)
			}
		}
		// After ./ a colon has no meaning.
		out := g.git(git, []byte("./"+strings.Join(g.names, "\x00./")+"\x00"), "-c",
			"core.ignoreCase=false", "check-ignore", "--no-index", "-z", "--stdin")
		ignored := strings.Split(string(out), "\x00")
		for _, name := range g.names {
			if got, want := g.ignored(name), slices.Contains(ignored, "./"+name); got != want {
				t.Errorf("%q: got %v, git says %v; %q at the top, %q in d", name, got, want, top, inner)
			}
		}
	})
}

// isName reports whether git takes a text unchanged for the name of a file.
func isName(name string) bool {
	if len(name) > 1000 || strings.ContainsRune(name, 0) {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." || len(element) > 200 ||
			strings.EqualFold(element, ".git") {
			return false
		}
	}
	return true
}
