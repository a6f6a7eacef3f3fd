package search_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/search"
)

// ignoreFiles are .gitignore files as projects of some kinds have them, and odd ones.
var ignoreFiles = map[string]string{
	"Python": "__pycache__/\n*.py[cod]\n*$py.class\nbuild/\n*.egg-info/\n.coverage.*\n.venv\n" +
		"env/\ndocs/_build/\n!docs/_build/keep\n",
	"Node": "*.log\nnpm-debug.log*\nbuild/Release\nnode_modules/\n.env\n.env.*\n!.env.example\n" +
		".yarn/*\n!.yarn/patches\n!.yarn/plugins\n.pnp.*\n",
	"Java": "*.class\n.gradle\n**/build/\n!src/**/build/\n!gradle-wrapper.jar\n.idea/*\n" +
		"!.idea/codeStyles\n",
	"C": "*.o\n*.so.*\n*.[ao]\n*~\n\\#*\\#\n.\\#*\n[!a-z]*.ko\n/config.h\n!/include/config.h\n",
	"VS": "[Dd]ebug/\n[Bb]in/\n~$*\n*.[Cc]ache\n!*.[Cc]ache/\n**/[Pp]ackages/*\n" +
		"!**/[Pp]ackages/build/\n*.pfx \n",
	"allow": "*\n!*/\n!*.go\n!go.mod\n!/cmd/**\n/cmd/**/testdata/\n",
	"odd": "\xef\xbb\xbf*.bom\r\ntrailing \nkept\\ \n!\n/\n//\n[\n\\\na[\n*.[!co]\n**/deep/**/x\n" +
		"mid/**/end\n/top*\nq?z\n\\!bang\n\\#hash\n doc/*.txt\nc[/+]d\n?x**/e\nt/***/e\nlast/",
	"stars": "*.a\n***\n!*\nlast",
}

// TestWalkAgainstGit compares with the files that git would add: with well-known ignore files, and
// in random trees.
func TestWalkAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("git is not installed, or takes other names: ", err)
	}
	for _, kind := range slices.Sorted(maps.Keys(ignoreFiles)) {
		t.Run(kind, func(t *testing.T) {
			d := newFakeReader(t, map[string]string{
				".gitignore": ignoreFiles[kind], "pkg/.gitignore": ignoreFiles[kind],
			})
			for _, other := range ignoreFiles {
				namesFor(d.root, other)
			}
			walkAgainstGit(t, git, d)
		})
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			walkAgainstGit(t, git, newFakeReader(t, randomTree(rand.New(rand.NewPCG(seed, 3)))))
		})
	}
}

func randomTree(r *rand.Rand) map[string]string {
	files := map[string]string{}
	pieces := []string{"a", "b", "c", "*", "/", "**/", "?", "a", "b", "[ab]", "/", "!"}
	for range 60 {
		name := ""
		for depth := r.IntN(4); depth >= 0; depth-- {
			name += string(rune('a'+r.IntN(3))) + "d/"
		}
		files[name+string(rune('a'+r.IntN(3)))] = ""
		if r.IntN(4) > 0 {
			continue
		}
		var rules strings.Builder
		for range 1 + r.IntN(4) {
			if r.IntN(3) == 0 {
				rules.WriteString("!")
			}
			for range 1 + r.IntN(3) {
				rules.WriteString(pieces[r.IntN(len(pieces))])
			}
			rules.WriteString(pieces[r.IntN(3)] + "\n")
		}
		files[name+".gitignore"] = rules.String()
	}
	return files
}

// namesFor creates files in a directory and below it with names that the patterns of an ignore file
// may match, as far as the system takes them.
func namesFor(dir, content string) {
	plain := strings.NewReplacer("**", "x/y", "*", "z", "?", "q", "\\", "", "\r", "", "\ufeff", "")
	for line := range strings.Lines(content) {
		name := plain.Replace(strings.Trim(strings.TrimSuffix(line, "\n"), "!/"))
		if open := strings.IndexByte(name, '['); open >= 0 && open+1 < len(name) {
			if end := strings.IndexByte(name[open:], ']'); end > 0 {
				name = name[:open] + name[open+1:open+2] + name[open+end+1:]
			}
		}
		if name == "" || strings.HasPrefix(name, "#") || !filepath.IsLocal(name) {
			continue
		}
		for _, name := range []string{name, name + "/in", "pkg/" + name, "src/a/" + name, name + ".go"} {
			full := filepath.Join(dir, name)
			if os.MkdirAll(filepath.Dir(full), 0o777) == nil { // a file may be in the way
				_ = os.WriteFile(full, nil, 0o666) // and so may a directory
			}
		}
	}
}

// walkAgainstGit compares the walks from the top, and from each directory that is not ignored, with
// the files that git lists.
func walkAgainstGit(t *testing.T, git string, d *fakeReader) {
	t.Helper()
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = d.root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	run("init", "-q", "--template=")
	listed := strings.FieldsFunc(run("-c", "core.ignoreCase=false", "ls-files", "-z", "--others",
		"--exclude-standard"), func(r rune) bool { return r == 0 })
	slices.Sort(listed)
	all := walkNames(t, fakeEnvironment{d}, "", search.WalkOptions{})
	for _, root := range append(all, "") {
		if root != "" && !strings.HasSuffix(root, "/") {
			continue
		}
		var want, got []string
		for _, name := range listed {
			if below, ok := strings.CutPrefix(name, root); ok {
				want = append(want, below)
			}
		}
		for _, name := range walkNames(t, fakeEnvironment{d}, root, search.WalkOptions{}) {
			if !strings.HasSuffix(name, "/") {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %q, -git +Walk: %.4000s", root, diff)
		}
	}
}
