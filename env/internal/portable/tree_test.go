package portable_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// counted returns an environment with shells of this kind in a folder, and how many operations they have been told. One shell
// is ready.
func (k kind) counted(t *testing.T, dir string) (*portable.Environment, *atomic.Int64) {
	t.Helper()
	told := new(atomic.Int64)
	e := k.open(t, func(cfg *portable.Config) {
		start := cfg.Start
		cfg.Dir = dir
		cfg.Start = func(ctx context.Context) (portable.Shell, error) {
			s, err := start(ctx)
			if err == nil {
				s.Stdin = scripts{s.Stdin, told}
			}
			return s, err
		}
	})
	if _, err := e.Stat(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	return e, told
}

// plant makes files below a new folder: a name with a slash at the end is an empty folder, content that starts with "-> " a link.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, full)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(full, 0o777)
		} else {
			err = os.WriteFile(full, []byte(content), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// onlyFiles hides everything of an environment but files and where it is.
type onlyFiles struct {
	env.FileReader
	info env.Info
}

func (o onlyFiles) Info() env.Info { return o.info }

// walked returns what Walk reports.
func walked(ctx context.Context, e env.FileReader, root string, opts env.WalkOptions) (all []string, err error) {
	err = env.Walk(ctx, e, root, opts, func(entry env.Entry) error {
		line := fmt.Sprintf("%q %v", entry.Name, entry.Mode)
		if entry.Err != nil {
			line += fmt.Sprintf(" error %v", entry.Err)
		}
		if opts.Details && !entry.Mode.IsDir() {
			line += fmt.Sprint(" ", entry.Size, entry.ModTime)
		}
		all = append(all, line)
		return nil
	})
	return all, err
}

// strangeTree has what may go wrong when many folders are listed together.
func strangeTree() map[string]string {
	files := map[string]string{
		".git/HEAD": "ref", ".git/info/exclude": "excluded\n", ".gitignore": "ign*\n!ignore-not\n/build/\n", "excluded": "x", "build/deep/er/a": "x",
		"a\nb/c\n/\nd": "x", " = 0 0/x": "x", "+/ign": "x", "+/kept": "x", "quo'te\"$(x)`/$HOME/*": "x", "-rf/--/-n": "x", "\xff\xfe/\x01": "x",
		"empty/": "", "links/to": "-> ../-rf", "links/gone": "-> nowhere", "links/self": "-> self", "links/.gitignore": "-> ../rules", "rules": "kept",
		"no-rules/.gitignore/a": "x", "inner/.git/HEAD": "x", "inner/.git/info/exclude": "two\n", "inner/two": "x", "inner/ign": "x", "inner/in/two": "x",
		"tree/.git": "gitdir: ../inner/.git", "tree/two": "x", "tree/ign": "x", "bogus/.git/x": "x", "bogus/ign": "x", "bogus/b": "x",
		"file-git/.git": "nothing", "file-git/ign": "x", "file-git/c": "x", "long/.gitignore": strings.Repeat("# long\n", 10_000) + "hid", "long/hid": "x", "long/er/hid": "x",
		"deep/.gitignore": "log\n", "deep/a/b/c/d/log": "x", "deep/a/b/c/d/.gitignore": "!log\n", "deep/a/b/log": "x", "deep/a/.gitignore": "\nc\n\n",
	}
	return files
}

// TestWalkTogether walks with folders listed together, and one by one, which is the same.
func TestWalkTogether(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		dir := plant(t, strangeTree())
		e, _ := k.counted(t, dir)
		alone := onlyFiles{e, e.Info()}
		for _, root := range []string{"", ".", "./", "deep", "deep/a/b", "inner/in", "build/deep", "links/to", "links", dir, "missing", "rules"} {
			for _, opts := range []env.WalkOptions{{}, {NoIgnore: true, Details: true}, {MaxDepth: 2}} {
				want, wantErr := walked(t.Context(), alone, root, opts)
				got, err := walked(t.Context(), e, root, opts)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Errorf("%q %+v: error %v, want %v", root, opts, err, wantErr)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q %+v: got\n%s\nwant\n%s", root, opts, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		}
		for _, pattern := range []string{"**", "*", "deep/**/log", "links/*"} {
			want, _ := env.Glob(t.Context(), alone, env.GlobOptions{Pattern: pattern})
			got, err := env.Glob(t.Context(), e, env.GlobOptions{Pattern: pattern})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got\n%v\nwant\n%v\nerror %v", pattern, got, want, err)
			}
		}
	})
}

// TestSearchCost counts round trips.
func TestSearchCost(t *testing.T) {
	files := map[string]string{".git/HEAD": "", ".gitignore": "node_modules\n"}
	const depth = 5 // which is how many folders src/6/a/b goes through, with the topmost one
	for i := range 10 {
		for j := range 10 {
			files[fmt.Sprintf("src/%d/%d", i, j)] = "hit"
			files[fmt.Sprintf("src/%d/a/%d", i, j)] = "-> ../" + fmt.Sprint(j)
			files[fmt.Sprintf("src/%d/a/b/%d", i, j)] = "hit"
			files[fmt.Sprintf("node_modules/%d/%d/%d", i, j, j)] = "hit"
		}
		files[fmt.Sprintf("src/%d/.gitignore", i)] = "*.log"
	}
	each(t, func(t *testing.T, k kind) {
		e, told := k.counted(t, plant(t, files))
		for _, c := range []struct {
			what  string
			trips int64
			run   func() (int, error)
			want  int
		}{
			{"walk", depth, func() (int, error) {
				all, err := walked(t.Context(), e, "", env.WalkOptions{})
				return len(all), err
			}, 1 + 1 + 10*(1+10+1+1+10+1+10)},
			{"walk below with details", depth - 1 + 2, func() (int, error) {
				all, err := walked(t.Context(), e, "src", env.WalkOptions{Details: true})
				return len(all), err
			}, 10 * (1 + 10 + 1 + 1 + 10 + 1 + 10)},
			{"walk of a folder above which there is much", 3, func() (int, error) {
				all, err := walked(t.Context(), e, "src/5/a/b", env.WalkOptions{})
				return len(all), err
			}, 10},
			{"glob", depth + 1, func() (int, error) {
				all, err := env.Glob(t.Context(), e, env.GlobOptions{Pattern: "**"})
				return len(all), err
			}, 1 + 10*(10+1+10+10)},
			{"glob of one level", 1, func() (int, error) {
				all, err := env.Glob(t.Context(), e, env.GlobOptions{Pattern: "*"})
				return len(all), err
			}, 1},
			// The files come after those of the folders: 32, 128, and the rest. There is one look at what is to be searched.
			{"grep", depth + 1 + 3, func() (int, error) {
				stats, err := env.Grep(t.Context(), e, env.GrepOptions{Pattern: "hit", MaxMatches: -1}, func(env.GrepMatch) error { return nil })
				return stats.Files, err
			}, 1 + 10*(10+1+10)},
			{"grep of a few files", depth + 1 + 1, func() (int, error) {
				stats, err := env.Grep(t.Context(), e, env.GrepOptions{Pattern: "hit", Glob: "src/*/a/b/7"}, func(env.GrepMatch) error { return nil })
				return stats.Matches, err
			}, 10},
		} {
			before := told.Load()
			n, err := c.run()
			if trips := told.Load() - before; err != nil || n != c.want || trips > c.trips {
				t.Errorf("%s: %d, want %d, in %d round trips, want %d at most, error %v", c.what, n, c.want, trips, c.trips, err)
			} else {
				t.Logf("%s: %d round trips", c.what, trips)
			}
		}
	})
}

// TestReadDirs gives for each folder what it is, with its files, or why not.
func TestReadDirs(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		big := strings.Repeat("x", 32<<10)
		dir := plant(t, map[string]string{"a/f": "one\ntwo\n", "a/s/g": "", "b/f/x": "", "c/f": big, "d/f": big + "x", "e/": "", "file": "", "link": "-> a"})
		e, told := k.counted(t, dir)
		names := []string{"a", "a/", "missing", "b", "file", "", "c", "d", "e", "link", dir + "/a", "file/x"}
		before := told.Load()
		folders, err := e.ReadDirs(t.Context(), names, []string{"f", "s/g"})
		if err != nil || len(folders) != len(names) {
			t.Fatalf("%d folders, error %v", len(folders), err)
		}
		if trips := told.Load() - before; trips != 3 { // one name is there three times
			t.Errorf("%d round trips", trips)
		}
		for i, f := range folders {
			want, wantErr := e.ReadDir(t.Context(), names[i])
			if fmt.Sprint(f.Err) != fmt.Sprint(wantErr) || fmt.Sprint(f.Entries) != fmt.Sprint(want) {
				t.Errorf("%q: %v, error %v, want %v, error %v", names[i], f.Entries, f.Err, want, wantErr)
			}
			if f.Err == nil && len(f.Files) != 2 {
				t.Errorf("%q: %d files", names[i], len(f.Files))
			}
		}
		for _, c := range []struct {
			folder, file int
			data         string
			err          error
		}{
			{0, 0, "one\ntwo\n", nil}, {0, 1, "", nil}, {3, 0, "", env.ErrIsDir}, {3, 1, "", fs.ErrNotExist}, {6, 0, big, nil}, {8, 0, "", fs.ErrNotExist}, {9, 0, "one\ntwo\n", nil},
		} {
			f := folders[c.folder].Files[c.file]
			if string(f.Data) != c.data || !errors.Is(f.Err, c.err) || c.err == nil && (f.Data == nil || f.Err != nil) {
				t.Errorf("%s: %d bytes, error %v, want %d, error %v", f.Name, len(f.Data), f.Err, len(c.data), c.err)
			}
		}
		if f := folders[7].Files[0]; f.Data != nil || f.Err != nil {
			t.Errorf("a large file: %d bytes, error %v", len(f.Data), f.Err)
		}
	})
}

// TestReadDirsMany lists more folders than one find takes, with names of which fewer would be too long.
func TestReadDirsMany(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		files := make(map[string]string)
		var names []string
		for i := range 500 {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("x", i/200*120))
			names = append(names, name)
			files[fmt.Sprintf("%s/%d", name, i)] = ""
		}
		e, told := k.counted(t, plant(t, files))
		before := told.Load()
		folders, err := e.ReadDirs(t.Context(), names, []string{".gitignore"})
		if trips := told.Load() - before; err != nil || len(folders) != len(names) || trips != 1 {
			t.Fatalf("%d folders in %d round trips, error %v", len(folders), trips, err)
		}
		for i, f := range folders {
			if f.Err != nil || len(f.Entries) != 1 || f.Entries[0].Name() != fmt.Sprint(i) {
				t.Fatalf("folder %d: %v, error %v", i, f.Entries, f.Err)
			}
		}
	})
}

// TestReadDirsFailing lists folders while one tool fails for one of them.
func TestReadDirsFailing(t *testing.T) {
	dir := plant(t, map[string]string{"a/x": "", "b/broken": "", "c/y": ""})
	tools := t.TempDir()
	// This stat fails for one name, as for one that vanishes.
	script := "#!/bin/sh\nfor a; do case $a in */broken) echo 'no such thing' >&2; exit 1 ;; esac; done\nPATH=${PATH#*:} exec stat \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "stat"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	k := kinds()[0]
	e, _ := k.counted(t, dir)
	folders, err := e.ReadDirs(t.Context(), []string{"a", "b", "c"}, nil)
	if err != nil || len(folders) != 3 {
		t.Fatalf("%v, error %v", folders, err)
	}
	if len(folders[0].Entries) != 1 || len(folders[2].Entries) != 1 || folders[0].Err != nil || folders[2].Err != nil || folders[1].Err == nil {
		t.Errorf("got %v", folders)
	}
}

// TestTreeEnded gives nothing when the context ends and when the environment is closed.
func TestTreeEnded(t *testing.T) {
	k := kinds()[0]
	e, _ := k.counted(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(what string, ctx context.Context, want error) {
		t.Helper()
		folders, err := e.ReadDirs(ctx, []string{"."}, nil)
		regular, err2 := e.AreFiles(ctx, []string{"."})
		if folders != nil || regular != nil || !errors.Is(err, want) || !errors.Is(err2, want) {
			t.Errorf("%s: %v, %v, errors %v, %v", what, folders, regular, err, err2)
		}
		if all, err := walked(ctx, e, "", env.WalkOptions{}); all != nil || !errors.Is(err, want) {
			t.Errorf("%s: walk %v, error %v", what, all, err)
		}
	}
	check("canceled", ctx, context.Canceled)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", t.Context(), fs.ErrClosed)
}

// TestAreFiles finds what names lead to.
func TestAreFiles(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e, _ := k.counted(t, plant(t, map[string]string{"f\n'": "x", "d/": "", "to f": "-> f\n'", "to d": "-> d", "gone": "-> nothing"}))
		names := []string{"f\n'", "d", "to f", "to d", "gone", "missing", "", "/dev/null"}
		got, err := e.AreFiles(t.Context(), names)
		if want := []bool{true, false, true, false, false, false, false, false}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, want %v, error %v", got, want, err)
		}
	})
}
