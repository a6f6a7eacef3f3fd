package gitignore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/gitignore"
)

func TestMatch(t *testing.T) {
	const none, ignore, include = gitignore.None, gitignore.Ignore, gitignore.Include
	tests := []struct {
		rules string
		name  string // with a trailing slash, a directory
		want  gitignore.Decision
	}{
		// Blank lines, comments and quoting.
		{"", "a", none},
		{"\n\n", "a", none},
		{"# a", "a", none},
		{"#a", "#a", none},
		{`\#a`, "#a", ignore},
		{`\!a`, "!a", ignore},
		{"!a", "!a", none},
		{"!", "a", none},
		{"/", "a/", none},
		{"//", "a/", none},
		{"a//", "a/", none},
		{`a\`, "a", none},
		{`a\`, `a\`, none},
		{`a\\`, `a\`, ignore},
		{`\*`, "*", ignore},
		{`\*`, "a", none},
		{"\xef\xbb\xbfa", "a", ignore},
		{"a\x00b", "a", ignore},

		// White space and line endings.
		{"a ", "a", ignore},
		{"a  ", "a ", none},
		{`a\ `, "a ", ignore},
		{`a\  `, "a ", ignore},
		{`a\ `, "a", none},
		{`a\\ `, `a\`, ignore},
		{" a", " a", ignore},
		{" a", "a", none},
		{"a\t", "a", none},
		{"a\t", "a\t", ignore},
		{"a\r\nb\r\n", "a", ignore},
		{"a\r\nb\r\n", "b", ignore},
		{"a\r", "a", ignore},
		{"a \r\n", "a", ignore},
		{"a\r\r\n", "a\r", ignore},
		{"   ", "   ", none},

		// Order and negation.
		{"*\n!a", "a", include},
		{"!a\n*", "a", ignore},
		{"*\n!a", "b", ignore},
		{"*.txt\n!a.txt\na.txt", "a.txt", ignore},

		// Without a slash: any depth. With one: from here.
		{"a", "x/y/a", ignore},
		{"a", "a/x", none},
		{"/a", "a", ignore},
		{"/a", "x/a", none},
		{"x/a", "x/a", ignore},
		{"x/a", "y/x/a", none},
		{"/x/a", "x/a", ignore},
		{"a/", "a/", ignore},
		{"a/", "a", none},
		{"a/", "x/a/", ignore},
		{"/a/", "x/a/", none},
		{"x/a/", "x/a/", ignore},
		{"x/a/", "x/a", none},
		{"A", "a", none},

		// Stars and question marks.
		{"*", "a", ignore},
		{"*", "x/a", ignore},
		{"/*", "a", ignore},
		{"/*", "x/a", none},
		{"*.c", "x/a.c", ignore},
		{"*.c", ".c", ignore},
		{"/*.c", "x/a.c", none},
		{"x/*", "x/a", ignore},
		{"x/*", "x/a/b", none},
		{"x/*/b", "x/a/b", ignore},
		{"x/*/b", "x/b", none},
		{"x/*/b", "x/a/a/b", none},
		{"a*b*c", "aXbXbc", ignore},
		{"a*b*c", "aXbXb", none},
		{"?", "a", ignore},
		{"?", "ab", none},
		{"x?a", "x/a", none},
		{"a?c", "aéc", none}, // bytes, not characters
		{"a??c", "aéc", ignore},

		// Two stars.
		{"**", "a", ignore},
		{"**", "x/a", ignore},
		{"**/a", "a", ignore},
		{"**/a", "x/y/a", ignore},
		{"**/a", "xa", none},
		{"**/x/a", "y/x/a", ignore},
		{"a/**", "a/", none},
		{"a/**", "a/x", ignore},
		{"a/**", "a/x/y", ignore},
		{"a/**", "y/a/x", none},
		{"a/**/b", "a/b", ignore},
		{"a/**/b", "a/x/b", ignore},
		{"a/**/b", "a/x/y/b", ignore},
		{"a/**/b", "ab", none},
		{"a/**/b", "a/xb", none},
		{"a/**/b/**/c", "a/b/x/b/c", ignore},
		{"a/**/*.c", "a/x/y/z.c", ignore},
		{"a/**/x*y/z", "a/xy/q/xqy/z", ignore},
		{"a/***/b", "a/x/y/b", ignore},
		{"/a/?**/b", "a/x/y/b", none},
		{"/a/?**/b", "a/xx/b", ignore},
		{"a/**/**/b", "a/b", ignore},
		{"**/", "a/", ignore},
		{"**/", "a", none},
		{"/**/a", "x/a", ignore},
		{`**\/a`, "a", none},
		{`**\/a`, "x/a", ignore},

		// Classes.
		{"[ab]", "a", ignore},
		{"[ab]", "c", none},
		{"[a-c]", "b", ignore},
		{"[c-a]", "b", none},
		{"[!a]", "b", ignore},
		{"[!a]", "a", none},
		{"[^a]", "b", ignore},
		{"[]a]", "]", ignore},
		{"[!]a]", "b", ignore},
		{"[!]a]", "]", none},
		{"[a-]", "-", ignore},
		{"[-a]", "-", ignore},
		{"[a-c-e]", "d", none},
		{"[a-c-e]", "-", ignore},
		{`[\]]`, "]", ignore},
		{`[a\-c]`, "b", none},
		{`[a\-c]`, "-", ignore},
		{`[+-\-]`, ",", ignore},
		{"[a", "a", none},
		{"[a", "[a", none},
		{"[]", "]", none},
		{"[!]", "a", none},
		{"x[/]a", "x/a", none},
		{"x[!b]a", "x/a", none},
		{"x[b/]a", "xba", ignore},
		{"[[:alpha:]]", "q", ignore},
		{"[[:digit:][:upper:]]", "Q", ignore},
		{"[![:space:]]", " ", none},
		{"[[:nothing:]a]", "a", none},
		{"[[:alpha]", "[", ignore},
		{"[[:alpha]", "h", ignore},
		{"[[::]]", ":", none},
		{"[[:]", ":", ignore},
		{"[[:punct:]]", "_", ignore},
		{"[[:cntrl:][:blank:][:xdigit:]]", "F", ignore},
		{"[[:graph:]]", " ", none},
		{"[[:print:]]", " ", ignore},
		{"[[:lower:]]", "Q", none},
		{"[[:alnum:]]", "\xe9", none},
		{"[\xc3][\xa9]", "é", ignore},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q on %q", tt.rules, tt.name), func(t *testing.T) {
			name, isDir := strings.CutSuffix(tt.name, "/")
			if got := gitignore.Parse([]byte(tt.rules)).Match(name, isDir); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestStack(t *testing.T) {
	var s *gitignore.Stack
	if s.Ignored("a", false) {
		t.Error("a nil stack ignores something")
	}
	s = s.Push("", gitignore.Parse([]byte("*.log\n/top\n")))
	if s.Push("sub", gitignore.Parse(nil)) != s {
		t.Error("rules without a pattern make the stack larger")
	}
	s = s.Push("sub", gitignore.Parse([]byte("!keep.log\n/here\n*\n!*.go\n!/deep")))
	s = s.Push("sub/deep", gitignore.Parse([]byte("b.go\n!/c.log")))
	tests := []struct {
		name  string
		isDir bool
		want  bool
	}{
		{"a.log", false, true},
		{"top", false, true},
		{"subway.log", false, true},
		{"sub/top", false, true},
		{"sub/a.go", false, false},
		{"sub/here", false, true},
		{"sub", true, false},
		{"sub/deep", true, false},
		{"sub/deep/b.go", false, true},
		{"sub/deep/c.log", false, false},
		{"sub/deep/a.go", false, false},
		{"sub/deep/q.log", false, true},
	}
	for _, tt := range tests {
		if got := s.Ignored(tt.name, tt.isDir); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestHostilePatternTerminates gives patterns that take exponential time in a matcher that retries
// every star.
func TestHostilePatternTerminates(t *testing.T) {
	name := strings.Repeat("a", 2000) + "/" + strings.Repeat("b/", 500) + "c"
	for _, pattern := range []string{
		strings.Repeat("a*", 200) + "b",
		strings.Repeat("*a", 200) + "/z",
		"x/" + strings.Repeat("**/", 200) + "z",
		strings.Repeat("**/*b*/", 100) + "z",
		strings.Repeat("?*", 300),
	} {
		done := make(chan gitignore.Decision, 1)
		go func() { done <- gitignore.Parse([]byte(pattern)).Match(name, false) }()
		select {
		case d := <-done:
			if d != gitignore.None {
				t.Errorf("%.20s…: got %v", pattern, d)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%.20s…: takes more than a minute", pattern)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a/**/b\n!*.c\n[[:alpha:]-z]\n\\ \n", "a/x/b")
	f.Add("**", "a")
	f.Add("[a-", "")
	f.Add("x**/a\\", "x/a")
	f.Fuzz(func(_ *testing.T, rules, name string) {
		s := (*gitignore.Stack)(nil).Push("", gitignore.Parse([]byte(rules))).Push("a",
			gitignore.Parse([]byte(rules)))
		s.Ignored(name, true)
		s.Ignored("a/"+name, false)
	})
}

// TestAgainstGit compares with git on random patterns: first one pattern per directory with names
// of missing files, then trees with several ignore files each.
func TestAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: ", err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("the names have bytes that Windows does not allow")
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			g := &generator{
				Rand: rand.New(rand.NewPCG(seed, 7)), t: t, root: t.TempDir(),
				ignore: map[string]string{},
			}
			g.git(git, nil, "init", "-q")
			for i := range 600 {
				g.onePattern(fmt.Sprintf("p%d", i))
			}
			for i := range 40 {
				dir := fmt.Sprintf("t%d", i)
				g.write(dir, 0)
				g.tree(dir, 1)
			}
			g.compare(git)
		})
	}
}

// generator makes a directory with random ignore files and a list of names in it.
type generator struct {
	*rand.Rand
	t      *testing.T
	root   string
	ignore map[string]string // directory to content
	names  []string
}

func (g *generator) pick(from []string) string { return from[g.IntN(len(from))] }

func (g *generator) element() string {
	elements := []string{
		"a", "b", "c", "ab", "abc", "bca", "cab", "a b", "a ", " ", "\t", "*", "**", "?", `\`, `a\`, "!a",
		"#a", "é", "-", "]", "[", "[a]",
		"a.c", "b.c", ".c", "A", "1", "!", "^", "a\r", ":", "\xff",
	}
	if g.IntN(3) > 0 {
		return elements[g.IntN(6)]
	}
	return g.pick(elements)
}

func (g *generator) pattern() string {
	pieces := []string{
		"a", "b", "c", "/", "/", "*", "**", "?", "ab", "a", "b", "/", "*", "**/", "/**", "/**/", ".c",
		"*.c", "***", "[", "]", "[ab]", "[!a]",
		"[^a]", "[a-c]", "[]a]", "[[:alpha:]]", "[[:x:]]", "[[:alpha]", "[a/b]", `[\]a]`, "[a-", `\`,
		`\*`, `\ `, " ", "!", "#", "-", "é", "\t",
		"\r", `\/`, `\!`, `\#`, "[!/]", "[[:punct:][:space:]]", "^", ":", "\xff", "A",
	}
	var s strings.Builder
	if g.IntN(5) == 0 {
		s.WriteByte('!')
	}
	for range 1 + g.IntN(5) {
		if g.IntN(2) == 0 {
			s.WriteString(pieces[g.IntN(16)])
		} else {
			s.WriteString(g.pick(pieces))
		}
	}
	if g.IntN(6) == 0 {
		s.WriteByte('/')
	}
	return s.String()
}

func (g *generator) write(dir string, extra int) {
	var s strings.Builder
	for range 1 + g.IntN(1+extra) {
		s.WriteString(g.pattern())
		s.WriteString(g.pick([]string{"\n", "\n", "\n", "\r\n", " \n"}))
	}
	content := s.String()
	if g.IntN(4) == 0 {
		content = strings.TrimSuffix(content, "\n")
	}
	g.ignore[dir] = content
	full := filepath.Join(g.root, dir)
	if err := os.MkdirAll(full, 0o777); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, ".gitignore"), []byte(content), 0o666); err != nil {
		g.t.Fatal(err)
	}
}

func (g *generator) onePattern(dir string) {
	g.write(dir, 0)
	for range 25 {
		name := dir
		for range 1 + g.IntN(4) {
			name += "/" + g.element()
		}
		g.names = append(g.names, name)
	}
}

func (g *generator) tree(dir string, depth int) {
	if g.IntN(3) > 0 {
		g.write(dir, 5)
	}
	seen := map[string]bool{}
	for range 2 + g.IntN(6) {
		element := g.element()
		if seen[element] {
			continue
		}
		seen[element] = true
		name := dir + "/" + element
		g.names = append(g.names, name)
		if depth < 4 && g.IntN(2) == 0 {
			if err := os.MkdirAll(filepath.Join(g.root, name), 0o777); err != nil {
				g.t.Fatal(err)
			}
			g.tree(name, depth+1)
			continue
		}
		if err := os.WriteFile(filepath.Join(g.root, name), nil, 0o666); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *generator) git(git string, stdin []byte, args ...string) []byte {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), git, args...)
	cmd.Dir = g.root
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+path.Dir(g.root))
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// check-ignore exits with 1 if nothing is ignored.
	if err != nil && stderr.Len() > 0 {
		g.t.Fatalf("git %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

func (g *generator) compare(git string) {
	stdin := []byte(strings.Join(g.names, "\x00") + "\x00")
	out := g.git(git, stdin, "-c", "core.ignoreCase=false", "check-ignore", "-v", "-n", "-z",
		"--stdin", "--no-index")
	fields := strings.Split(string(out), "\x00")
	if len(fields) != 4*len(g.names)+1 {
		g.t.Fatalf("git prints %d fields for %d names", len(fields), len(g.names))
	}
	ignored, bad := 0, 0
	for i, name := range g.names {
		source, line, pattern := fields[4*i], fields[4*i+1], fields[4*i+2]
		want := pattern != "" && !strings.HasPrefix(pattern, "!")
		if want {
			ignored++
		}
		if got := g.ignored(name); got != want && bad < 20 {
			bad++
			g.t.Errorf("%q: got %v, git says %v by %q line %s: %q; file %q", name, got, want, source, line,
				pattern,
				g.ignore[strings.SplitN(name, "/", 2)[0]])
		}
	}
	if ignored < len(g.names)/20 || ignored > len(g.names)*19/20 {
		g.t.Errorf("%d of %d names are ignored: the patterns are no good test", ignored, len(g.names))
	}
}

// ignored checks name and the directories above it, as a walk does.
func (g *generator) ignored(name string) bool {
	var s *gitignore.Stack
	if content, ok := g.ignore[""]; ok {
		s = s.Push("", gitignore.Parse([]byte(content)))
	}
	elements := strings.Split(name, "/")
	for i := range elements {
		at := strings.Join(elements[:i+1], "/")
		info, err := os.Lstat(filepath.Join(g.root, at))
		isDir := i+1 < len(elements) || err == nil && info.IsDir()
		if s.Ignored(at, isDir) {
			return true
		}
		if content, ok := g.ignore[at]; ok {
			s = s.Push(at, gitignore.Parse([]byte(content)))
		}
	}
	return false
}
