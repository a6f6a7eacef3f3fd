package snapshot_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// needGit skips where patches cannot be applied and compared.
func needGit(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows has neither executable bits nor, for ordinary users, links")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to apply patches")
	}
}

// git runs git with no configuration but that of the repository.
func git(t testing.TB, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.fsync=none"}, args...)...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(
		os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c",
		"GIT_COMMITTER_EMAIL=c@example.com",
	)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s\nwith input:\n%.5000q", strings.Join(args, " "), err, stderr.Bytes(),
			stdin)
	}
	return string(out)
}

func takeSnapshot(t testing.TB, dir string, base *snapshot.Snapshot) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Take(t.Context(), treefake.New(t, dir), "", snapshot.Options{
		Base:     base,
		SpoolDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func writePatch(t testing.TB, before, after *snapshot.Snapshot) ([]byte, snapshot.PatchStats) {
	t.Helper()
	var patch bytes.Buffer
	stats, err := snapshot.WritePatch(t.Context(), &patch, before, after)
	if err != nil {
		t.Fatal(err)
	}
	return patch.Bytes(), stats
}

// checkPatch applies the patch between two trees with git, in a plain directory and in a
// repository, and reverts it.
func checkPatch(
	t *testing.T, before, after map[string]treefake.File,
) ([]byte, snapshot.PatchStats) {
	t.Helper()
	beforeDir, afterDir := t.TempDir(), t.TempDir()
	treefake.Write(t, beforeDir, before)
	treefake.Write(t, afterDir, after)
	wantBefore, wantAfter := treefake.Read(t, beforeDir), treefake.Read(t, afterDir)

	first := takeSnapshot(t, beforeDir, nil)
	second := takeSnapshot(t, afterDir, first)
	patch, stats := writePatch(t, first, second)
	again, _ := writePatch(t, first, takeSnapshot(t, afterDir, nil))
	if !bytes.Equal(patch, again) {
		t.Error("the same trees gave different patches")
	}
	if diff := cmp.Diff(wantBefore, wantAfter); (diff == "") != (len(patch) == 0) {
		t.Fatalf("patch of %d bytes for difference:\n%s", len(patch), diff)
	}
	if len(patch) == 0 {
		return patch, stats
	}
	check := func(what string, want map[string]treefake.File, dir string) {
		t.Helper()
		if diff := cmp.Diff(want, treefake.Read(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}

	git(t, beforeDir, patch, "apply", "--whitespace=nowarn", "--check", "-")
	check("after a mere check", wantBefore, beforeDir)
	git(t, beforeDir, patch, "apply", "-")
	check("applied in a plain directory", wantAfter, beforeDir)

	repo := t.TempDir()
	treefake.Write(t, repo, before)
	git(t, repo, nil, "init", "-q", "--template=")
	git(t, repo, nil, "add", "-Af")
	git(t, repo, patch, "apply", "--index", "-")
	check("applied in a repository", wantAfter, repo)
	if out := git(t, repo, nil, "diff", "--name-only"); out != "" {
		t.Errorf("index and files differ:\n%s", out)
	}
	git(t, repo, patch, "apply", "--index", "-R", "-")
	check("taken back", wantBefore, repo)
	return patch, stats
}

func numberedLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestWritePatch(t *testing.T) {
	needGit(t)
	text := func(s string) treefake.File { return treefake.File{Content: s} }
	link := func(s string) treefake.File { return treefake.File{Target: s} }
	type tree = map[string]treefake.File
	blob := make([]byte, 100_000)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(blob)
	bin := string(blob)

	tests := []struct {
		name          string
		before, after tree
		want          string // status and path of each change
		contains      string
	}{
		{"nothing", tree{"a": text("a")}, tree{"a": text("a")}, "", ""},
		{"both empty", tree{}, tree{}, "", ""},
		{"edit", tree{"a": text(numberedLines(50))}, tree{"a": text(strings.Replace(numberedLines(50),
			"line 20\n", "LINE 20\nmore\n", 1))}, "M a +2-1", "@@ -18,7 +18,8 @@"},
		{
			"two hunks",
			tree{"a": text(numberedLines(50))},
			tree{"a": text("first\n" + numberedLines(49))},
			"M a +1-1", "@@ -47,4 +48,3 @@",
		},
		{
			"CRLF",
			tree{"a": text("one\r\ntwo\r\n")},
			tree{"a": text("one\r\n2\r\n")},
			"M a +1-1",
			"-two\r\n+2\r\n",
		},
		{"CRLF to LF", tree{"a": text("one\r\ntwo\r\n")}, tree{"a": text("one\ntwo\n")}, "M a +2-2", ""},
		{"lone CR", tree{"a": text("one\rtwo")}, tree{"a": text("one\r2")}, "M a +1-1", ""},
		{"invalid UTF-8", tree{"a": text("\xff\xfe\n")}, tree{"a": text("\xff\n\x80\n")}, "M a +2-1", ""},
		{
			"newline at end added",
			tree{"a": text("x\ny")},
			tree{"a": text("x\ny\n")},
			"M a +1-1",
			"\\ No newline at end of file",
		},
		{
			"newline at end removed",
			tree{"a": text("x\ny\n")},
			tree{"a": text("x\ny")},
			"M a +1-1",
			"\\ No newline at end of file",
		},
		{
			"no newline in context",
			tree{"a": text("x\ny")},
			tree{"a": text("z\ny")},
			"M a +1-1",
			" y\n\\ No newline at end of file",
		},
		{
			"new empty file",
			tree{},
			tree{"e": text("")},
			"A e +0-0",
			"new file mode 100644\nindex " +
				"0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n",
		},
		{"empty file deleted", tree{"e": text(""), "x": text("x")}, tree{"x": text("x")}, "D e +0-0", ""},
		{"emptied", tree{"a": text("x\n")}, tree{"a": text("")}, "M a +0-1", "@@ -1 +0,0 @@"},
		{"filled", tree{"a": text("")}, tree{"a": text("x\n")}, "M a +1-0", "@@ -0,0 +1 @@"},
		{"only newlines", tree{"a": text("\n\n\n")}, tree{"a": text("\n\n\n\n\n")}, "M a +2-0", ""},
		{
			"lines like those of a patch",
			tree{"a": text("-- a\n++ b\n@@ -1 +1 @@\n")},
			tree{"a": text("-- b\n++ b\n@@ -2 +1 @@\ndiff --git a/x b/x\n")},
			"M a +3-2", "",
		},
		{
			"new executable",
			tree{},
			tree{"run": {Content: "#!/bin/sh\n", Executable: true}},
			"A run +1-0",
			"new file mode 100755",
		},
		{
			"mode only",
			tree{"run": text("x\n")},
			tree{"run": {Content: "x\n", Executable: true}},
			"M run +0-0", "old mode 100644\nnew mode 100755\n",
		},
		{
			"mode and content",
			tree{"run": {Content: "x\n", Executable: true}},
			tree{"run": text("y\n")},
			"M run +1-1", "old mode 100755\nnew mode 100644\n",
		},
		{"binary new", tree{}, tree{"b": text(bin)}, "A b binary", "GIT binary patch\nliteral 100000\n"},
		{
			"binary changed",
			tree{"b": text(bin)},
			tree{"b": text("\x00" + bin[:777])},
			"M b binary",
			"literal 778\n",
		},
		{"binary deleted", tree{"b": text(bin)}, tree{}, "D b binary", "literal 0\n"},
		{"binary becomes text", tree{"b": text("\x00")}, tree{"b": text("text\n")}, "M b binary", ""},
		{
			"binary and mode",
			tree{"b": text("\x00")},
			tree{"b": {Content: "\x00\x01", Executable: true}},
			"M b binary", "",
		},
		{
			"one line of 5 MB",
			tree{"a": text(strings.Repeat("x", 5_000_000))},
			tree{"a": text(strings.Repeat("x", 5_000_001))},
			"M a +1-1", "",
		},
		{
			"too large for lines",
			tree{"a": text("x\n")},
			tree{"a": text(strings.Repeat("x\n", 4<<20+1))},
			"M a binary", "literal 8388610\n",
		},
		{
			"rename",
			tree{"old": text("content\n")},
			tree{"dir/new": text("content\n")},
			"R dir/new<old +0-0", "similarity index 100%\nrename from old\nrename to dir/new\n",
		},
		{"rename and mode", tree{"old": text("content\n")}, tree{"new": {
			Content:    "content\n",
			Executable: true,
		}}, "R new<old +0-0", "old mode 100644\nnew mode 100755\nsimilarity index " +
			"100%\n"},
		{
			"rename and edit",
			tree{"old": text(numberedLines(40))},
			tree{"new": text(strings.Replace(numberedLines(40), "line 5\n", "five\n", 1))},
			"R new<old +1-1",
			"rename from old\nrename to new\nindex ",
		},
		{
			"rename, edit and mode",
			tree{"old": text(numberedLines(40))},
			tree{"new": {Content: numberedLines(41), Executable: true}},
			"R new<old +1-0",
			"similarity index 97%",
		},
		{
			"too different for a rename",
			tree{"old": text(numberedLines(10))},
			tree{"new": text(numberedLines(3) + strings.Repeat("other\n", 20))},
			"A new +23-0, D old +0-10",
			"",
		},
		{
			"empty files are not renamed",
			tree{"old": text("")},
			tree{"new": text("")},
			"A new +0-0, D old +0-0", "",
		},
		{"binary rename", tree{"old": text(bin)}, tree{"new": text(bin)}, "R new<old +0-0", ""},
		{
			"base name decides",
			tree{"a/f": text("same\n"), "a/g": text("same\n")},
			tree{"b/g": text("same\n"), "b/h": text("same\n")},
			"R b/g<a/g +0-0, R b/h<a/f +0-0", "",
		},
		{"directory renamed", tree{"a/f": text("f\n"), "a/x/g": text("g\n")}, tree{
			"b/f":   text("f\n"),
			"b/x/g": text("g\n"),
		}, "R b/f<a/f +0-0, R b/x/g<a/x/g +0-0", ""},
		{"names swapped", tree{"a": text("one\n"), "b": text("two\n")}, tree{
			"a": text("two\n"),
			"b": text("one\n"),
		}, "M a +1-1, M b +1-1", ""},
		{
			"renamed to the name of its directory",
			tree{"d/x": text("content\n")},
			tree{"d": text("content\n")},
			"R d<d/x +0-0", "",
		},
		{
			"renamed below its own name",
			tree{"d": text("content\n")},
			tree{"d/x": text("content\n")},
			"R d/x<d +0-0", "",
		},
		{"new link", tree{}, tree{"l": link("to/where")}, "A l +1-0", "new file mode 120000"},
		{"link changed", tree{"l": link("x")}, tree{"l": link("y")}, "M l +1-1", " 120000\n"},
		{
			"link to nowhere outside",
			tree{"l": link("/a")},
			tree{"l": link("../../b c\nd")},
			"M l +2-1",
			"",
		},
		{"link deleted", tree{"l": link("x")}, tree{}, "D l +0-1", ""},
		{
			"links are not renamed",
			tree{"l": link("x")},
			tree{"l/m": link("x"), "l/n": text("n")},
			"D l +0-1, A l/m +1-0, A l/n +1-0", "",
		},
		{
			"link is no rename of a file",
			tree{"l": link("x")},
			tree{"m": text("x")},
			"D l +0-1, A m +1-0",
			"",
		},
		{
			"file is no rename of a link",
			tree{"m": text("x")},
			tree{"l": link("x")},
			"A l +1-0, D m +0-1",
			"",
		},
		{
			"file becomes link",
			tree{"a": text("a\n")},
			tree{"a": link("b")},
			"M a +1-1",
			"deleted file mode 100644",
		},
		{
			"link becomes file",
			tree{"a": link("b")},
			tree{"a": {Content: "a\n", Executable: true}},
			"M a +1-1", "new file mode 100755",
		},
		{
			"directory becomes file",
			tree{"d/x": text("x\n"), "d/e/y": text("y\n")},
			tree{"d": text("d\n")},
			"A d +1-0, D d/e/y +0-1, D d/x +0-1", "",
		},
		{
			"file becomes directory",
			tree{"d": text("d\n")},
			tree{"d/x": text("x\n"), "d/e/y": text("y\n")},
			"D d +0-1, A d/e/y +1-0, A d/x +1-0", "",
		},
		{"directory becomes symlink", tree{"d/x": text("x\n"), "e/x": text("z\n")}, tree{
			"d":   link("e"),
			"e/x": text("z\n"),
		}, "A d +1-0, D d/x +0-1", ""},
		{"symlink becomes directory", tree{"d": link("e"), "e/x": text("z\n")}, tree{
			"d/x": text("x\n"),
			"e/x": text("z\n"),
		}, "D d +0-1, A d/x +1-0", ""},
		{
			"everything deleted",
			tree{"a": text("a\n"), "b/c": text("\x00"), "l": link("a")},
			tree{},
			"D a +0-1, D b/c binary, D l +0-1", "",
		},
		{"empty directories are ignored", tree{"d/": {}}, tree{"e/": {}}, "", ""},
		{
			"order",
			tree{},
			tree{"a.b": text("1"), "a/b": text("2"), "a-b": text("3")},
			"A a-b +1-0, A a.b +1-0, A a/b +1-0", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patch, stats := checkPatch(t, tt.before, tt.after)
			var got []string
			for _, f := range stats.Files {
				name := f.Path
				if f.From != "" {
					name += "<" + f.From
				}
				lines := fmt.Sprintf("+%d-%d", f.Insertions, f.Deletions)
				if f.Binary {
					lines = "binary"
				}
				got = append(got, fmt.Sprintf("%s %s %s", f.Status, name, lines))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if !bytes.Contains(patch, []byte(tt.contains)) {
				t.Errorf("the patch lacks %q:\n%.2000s", tt.contains, patch)
			}
		})
	}
}

// nastyNames are names that need quotes, or resemble other syntax.
var nastyNames = []string{
	"with space", " leading", "trailing ", "-dash", "--index", "quo\"te", "back\\slash", "tab\tname",
	"new\nline", "ünïcödé", "日本",
	"inv\xffalid", "bell\a", "\x7f", "a => b", "{x}", "dev/null", "a/b", "b/a", "*", "?[x]", "#",
	"$HOME", "'", "ends with space \"", "a b/c d",
	"\\", "COM1", ".gitx", "x.git",
}

func TestWritePatchNames(t *testing.T) {
	needGit(t)
	names := slices.Clone(nastyNames)
	probe := t.TempDir()
	names = slices.DeleteFunc(names, func(name string) bool {
		p := filepath.Join(probe, name)
		// Not every system has every name.
		return os.MkdirAll(filepath.Dir(p), 0o755) != nil || os.WriteFile(p, nil, 0o600) != nil
	})
	all := func(f func(i int) treefake.File) map[string]treefake.File {
		tree := map[string]treefake.File{}
		for i, name := range names {
			tree[name] = f(i)
		}
		return tree
	}
	old := all(func(i int) treefake.File {
		return treefake.File{Content: fmt.Sprintln(i) +
			numberedLines(20)}
	})
	tests := []struct {
		name  string
		after map[string]treefake.File
	}{
		{"edited", all(func(i int) treefake.File {
			return treefake.File{Content: fmt.Sprintln(i) +
				numberedLines(21)}
		})},
		{"executable", all(func(i int) treefake.File {
			return treefake.File{Content: old[names[i]].Content, Executable: true}
		})},
		{"binary", all(func(i int) treefake.File {
			return treefake.File{Content: fmt.Sprintln(i,
				"\x00")}
		})},
		{"links", all(func(i int) treefake.File { return treefake.File{Target: names[i]} })},
		{"deleted", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkPatch(t, old, tt.after) })
	}
	t.Run("new", func(t *testing.T) { checkPatch(t, nil, old) })
	t.Run("renamed", func(t *testing.T) {
		after := map[string]treefake.File{}
		for name, f := range old {
			after[path.Join("moved", name+" ")] = f
		}
		_, stats := checkPatch(t, old, after)
		for _, f := range stats.Files {
			if f.Status != snapshot.Renamed || f.Path != path.Join("moved", f.From+" ") {
				t.Errorf("got %+v, want it renamed", f)
			}
		}
	})
}

// Patches that have only one form equal git's, byte for byte.
func TestWritePatchIsWhatGitWrites(t *testing.T) {
	needGit(t)
	tree := map[string]treefake.File{
		"empty": {}, "link to": {Target: "some where"},
		"no newline": {Content: "x", Executable: true},
	}
	edited := maps.Clone(tree)
	for _, name := range nastyNames {
		put(tree, name, treefake.File{Content: numberedLines(30)})
		put(edited, name, treefake.File{Content: strings.Replace(numberedLines(31), "line 9\n", "nine\n",
			1), Executable: len(name)%2 == 0})
	}
	for _, tt := range []struct {
		name          string
		before, after map[string]treefake.File
	}{{"new", nil, tree}, {"edited", tree, edited}, {"deleted", edited, nil}} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := t.TempDir(), t.TempDir()
			treefake.Write(t, before, tt.before)
			treefake.Write(t, after, tt.after)
			got, _ := writePatch(t, takeSnapshot(t, before, nil), takeSnapshot(t, after, nil))

			git(t, before, nil, "init", "-q", "--template=")
			git(t, before, nil, "add", "-Af")
			old := strings.TrimSpace(git(t, before, nil, "write-tree"))
			if err := os.Rename(filepath.Join(before, ".git"), filepath.Join(after, ".git")); err != nil {
				t.Fatal(err)
			}
			git(t, after, nil, "add", "-Af")
			want := git(t, after, nil, "diff", "--cached", "--full-index", "--no-renames", old)
			// Git adds the nearest unindented line before a hunk.
			want = regexp.MustCompile(`(?m)^(@@ .* @@) .*$`).ReplaceAllString(want, "$1")
			if diff := cmp.Diff(strings.SplitAfter(want, "\n"), strings.SplitAfter(string(got),
				"\n")); diff != "" {
				t.Errorf("patch (-git +ours):\n%.5000s", diff)
			}
		})
	}
}

// The patch between random trees makes one of the other.
func TestWritePatchRandom(t *testing.T) {
	needGit(t)
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := &randomTree{rand.New(rand.NewPCG(seed, 7))}
			before := r.tree()
			after := r.edit(before)
			checkPatch(t, before, after)
		})
	}
}

type randomTree struct{ *rand.Rand }

func (r *randomTree) name() string {
	parts := []string{"a", "b", "c.txt", "d", "main.go", "sub", "with space", "ü"}
	parts = append(parts, nastyNames[r.IntN(len(nastyNames))])
	var name []string
	for range 1 + r.IntN(3) {
		name = append(name, parts[r.IntN(len(parts))])
	}
	return path.Join(name...)
}

func (r *randomTree) lines(n int) string {
	var b strings.Builder
	for range n {
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "%d", r.IntN(1000))
		}
		b.WriteString([]string{
			"}", "{", "", "return nil", "\t\tif err != nil {", "x\ry",
			"end",
		}[r.IntN(7)])
		b.WriteString([]string{"\n", "\n", "\n", "\r\n"}[r.IntN(4)])
	}
	return b.String()
}

func (r *randomTree) file() treefake.File {
	switch r.IntN(10) {
	case 0:
		// Git does not replace a symlink to itself by a directory; targets are not in the tree.
		return treefake.File{Target: "nowhere/" + r.name()}
	case 1:
		return treefake.File{Content: "\x00" + r.lines(r.IntN(50))}
	case 2:
		return treefake.File{}
	case 3:
		return treefake.File{Content: strings.TrimSpace(r.lines(r.IntN(20)))}
	default:
		return treefake.File{Content: r.lines(r.IntN(300)), Executable: r.IntN(4) == 0}
	}
}

// put adds a file and removes a file with the name of its parent, and a directory with its name.
func put(tree map[string]treefake.File, name string, f treefake.File) {
	maps.DeleteFunc(tree, func(other string, _ treefake.File) bool {
		return strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/")
	})
	tree[name] = f
}

func (r *randomTree) tree() map[string]treefake.File {
	tree := map[string]treefake.File{}
	for range 5 + r.IntN(25) {
		put(tree, r.name(), r.file())
	}
	return tree
}

func (r *randomTree) editLines(content string) string {
	lines := strings.SplitAfter(content, "\n")
	for range 1 + r.IntN(8) {
		i := r.IntN(len(lines) + 1)
		j := min(len(lines), i+r.IntN(4))
		lines = slices.Replace(lines, i, j, r.lines(r.IntN(4)))
		lines = strings.SplitAfter(strings.Join(lines, ""), "\n")
	}
	content = strings.Join(lines, "")
	if r.IntN(6) == 0 {
		content = strings.TrimSuffix(content, "\n")
	}
	return content
}

func (r *randomTree) edit(before map[string]treefake.File) map[string]treefake.File {
	after := maps.Clone(before)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		f, ok := after[name]
		if !ok {
			continue
		}
		switch r.IntN(9) {
		case 0:
			delete(after, name)
		case 1, 2:
			if f.Target == "" {
				f.Content = r.editLines(f.Content)
				after[name] = f
			}
		case 3:
			f.Executable = !f.Executable && f.Target == ""
			after[name] = f
		case 4:
			delete(after, name)
			put(after, r.name(), f)
		case 5:
			delete(after, name)
			if f.Target == "" {
				f.Content = r.editLines(f.Content)
			}
			put(after, r.name(), f)
		case 6:
			put(after, name, r.file())
		case 7:
			put(after, path.Join(name, r.name()), f)
		}
	}
	for range r.IntN(5) {
		put(after, r.name(), r.file())
	}
	return after
}
