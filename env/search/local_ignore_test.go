//go:build unix

package search_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// maxNames is how many files are taken over from a module.
const maxNames = 300

// ignoreFiles are as well-known kinds of projects have them.
var ignoreFiles = map[string]string{
	"Go":     "# Binaries\n*.exe\n*.exe~\n*.dll\n*.so\n*.dylib\n*.test\n*.out\n/vendor/\ngo.work\n.env\nbin/\n",
	"Python": "__pycache__/\n*.py[cod]\n*$py.class\n*.so\n.Python\nbuild/\ndist/\n*.egg-info/\n.installed.cfg\n*.egg\n.tox/\n.coverage.*\n*.cover\n.venv\nenv/\nlocal_settings.py\n.ipynb_checkpoints\ndocs/_build/\n!docs/_build/keep\n",
	"Node":   "logs\n*.log\nnpm-debug.log*\npids\n*.pid\n*.seed\nlib-cov\n*.lcov\nbower_components\nbuild/Release\nnode_modules/\njspm_packages/\n.npm\n*.tgz\n.env\n.env.*\n!.env.example\n.next\nout\n.nuxt\ndist\n.yarn/*\n!.yarn/patches\n!.yarn/plugins\n.pnp.*\n",
	"Rust":   "debug/\ntarget/\n**/*.rs.bk\n*.pdb\n/Cargo.lock\n",
	"Java":   "*.class\n*.log\n*.jar\n*.war\nhs_err_pid*\n.gradle\n**/build/\n!src/**/build/\n!gradle-wrapper.jar\n.idea/*\n!.idea/codeStyles\n*.iml\n",
	"C":      "*.d\n*.o\n*.ko\n*.a\n*.so.*\n*.dSYM/\n*.[ao]\n*~\n\\#*\\#\n.\\#*\n/config.h\n!/include/config.h\nCMakeFiles/\nCMakeCache.txt\n",
	"Linux":  ".*\n*.a\n*.mod.c\n*.o.*\n[!a-z]*.ko\n/Module.symvers\n!.clang-format\n!.gitignore\n!.mailmap\n/debian/\n/tags\n*.orig\n\\#*#\nx509.genkey\n/include/generated\n",
	"VS":     "[Dd]ebug/\n[Rr]elease/\nx64/\n[Bb]in/\n[Oo]bj/\n*.user\n*.sln.docstates\n~$*\n*.[Cc]ache\n!*.[Cc]ache/\n[Tt]est[Rr]esult*/\n_ReSharper*/\n**/[Pp]ackages/*\n!**/[Pp]ackages/build/\n*.pfx \n",
	"allow":  "*\n!*/\n!*.go\n!go.mod\n!/cmd/**\n/cmd/**/testdata/\n",
	"odd":    "\xef\xbb\xbf*.bom\r\ntrailing \nkept\\ \n!\n/\n//\n[\n\\\na[\n*.[!co]\n**/deep/**/x\nmid/**/end\n/top*\nq?z\n\\!bang\n\\#hash\n doc/*.txt\nc[/+]d\n?x**/e\nt/***/e\nfolder/",
	"stars":  "*.a\n***\n!*\nlast",
}

// TestWalkAgainstGit compares the files that Walk finds with those that git sees: in this
// repository, in what the modules ship that tests use, and with ignore files of well-known kinds.
func TestWalkOfCheckoutsAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: ", err)
	}
	t.Run("checkout", func(t *testing.T) {
		needFull(t, "asks git about each file of a large tree")
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
			t.Skip("it is no repository: ", err)
		}
		walkAgainstGit(t, git, root)
	})
	for _, kind := range slices.Sorted(maps.Keys(ignoreFiles)) {
		t.Run(kind, func(t *testing.T) {
			root := newRepository(t, git)
			nastyFile(t, root, ".gitignore", ignoreFiles[kind])
			nastyFile(t, root, "pkg/.gitignore", ignoreFiles[kind])
			nastyFile(t, root, ".git/info/exclude", "*.excluded\n!README.excluded\n")
			for _, other := range ignoreFiles {
				namesFor(t, root, other)
			}
			walkAgainstGit(t, git, root)
		})
	}
	if !full() {
		return
	}
	for _, module := range modulesWithIgnoreFiles(t) {
		t.Run(filepath.Base(module), func(t *testing.T) {
			root := newRepository(t, git)
			files := moduleFiles(t, module)
			for name, content := range files {
				nastyFile(t, root, name, content)
			}
			for name, content := range files {
				if filepath.Base(name) == ".gitignore" {
					namesFor(t, filepath.Join(root, filepath.Dir(name)), content)
				}
			}
			walkAgainstGit(t, git, root)
		})
	}
}

func newRepository(t *testing.T, git string) string {
	t.Helper()
	root := t.TempDir()
	runGit(t, git, root, nil, "init", "-q", "--template=")
	return root
}

func runGit(t *testing.T, git, dir string, stdin []byte, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), git, append([]string{
		"-c", "core.ignoreCase=false", "-c",
		"core.excludesFile=",
	}, args...)...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// check-ignore exits with 1 if nothing is ignored.
	if err != nil && stderr.Len() > 0 {
		t.Fatalf("git %q: %v\n%s", args, err, stderr.Bytes())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

// walkAgainstGit compares files by what git says about each, and by its list, which has what is
// tracked even if it is ignored.
func walkAgainstGit(t *testing.T, git, root string) {
	t.Helper()
	e := newEnv(t, local.Config{Dir: root})
	got := map[string]bool{}
	err := search.Walk(t.Context(), e, "", search.WalkOptions{}, func(entry search.Entry) error {
		if !entry.Mode.IsDir() {
			got[entry.Name] = true
		}
		return entry.Err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".git" && d.IsDir():
			return fs.SkipDir
		case !d.IsDir() && d.Name() != ".git":
			name, err = filepath.Rel(root, name)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := setOf(all)
	for _, name := range runGit(t, git, root, []byte("./"+strings.Join(all, "\x00./")+"\x00"),
		"check-ignore", "--no-index", "-z", "--stdin") {
		delete(want, strings.TrimPrefix(name, "./"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-check-ignore +Walk\n%.4000s", diff)
	}
	listed := setOf(runGit(t, git, root, nil, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard"))
	for _, args := range [][]string{{"--cached", "--ignored", "--exclude-standard"}, {"--deleted"}} {
		for _, name := range runGit(t, git, root, nil, append([]string{"ls-files", "-z"}, args...)...) {
			delete(listed, name)
		}
	}
	if diff := cmp.Diff(listed, got); diff != "" {
		t.Errorf("-ls-files +Walk\n%.4000s", diff)
	}
}

func setOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// modulesWithIgnoreFiles returns the folders of modules that ship ignore files.
func modulesWithIgnoreFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "all").Output()
	if err != nil {
		return nil
	}
	var modules []string
	for dir := range strings.Lines(string(out)) {
		dir = strings.TrimSuffix(dir, "\n")
		if _, err := os.Stat(filepath.Join(dir, ".gitignore")); err == nil && strings.Contains(dir, "@") {
			modules = append(modules, dir)
		}
	}
	return modules
}

// moduleFiles returns the names of a module's files and the content of its ignore files.
func moduleFiles(t *testing.T, module string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(module, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		short, err := filepath.Rel(module, name)
		if err != nil {
			return err
		}
		if d.Name() == ".gitignore" {
			content, err := os.ReadFile(name)
			files[short] = string(content)
			return err
		}
		if len(files) < maxNames {
			files[short] = ""
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// namesFor makes files in a folder and in one below it with names that the patterns of an ignore
// file may match, as far as the system takes them.
func namesFor(t *testing.T, dir, content string) {
	t.Helper()
	plain := strings.NewReplacer("**", "x/y", "*", "z", "?", "q", "\\", "", "\r", "", "\x00", "",
		"\ufeff", "")
	for line := range strings.Lines(content) {
		name := plain.Replace(strings.Trim(strings.TrimSuffix(line, "\n"), "!/"))
		if open := strings.IndexByte(name, '['); open >= 0 && open+1 < len(name) {
			if end := strings.IndexByte(name[open:], ']'); end > 0 {
				name = name[:open] + name[open+1:open+2] + name[open+end+1:]
			}
		}
		if name == "" || strings.HasPrefix(name, "#") || !filepath.IsLocal(name) ||
			strings.Contains("/"+name+"/", "/.git/") || filepath.Base(name) == ".gitignore" {
			continue
		}
		for _, name := range []string{name, name + "/in", "pkg/" + name, "src/a/" + name, name + ".go"} {
			full := filepath.Join(dir, name)
			if os.MkdirAll(filepath.Dir(full), 0o777) == nil { // a file may be in the way
				_ = os.WriteFile(full, nil, 0o666) // and so may a folder
			}
		}
	}
}
