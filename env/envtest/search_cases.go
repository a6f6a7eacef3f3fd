package envtest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func searchCases() []testCase {
	return []testCase{
		{name: "walk", rule: ruleSearch, run: searchWalk},
		{name: "walk_skips", rule: ruleSearch, run: searchWalkSkips},
		{name: "glob", rule: ruleSearch, run: searchGlob},
		{name: "glob_newest_first", rule: ruleSearch, run: searchGlobOrder},
		{name: "grep", rule: ruleSearch, run: searchGrep},
		{name: "grep_limits", rule: ruleSearch, run: searchGrepLimits},
		{name: "errors", rule: ruleSearch, run: searchErrors},
		{name: "special_files", rule: ruleSpecial, run: searchSpecial},
		{name: "fs", rule: ruleFS, run: searchFS},
	}
}

// plain hides the optional interfaces of an environment.
type plain struct{ env.Environment }

// both calls f with the environment, and with one that has no optional interfaces, which must make
// no difference.
func (c *caseT) both(f func(what string, e env.Environment)) {
	f("", c.e)
	f(" without optional interfaces", plain{c.e})
}

// searchTree makes the tree that the cases search.
func (c *caseT) searchTree() {
	c.unix()
	c.in(c.dir,
		tarFile(".gitignore", "*.log\n/build/\n!keep.log\n"), tarFile(".hidden", "needle hidden\n"),
		tarFile("a.txt", "first\nneedle a\nNEEDLE b\r\nlast needle"), tarFile("app.log",
			"needle log\n"), tarFile("keep.log", "needle kept\n"),
		tarFile("binary", "needle\x00needle\n"), tarFile("bom.txt", "\xef\xbb\xbfneedle bom\n"),
		tarFile("latin1.txt", "needle \xe9\n"),
		tarDir("build", 0o755), tarFile("build/out.txt", "needle built\n"),
		tarFile("sub/.gitignore", "secret.txt\n"), tarFile("sub/secret.txt",
			"needle secret\n"), tarFile("sub/code.go", "// needle\npackage sub\n"),
		tarFile("sub/deep/with space.go", "// needle space\n"), tarSymlink("sub/loop",
			".."), tarSymlink("linked.txt", "a.txt"), tarSymlink("dangling.txt", "nowhere"),
		tarFile(".git/config", "needle git\n"), tarFile(".git/HEAD", "ref: refs/heads/main\n"),
	)
}

func (c *caseT) wantList(what string, err error, got []string, want ...string) {
	if err != nil {
		c.errorf("%s: %v", what, err)
	}
	if !slices.Equal(got, want) {
		c.errorf("%s:\n\t%q, want\n\t%q", what, got, want)
	}
}

func searchWalk(c *caseT) {
	c.searchTree()
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct {
			what string
			opts search.WalkOptions
			want []string
		}{
			{"Walk", search.WalkOptions{}, []string{
				".gitignore", ".hidden", "a.txt", "binary", "bom.txt", "dangling.txt@", "keep.log",
				"latin1.txt", "linked.txt@",
				"sub/", "sub/.gitignore", "sub/code.go", "sub/deep/", "sub/deep/with space.go", "sub/loop@",
			}},
			{"Walk of one level", search.WalkOptions{MaxDepth: 1}, []string{
				".gitignore", ".hidden", "a.txt", "binary", "bom.txt", "dangling.txt@", "keep.log",
				"latin1.txt", "linked.txt@", "sub/",
			}},
			{"Walk of everything", search.WalkOptions{NoIgnore: true}, []string{
				".git/", ".git/HEAD", ".git/config", ".gitignore", ".hidden", "a.txt", "app.log", "binary",
				"bom.txt", "build/", "build/out.txt",
				"dangling.txt@", "keep.log", "latin1.txt", "linked.txt@", "sub/", "sub/.gitignore",
				"sub/code.go", "sub/deep/", "sub/deep/with space.go",
				"sub/loop@", "sub/secret.txt",
			}},
		} {
			var got []string
			err := search.Walk(c.ctx, e, c.dir, tc.opts, func(entry search.Entry) error {
				mark := map[fs.FileMode]string{fs.ModeDir: "/", fs.ModeSymlink: "@"}[entry.Mode.Type()]
				got = append(got, entry.Name+mark)
				return entry.Err
			})
			c.wantList(tc.what+what, err, got, tc.want...)
		}
		err := search.Walk(c.ctx, e, c.dir, search.WalkOptions{Details: true},
			func(entry search.Entry) error {
				if entry.Name == "a.txt" && (entry.Size != 36 || entry.Mode != 0o644 ||
					entry.ModTime.IsZero()) {
					c.errorf("Walk with details%s: a file of 36 bytes and mode 0644 has %+v", what, entry)
				}
				return nil
			})
		if err != nil {
			c.errorf("Walk with details%s: %v", what, err)
		}
	})
}

func searchWalkSkips(c *caseT) {
	c.searchTree()
	stop := errors.New("enough seen")
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct {
			at   string
			with error
			want []string
			err  error
		}{
			{"sub", fs.SkipDir, []string{
				".gitignore", ".hidden", "a.txt", "binary", "bom.txt",
				"dangling.txt", "keep.log", "latin1.txt", "linked.txt", "sub",
			}, nil},
			{"a.txt", fs.SkipAll, []string{".gitignore", ".hidden", "a.txt"}, nil},
			{"sub/code.go", fs.SkipDir, []string{
				".gitignore", ".hidden", "a.txt", "binary", "bom.txt", "dangling.txt", "keep.log", "latin1.txt",
				"linked.txt", "sub", "sub/.gitignore", "sub/code.go",
			}, nil},
			{".hidden", stop, []string{".gitignore", ".hidden"}, stop},
		} {
			var got []string
			err := search.Walk(c.ctx, e, c.dir, search.WalkOptions{}, func(entry search.Entry) error {
				got = append(got, entry.Name)
				if entry.Name == tc.at {
					return tc.with
				}
				return nil
			})
			if !errors.Is(err, tc.err) {
				c.errorf("Walk%s whose function returns %q at %s: error %v, want %v", what, tc.with, tc.at, err,
					tc.err)
			}
			c.wantList(fmt.Sprintf("Walk%s whose function returns %q at %s", what, tc.with, tc.at), nil, got,
				tc.want...)
		}
	})
}

func (c *caseT) glob(e env.Environment, opts search.GlobOptions) ([]string, error) {
	entries, err := search.Glob(c.ctx, e, opts)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name)
	}
	return names, err
}

func searchGlob(c *caseT) {
	c.searchTree()
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct {
			opts search.GlobOptions
			want []string
		}{
			{search.GlobOptions{Pattern: "*.txt"}, []string{"a.txt", "bom.txt", "latin1.txt", "linked.txt"}},
			{search.GlobOptions{Pattern: "**/*.go"}, []string{"sub/code.go", "sub/deep/with space.go"}},
			{search.GlobOptions{Pattern: "**/*.log"}, []string{"keep.log"}},
			{search.GlobOptions{Pattern: "**/*.{log,go}", NoIgnore: true}, []string{
				"app.log", "keep.log",
				"sub/code.go", "sub/deep/with space.go",
			}},
			{search.GlobOptions{Pattern: ".h*"}, []string{".hidden"}},
			{
				search.GlobOptions{Pattern: "{sub,sub/l*,*d.txt,**/.git}", NoIgnore: true, AnyType: true},
				[]string{".git", "linked.txt", "sub", "sub/loop"},
			},
			{search.GlobOptions{Pattern: "dang*", AnyType: true}, []string{"dangling.txt"}},
			{search.GlobOptions{Pattern: "[ab]*.txt"}, []string{"a.txt", "bom.txt"}},
			{search.GlobOptions{Pattern: "no-such-file"}, nil},
		} {
			opts := tc.opts
			opts.Dir = c.dir
			got, err := c.glob(e, opts)
			slices.Sort(got) // Files of one archive may have any order of age.
			c.wantList(fmt.Sprintf("Glob%s of %+v", what, tc.opts), err, got, tc.want...)
		}
		got, err := c.glob(e, search.GlobOptions{Pattern: "*.go", Dir: c.abs("sub")})
		c.wantList("Glob"+what+" in an absolute directory", err, got, "code.go")
	})
}

func searchGlobOrder(c *caseT) {
	c.unix()
	c.sh(`for i in 1 2 3 4 5; do : >"$i.txt"; touch -t "20010101000$i.00" "$i.txt"; done
: >0.txt; touch -t 200001010000.00 0.txt; touch -t 200101010003.00 a.txt`)
	c.both(func(what string, e env.Environment) {
		got, err := c.glob(e, search.GlobOptions{Pattern: "*.txt", Dir: c.dir})
		c.wantList("Glob"+what, err, got, "5.txt", "4.txt", "3.txt", "a.txt", "2.txt", "1.txt", "0.txt")
		got, err = c.glob(e, search.GlobOptions{Pattern: "*.txt", Dir: c.dir, Limit: 2})
		c.wantList("Glob with a limit"+what, err, got, "5.txt", "4.txt")
	})
}

func (c *caseT) grep(
	e env.Environment, opts search.GrepOptions,
) ([]string, search.GrepStats, error) {
	var got []string
	stats, err := search.Grep(c.ctx, e, opts, func(m search.GrepMatch) error {
		cut := ""
		if m.LineCut {
			cut = "…"
		}
		got = append(got, fmt.Sprintf("%s:%d:%s%s", strings.TrimPrefix(strings.TrimPrefix(m.Name,
			opts.Path), "/"), m.Line, m.Text, cut))
		return nil
	})
	return got, stats, err
}

func searchGrep(c *caseT) {
	c.searchTree()
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct {
			opts search.GrepOptions
			want []string
		}{
			{search.GrepOptions{Pattern: "needle"}, []string{
				".hidden:1:needle hidden", "a.txt:2:needle a", "a.txt:4:last needle", "bom.txt:1:needle bom",
				"keep.log:1:needle kept", "latin1.txt:1:needle \xe9",
				"sub/code.go:1:// needle", "sub/deep/with space.go:1:// needle space",
			}},
			{search.GrepOptions{Pattern: "^needle [ab]$", IgnoreCase: true}, []string{
				"a.txt:2:needle a",
				"a.txt:3:NEEDLE b",
			}},
			{search.GrepOptions{Pattern: "needle", Glob: "*.go"}, []string{
				"sub/code.go:1:// needle",
				"sub/deep/with space.go:1:// needle space",
			}},
			{search.GrepOptions{Pattern: "needle", Glob: "sub/*.go"}, []string{"sub/code.go:1:// needle"}},
			{search.GrepOptions{Pattern: "needle (log|built|secret|git)", NoIgnore: true}, []string{
				".git/config:1:needle git", "app.log:1:needle log", "build/out.txt:1:needle built",
				"sub/secret.txt:1:needle secret",
			}},
			{search.GrepOptions{Pattern: "no such text"}, nil},
		} {
			opts := tc.opts
			opts.Path = c.dir
			got, _, err := c.grep(e, opts)
			c.wantList(fmt.Sprintf("Grep%s of %+v", what, tc.opts), err, got, tc.want...)
		}
		opts := search.GrepOptions{Pattern: "needle", Path: c.name("a.txt")}
		got, stats, err := c.grep(e, opts)
		c.wantList("Grep"+what+" of one file", err, got, ":2:needle a", ":4:last needle")
		if want := (search.GrepStats{Files: 1, Matches: 2}); stats != want {
			c.errorf("Grep%s of one file: %+v, want %+v", what, stats, want)
		}
		_, stats, _ = c.grep(e, search.GrepOptions{Pattern: "needle", Path: c.dir})
		if stats.SkippedBinary != 1 || stats.Matches != 8 || stats.Truncated {
			c.errorf("Grep%s: %+v, want 8 matches and one binary file", what, stats)
		}
	})
}

func searchGrepLimits(c *caseT) {
	c.write(c.name("lines"), strings.Repeat("needle\n", 300))
	c.write(c.name("long"), strings.Repeat("é", 1<<20)+"needle\n")
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct{ max, want int }{
			{0, search.DefaultMaxMatches},
			{7, 7},
			{300, 300},
			{-1, 300},
		} {
			got, stats, err := c.grep(e, search.GrepOptions{
				Pattern: "needle", Path: c.name("lines"),
				MaxMatches: tc.max,
			})
			if err != nil || len(got) != tc.want || stats.Matches != tc.want ||
				stats.Truncated != (tc.want < 300) {
				c.errorf("Grep%s of 300 lines with MaxMatches %d: %d lines, %+v, error %v", what, tc.max,
					len(got), stats, err)
			}
		}
		got, _, err := c.grep(e, search.GrepOptions{
			Pattern: "needle$", Path: c.name("long"),
			MaxLineBytes: 11,
		})
		c.wantList("Grep"+what+" of a long line", err, got, ":1:"+strings.Repeat("é", 5)+"…")
	})
}

func searchErrors(c *caseT) {
	c.both(func(what string, e env.Environment) {
		missing := c.name("missing")
		c.is("Walk of a missing directory"+what, search.Walk(c.ctx, e, missing, search.WalkOptions{},
			func(search.Entry) error { return nil }), fs.ErrNotExist)
		_, err := c.glob(e, search.GlobOptions{Pattern: "*", Dir: missing})
		c.is("Glob in a missing directory"+what, err, fs.ErrNotExist)
		_, _, err = c.grep(e, search.GrepOptions{Pattern: "x", Path: missing})
		c.is("Grep of a missing file"+what, err, fs.ErrNotExist)
		_, err = c.glob(e, search.GlobOptions{Pattern: "[", Dir: c.dir})
		c.is("Glob with a bad pattern"+what, err, search.ErrBadPattern)
		_, _, err = c.grep(e, search.GrepOptions{Pattern: "(", Path: c.dir})
		c.is("Grep with a bad pattern"+what, err, search.ErrBadPattern)
	})
}

func searchSpecial(c *caseT) {
	c.unix()
	c.tool("mkfifo")
	c.sh(`mkfifo pipe; ln -s pipe to-pipe; echo needle >file`)
	c.both(func(what string, e env.Environment) {
		c.within("a search"+what, func() {
			got, _, err := c.grep(e, search.GrepOptions{Pattern: "needle", Path: c.dir})
			c.wantList("Grep"+what, err, got, "file:1:needle")
			got, err = c.glob(e, search.GlobOptions{Pattern: "*", Dir: c.dir})
			c.wantList("Glob"+what, err, got, "file")
		})
	})
}

// searchFS checks a subtree: other cases change the working directory at the same time.
func searchFS(c *caseT) {
	c.unix()
	c.in(c.dir, tarFile("a.txt", "text"), tarFile("empty", ""), tarDir("sub", 0o755),
		tarFile("sub/b", allBytes), tarFile("sub/with space", "x"),
		tarDir("sub/empty", 0o755), tarFileMode("executable", "x", 0o755))
	c.poll("the clock to move on from the time of the files", func() bool {
		info, err := c.e.Stat(c.ctx, c.name("a.txt"))
		return err != nil || time.Since(info.ModTime()) > 20*time.Millisecond
	})
	sub, err := fs.Sub(env.FS(c.ctx, c.e), c.dir)
	if err != nil {
		c.fatalf("fs.Sub: %v", err)
	}
	if err := fstest.TestFS(sub, "a.txt", "empty", "sub/b", "sub/with space",
		"executable"); err != nil {
		c.errorf("fstest.TestFS: %v", err)
	}
}
