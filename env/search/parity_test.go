//go:build unix

package search_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// shownBytes is the number of compared bytes of a line. Grep cuts longer ones.
const shownBytes = 64<<10 - utf8.UTFMax

// TestGrepParity compares Grep with ripgrep. Grep differs in line endings, in bytes that are not
// UTF-8 and in binary files, so ripgrep searches a twin of the directory, where that is:
//   - "\r\n" is a line ending: the twin has "\n", except for matches of several lines, in which
//     both see "\r".
//   - A byte that is not UTF-8 matches as U+FFFD does: the twin has U+FFFD.
//   - A NUL byte makes a file binary in the first 8 KiB only: files with a later one are not
//     compared, since ripgrep stops at it.
//
// In a directory without a twin, files with such content are not compared.
func TestGrepParity(t *testing.T) {
	rg := needRipgrep(t)
	each := func(full, short int) int {
		if testing.Short() || race.Enabled() {
			return short
		}
		return full
	}
	t.Run("nasty", func(t *testing.T) {
		p := parity{rg: rg, root: t.TempDir(), lines: t.TempDir(), whole: t.TempDir()}
		nasty(t, p.root, func(s string) string { return s })
		nasty(t, p.lines, func(s string) string { return unifyLines(unifyBytes(s)) })
		nasty(t, p.whole, unifyBytes)
		p.odd = oddFiles(t, p.root, oddNUL)
		p.run(t, parityCases(), each(1, 7))
		p.run(t, parityDirs, each(1, 7))
	})
	t.Run("checkout", func(t *testing.T) {
		if !full() {
			t.Skip("left to make test-full: searches a large tree many times")
		}
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
			t.Skip("the test does not run in its checkout: ", err)
		}
		p := parity{rg: rg, root: root, lines: root, whole: root, odd: oddFiles(t, root, oddAll)}
		p.run(t, parityCases(), each(4, 66))
	})
}

// needRipgrep returns the program.
func needRipgrep(tb testing.TB) string {
	tb.Helper()
	rg, err := exec.LookPath("rg")
	if err != nil {
		daemons.Missing(tb, "local", "ripgrep is not installed: "+err.Error())
	}
	return rg
}

// parity is one directory to compare in.
type parity struct {
	rg, root string
	// lines and whole are what ripgrep searches instead of root: for matches in a line, and for those
	// of several lines.
	lines, whole string
	odd          map[string]bool // files that are not compared
	listed       map[string]bool // if set, those that are
}

func (p parity) leavesOut(name string) bool {
	return p.odd[name] || p.listed != nil && !p.listed[name]
}

// walkFlags make ripgrep walk as Walk does.
var walkFlags = []string{
	"--no-config", "--hidden", "--no-ignore-global", "--no-ignore-dot",
	"--no-require-git",
}

// run compares every each-th case.
func (p parity) run(t *testing.T, cases []search.GrepOptions, each int) {
	e := newEnv(t, local.Config{Dir: p.root})
	found := 0
	for i := 0; i < len(cases); i += each {
		opts := cases[i]
		opts.MaxTime, opts.MaxBytes = -1, -1
		t.Run(fmt.Sprintf("%d %.40q", i, opts.Pattern), func(t *testing.T) {
			got, want := p.ours(t, e, opts), p.theirs(t, opts)
			found += len(want)
			if !slices.Equal(want, got) {
				t.Errorf("%+v, rg %q\nonly rg: %.1500q\nonly ours: %.1500q", opts, rgArgs(opts),
					difference(want, got), difference(got, want))
			}
		})
	}
	if found < len(cases)/each {
		t.Errorf("all searches find only %d lines, which proves little", found)
	}
}

// difference returns the elements of a list that are not in another, which is sorted.
func difference(of, other []string) (rest []string) {
	for _, one := range of {
		if _, found := slices.BinarySearch(other, one); !found {
			rest = append(rest, one)
		}
	}
	return rest
}

// ours returns the sorted results of Grep.
func (p parity) ours(t *testing.T, e env.FileReader, opts search.GrepOptions) []string {
	t.Helper()
	opts.MaxMatches, opts.MaxLineBytes = -1, 64<<10
	var found []string
	stats, err := search.Grep(t.Context(), e, opts, func(m search.GrepMatch) error {
		if p.odd[m.Name] {
			return nil
		}
		switch opts.Mode {
		case search.GrepFiles:
			found = append(found, m.Name)
		case search.GrepCounts:
			found = append(found, m.Name+"\x00"+strconv.Itoa(m.Count))
		default:
			if p.root != p.lines {
				m.Text = unifyBytes(m.Text)
			}
			found = append(found, lineOf(m))
		}
		return nil
	})
	if err != nil || stats.Truncated {
		t.Errorf("%+v, %v", stats, err)
	}
	slices.Sort(found)
	return found
}

func lineOf(m search.GrepMatch) string {
	if len(m.Text) > shownBytes {
		m.Text = m.Text[:shownBytes] + "…"
	}
	kind := ":"
	if m.Context {
		kind = "-"
	}
	return m.Name + "\x00" + strconv.Itoa(m.Line) + kind + m.Text
}

// theirs returns the sorted results of ripgrep.
func (p parity) theirs(t *testing.T, opts search.GrepOptions) []string {
	t.Helper()
	root := p.lines
	if opts.Multiline {
		root = p.whole
	}
	dir := filepath.Join(root, opts.Path)
	out := p.ripgrep(t, dir, rgArgs(opts)...)
	if opts.Glob != "" && !opts.NoIgnore {
		// In ripgrep, -g includes ignored files.
		p.listed = map[string]bool{}
		argv := append(slices.Clone(walkFlags), "-g", "!.git", "--files", "--null")
		for name := range strings.SplitSeq(string(p.ripgrep(t, dir, argv...)), "\x00") {
			p.listed[p.name(opts, name)] = true
		}
	}
	var found []string
	switch opts.Mode {
	case search.GrepFiles, search.GrepCounts:
		found = p.plain(t, opts, out)
	default:
		found = p.messages(t, opts, out)
	}
	slices.Sort(found)
	return found
}

// ripgrep runs the program in a directory.
func (p parity) ripgrep(t *testing.T, dir string, argv ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.rg, append(argv, "./")...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("rg %q: %v\n%.1000s", argv, err, stderr.Bytes())
	}
	return out
}

// plain parses NUL-terminated names and counts.
func (p parity) plain(t *testing.T, opts search.GrepOptions, out []byte) (found []string) {
	t.Helper()
	rest := string(out)
	for rest != "" {
		name, behind, ok := strings.Cut(rest, "\x00")
		if !ok {
			t.Fatalf("rg prints %q", rest)
		}
		count := ""
		if opts.Mode == search.GrepCounts {
			count, behind, _ = strings.Cut(behind, "\n")
			count = "\x00" + count
		}
		rest, name = behind, p.name(opts, name)
		if !p.leavesOut(name) {
			found = append(found, name+count)
		}
	}
	return found
}

// name returns a name as Grep returns it.
func (p parity) name(opts search.GrepOptions, name string) string {
	name = strings.TrimPrefix(name, "./")
	if opts.Path == "" {
		return name
	}
	return strings.TrimSuffix(opts.Path, "/") + "/" + name
}

// message is a line of ripgrep's JSON output.
type message struct {
	Type string `json:"type"`
	Data struct {
		Path  field `json:"path"`
		Lines field `json:"lines"`
		Line  int   `json:"line_number"`
	} `json:"data"`
}

// field is a text, or bytes that are not UTF-8.
type field struct {
	Text  string `json:"text"`
	Bytes []byte `json:"bytes"`
}

func (f field) String() string { return f.Text + string(f.Bytes) }

func (p parity) messages(t *testing.T, opts search.GrepOptions, out []byte) (found []string) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%.1000q: %v", line, err)
		}
		name := p.name(opts, m.Data.Path.String())
		if m.Type != "match" && m.Type != "context" || p.leavesOut(name) {
			continue
		}
		number := m.Data.Line
		for text := range strings.Lines(m.Data.Lines.String()) {
			text, ended := strings.CutSuffix(text, "\n")
			if ended && opts.Multiline {
				text = strings.TrimSuffix(text, "\r")
			}
			found = append(found, lineOf(search.GrepMatch{
				Name: name, Line: number,
				Context: m.Type == "context", Text: text,
			}))
			number++
		}
	}
	return found
}

// rgArgs returns the arguments of ripgrep for the options of Grep.
func rgArgs(o search.GrepOptions) []string {
	argv := slices.Clone(walkFlags)
	switch o.Mode {
	case search.GrepFiles:
		argv = append(argv, "-l", "--null")
	case search.GrepCounts:
		argv = append(argv, "-c", "--null", "--with-filename")
	default:
		argv = append(argv, "--json")
	}
	for _, flag := range []struct {
		set  bool
		flag []string
	}{
		{o.Literal, []string{"-F"}},
		{o.IgnoreCase, []string{"-i"}},
		{o.Multiline, []string{"-U", "--multiline-dotall"}},
		{o.NoIgnore, []string{"--no-ignore"}},
		{o.Before > 0, []string{"-B", strconv.Itoa(o.Before)}},
		{o.After > 0, []string{"-A", strconv.Itoa(o.After)}},
		{o.MaxFileMatches > 0, []string{"-m", strconv.Itoa(o.MaxFileMatches)}},
		{o.Glob != "", []string{"-g", o.Glob}},
		{o.Exclude != "", []string{"-g", "!" + o.Exclude}},
		{!o.NoIgnore, []string{"-g", "!.git"}},
	} {
		if flag.set {
			argv = append(argv, flag.flag...)
		}
	}
	for _, name := range o.Types {
		argv = append(argv, "-t", name)
	}
	pattern := o.Pattern
	if !o.Literal {
		pattern = forRipgrep(pattern, o.Multiline)
	}
	return append(argv, "-e", pattern)
}

// forRipgrep translates a pattern of package regexp: \d, \w, \s and \b match ASCII only, \s does
// not match a vertical tab, and \A and \z are the ends of the searched text, which is a line unless
// matches span several.
func forRipgrep(pattern string, multiline bool) string {
	const word, digit, space = "0-9A-Za-z_", "0-9", `\t\f\r\x20`
	sets := map[byte]string{'w': word, 'd': digit, 's': space}
	others := map[byte]string{
		'W': "[^" + word + "]", 'D': "[^" + digit + "]", 'S': "[^" + space + "]",
		'b': `(?-u:\b)`, 'B': `(?-u:\B)`,
	}
	if multiline {
		sets['s'] += `\n`
		others['S'] = "[^" + sets['s'] + "]"
	} else {
		others['A'], others['z'] = "^", "$"
	}
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			i++
			escaped := pattern[i]
			set, isSet := sets[escaped]
			other, isOther := others[escaped]
			switch {
			case isSet && inClass:
				b.WriteString(set)
			case isSet:
				b.WriteString("[" + set + "]")
			case isOther:
				b.WriteString(other)
			default:
				b.WriteString(pattern[i-1 : i+1])
			}
			continue
		case c == '[' && !inClass:
			inClass = true
		case c == '[' && strings.HasPrefix(pattern[i:], "[:"):
			end := i + strings.Index(pattern[i:], ":]") + 1
			b.WriteString(pattern[i:end])
			i, c = end, pattern[end]
		case c == ']':
			inClass = false
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unifyLines returns a text with line feeds for line endings.
func unifyLines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// unifyBytes returns a text with U+FFFD for each byte that is not UTF-8.
func unifyBytes(s string) string { return string([]rune(s)) }

// Kinds of content that only a twin makes comparable, see TestGrepParity.
func oddNUL(s string) bool {
	return strings.IndexByte(s, 0) >= 8<<10 && !strings.Contains(s[:8<<10], "\x00")
}

func oddAll(s string) bool {
	return oddNUL(s) || strings.Contains(s, "\r\n") || !utf8.ValidString(s)
}

// oddFiles returns the files below root that have such content.
func oddFiles(t *testing.T, root string, odd func(content string) bool) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err == nil && odd(string(content)) {
			name, err = filepath.Rel(root, name)
			all[filepath.ToSlash(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %d files with content that is not compared: %.500q", root, len(all),
		slices.Sorted(maps.Keys(all)))
	return all
}
