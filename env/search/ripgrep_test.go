//go:build unix

package search_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// wordless are patterns without a required literal.
var wordless = []string{
	`[A-Z]{3}[0-9]`, `\d+\w\d`, `^\s+\w{3,5}$`, `^.{3}$`, `^[^a-z]*$`, `\b\w\b\s\b\w\b`,
	`[[:upper:]]{2}[[:punct:]]`, `.[^\x00-\x7f].`, `\pL\pN`,
	`^[\x{100}-\x{10ffff}]`, `^..?$`, `(?i)[k-m][r-t]`, `[^a]$`, `^[a-f]|[0-9]{4}$`,
	`(?:[ab]|[cd]{2}){3}`, `\S{30,}`, `^\W+$`, `[\r]`, `[^\r]$`,
	`\x{fffd}|[0-9]{5}`, `(\d)(\D)(\d)`, `^\s*[})]$`, `[a-c]{2,3}?[x-z]`, `[\t ]$`, `^\D\d`,
	`\B[0-4]\B`,
}

// wordlessTree creates files of few different characters, with invalid UTF-8, and with several
// encodings, line endings and names.
func wordlessTree(t *testing.T) string {
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"a", "b", "k", "S", "Z9", "12", "345", " ", "\t", "é", "ſ", "K", "\u2028", "\xff", "\xe2\x82",
		"\xed\xa0\x80", "�", "😀", ".", "})", "\r", "\n", "\n", "\r\n", "ABC1",
	}
	text := func() string {
		var b strings.Builder
		for range rnd.IntN(400) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		return b.String()
	}
	names := []string{
		"-", "-e", "with space", "new\nline", "bytes\xff\xfe", "{a,b}", "é",
		`back\slash`, "*", "--pre=sh",
	}
	for i := range 160 {
		dir := "sub"
		if i >= 60 { // searched first, so that ripgrep searches the others
			dir = "!sub"
		}
		names = append(names, fmt.Sprint(dir, i%3, "/f", i))
	}
	for i, name := range names {
		content := text()
		switch i % 7 {
		case 3:
			content = "\xef\xbb\xbf" + content
		case 4:
			content = "\xff\xfe" + strings.Join(strings.Split("AB1 \nabc12\r\n", ""), "\x00") + "\x00"
		case 5:
			content = "\x00" + content
		case 6:
			content += strings.Repeat("aé", 12_000) + "9"
		}
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Skip("this system refuses a name: ", err)
		}
	}
	return dir
}

func grepAll(
	t *testing.T, e env.Environment, opts search.GrepOptions,
) ([]search.GrepMatch, search.GrepStats) {
	t.Helper()
	var all []search.GrepMatch
	stats, err := search.Grep(t.Context(), e, opts, func(m search.GrepMatch) error {
		all = append(all, m)
		return nil
	})
	if err != nil {
		t.Fatalf("%+v: %v", opts, err)
	}
	return all, stats
}

// fakeRipgrep makes a script, as rg, the only program in PATH.
func fakeRipgrep(t *testing.T, script string) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rg"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

// TestRipgrepMakesNoDifference compares searches with ripgrep, and with broken ones, to searches
// without.
func TestRipgrepMakesNoDifference(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not installed: ", err)
	}
	dir := wordlessTree(t)
	e := newEnv(t, local.Config{Dir: dir})
	used := filepath.Join(t.TempDir(), "used")
	count := func() int {
		b, err := os.ReadFile(used)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	t.Setenv("PATH", t.TempDir())
	var all []search.GrepOptions
	for i, pattern := range wordless {
		if (!full() || race.Enabled()) && i%10 != 0 {
			continue
		}
		for _, opts := range []search.GrepOptions{
			{MaxFileMatches: 9}, {IgnoreCase: true, Before: 1, After: 2},
		} {
			opts.Pattern, opts.MaxMatches = pattern, -1
			all = append(all, opts)
		}
	}
	type found struct {
		matches []search.GrepMatch
		stats   search.GrepStats
	}
	want := map[int]found{}
	matches := 0
	for i, opts := range all {
		m, s := grepAll(t, e, opts)
		want[i] = found{m, s}
		matches += s.Matches
	}
	if matches < 10*len(all) {
		t.Errorf("only %d matches", matches)
	}
	for name, script := range map[string]string{
		"used":    fmt.Sprintf("echo x >>%s\nexec %s \"$@\"", used, rg),
		"failing": fmt.Sprintf("%s \"$@\"\nexit 2", rg),
		"killed":  "kill -9 $$",
		"garbage": "echo nonsense",
		"cut":     fmt.Sprintf("%s \"$@\" | /usr/bin/head -c 10000", rg),
		"absent":  "exit 127",
	} {
		t.Run(name, func(t *testing.T) {
			fakeRipgrep(t, script)
			for i, opts := range all {
				if name != "used" && full() && i%5 != 0 {
					continue
				}
				matches, stats := grepAll(t, e, opts)
				if !slices.Equal(matches, want[i].matches) || stats != want[i].stats {
					t.Errorf("%+v: %d matches, %+v, want %d, %+v",
						opts, len(matches), stats, len(want[i].matches), want[i].stats)
				}
			}
		})
	}
	if n := count(); n < len(all)/2 {
		t.Errorf("ripgrep was used %d times", n)
	}
}

// TestRipgrepInSearchedDir has a program rg in the searched directory, which is not run whatever
// names lead to it.
func TestRipgrepInSearchedDir(t *testing.T) {
	base := t.TempDir()
	dir, other, ran := wordlessTree(t), filepath.Join(base, "other"), filepath.Join(base, "ran")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "rg"), []byte("#!/bin/sh\necho x >"+ran), 0o755),
		os.Symlink(dir, filepath.Join(base, "link")),
		os.Mkdir(other, 0o777),
		os.Symlink(filepath.Join(dir, "rg"), filepath.Join(other, "rg")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tt := range []struct{ path, workDir, searched string }{
		{dir, dir, ""},
		{".", dir, ""},
		{"", dir, ""},
		{dir + "/!sub0/..", dir, ""},
		{dir, base + "/link", ""},
		{base + "/link", dir, ""},
		{other, dir, ""},
		{dir, base, dir},
		{dir, base, "link"},
		{base + "/link", base, dir},
	} {
		e, err := local.New(local.Config{Dir: tt.workDir})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", tt.path)
		grepAll(t, e, search.GrepOptions{Pattern: `^[a-z]{2}\d`, Path: tt.searched, MaxMatches: -1})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Fatalf("%+v: a searched program was run", tt)
		}
	}
}

// TestRipgrepUse reports when ripgrep is used, and compares the results.
func TestRipgrepUse(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not installed: ", err)
	}
	dir := t.TempDir()
	for i := range 300 {
		content := strings.Repeat("A1,B2,C3\n", 300) + strings.Repeat("-", i) + "Q7\n"
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := newEnv(t, local.Config{Dir: dir})
	const often = `[A-H][1-8][^a-z][A-H]`
	for _, tt := range []struct {
		name string
		opts search.GrepOptions
		used bool
	}{
		{"all lines", search.GrepOptions{Pattern: often}, true},
		{"all files", search.GrepOptions{Pattern: often, Mode: search.GrepFiles}, true},
		{"counts", search.GrepOptions{Pattern: often, Mode: search.GrepCounts}, true},
		{"one line of each", search.GrepOptions{Pattern: `[P-W][4-9]$`, Before: 3}, true},
		{"nothing", search.GrepOptions{Pattern: `[x-z]{3}[0-9]`}, true},
		{"enough in the first files", search.GrepOptions{Pattern: often, MaxMatches: 100}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			tt.opts.MaxMatches = cmp.Or(tt.opts.MaxMatches, -1)
			want, wantStats := grepAll(t, e, tt.opts)
			used := filepath.Join(t.TempDir(), "used")
			fakeRipgrep(t, fmt.Sprintf("echo x >>%s\nexec %s \"$@\"", used, rg))
			got, stats := grepAll(t, e, tt.opts)
			if !slices.Equal(want, got) || stats != wantStats {
				t.Errorf("%d matches, %+v, without ripgrep %d, %+v", len(got), stats, len(want), wantStats)
			}
			if _, err := os.Stat(used); (err == nil) != tt.used {
				t.Errorf("ripgrep was used: %v, want %v", err == nil, tt.used)
			}
		})
	}
	for _, path := range []string{filepath.Dir(rg), t.TempDir()} {
		t.Setenv("PATH", path)
		_, stats := grepAll(t, e, search.GrepOptions{Pattern: `[x-z]{3}[0-9]`, MaxBytes: 400_000})
		if stats.Stopped != search.GrepOverBytes || stats.Files > 200 {
			t.Errorf("PATH=%s: the limit allows 150 files or so: %+v", path, stats)
		}
	}
}

// FuzzRipgrep compares a search with ripgrep to one without.
func FuzzRipgrep(f *testing.F) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		f.Skip("ripgrep is not installed: ", err)
	}
	for _, pattern := range wordless {
		f.Add(pattern, "Z9 12\r\nab345\xffé9\n\x00")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if _, err := regexp.Compile(pattern); err != nil || len(pattern) > 200 {
			t.Skip("not an expression, or a long one")
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := os.Link(filepath.Join(dir, "0"), filepath.Join(dir, fmt.Sprint(i+1))); err != nil {
				t.Fatal(err)
			}
		}
		e := newEnv(t, local.Config{Dir: dir})
		search := func(path string) (all []search.GrepMatch, stats search.GrepStats, err error) {
			t.Setenv("PATH", path)
			stats, err = search.Grep(t.Context(), e, search.GrepOptions{Pattern: pattern, MaxMatches: -1},
				func(m search.GrepMatch) error {
					all = append(all, m)
					return nil
				})
			return all, stats, err
		}
		with, withStats, err := search(filepath.Dir(rg))
		if err != nil {
			t.Skip(err)
		}
		without, stats, err := search(filepath.Join(dir, "nothing"))
		if err != nil || !slices.Equal(with, without) || withStats != stats {
			t.Errorf("%q in %q: %+v, %+v, without ripgrep %+v, %+v, %v", pattern, text, with, withStats,
				without, stats, err)
		}
	})
}
