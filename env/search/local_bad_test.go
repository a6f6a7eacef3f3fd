//go:build unix

package search_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// namesOf returns the files in which Grep finds something.
func namesOf(
	t *testing.T, e env.FileReader, opts search.GrepOptions,
) (names []string, stats search.GrepStats, err error) {
	t.Helper()
	opts.Mode = search.GrepFiles
	stats, err = search.Grep(t.Context(), e, opts, func(m search.GrepMatch) error {
		names = append(names, m.Name)
		return nil
	})
	return names, stats, err
}

func TestGrepOfBadPatterns(t *testing.T) {
	e := newEnv(t, local.Config{})
	put(t, e, "f", "a\n", env.WriteOptions{})
	for _, tt := range []struct {
		opts search.GrepOptions
		says string // a part of the message
	}{
		{search.GrepOptions{Pattern: "a(b"}, "`a(b`"},
		{search.GrepOptions{Pattern: "a[z-b]c"}, "`z-b`"},
		{search.GrepOptions{Pattern: "x[a"}, "`[a`"},
		{search.GrepOptions{Pattern: "a**"}, "`**`"},
		{search.GrepOptions{Pattern: `x\8y`}, "`\\8`"},
		{search.GrepOptions{Pattern: "x(?<=y)"}, "(?<=y)"},
		{search.GrepOptions{Pattern: "a{1001}"}, "`{1001}`"},
		{search.GrepOptions{Pattern: `\p{Nothing}`}, "`\\p{Nothing}`"},
		{search.GrepOptions{Pattern: `a\nb`}, "line ending"},
		{search.GrepOptions{Pattern: "a\nb", Literal: true}, "line ending"},
		{search.GrepOptions{Pattern: "a", Glob: "{a"}, `"{a"`},
		{search.GrepOptions{Pattern: "a", Exclude: "x/../y"}, `".."`},
		{search.GrepOptions{Pattern: "a", Types: []string{"golang"}}, `"golang"`},
	} {
		_, stats, err := namesOf(t, e, tt.opts)
		if !errors.Is(err, search.ErrBadPattern) || stats != (search.GrepStats{}) {
			t.Errorf("%+v: %+v, %v", tt.opts, stats, err)
		}
		if err != nil && !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(err.Error(), `\\`, `\`),
			`"`, "`"), strings.ReplaceAll(tt.says, `"`, "`")) {
			t.Errorf("%+v: %v does not say %s", tt.opts, err, tt.says)
		}
	}
}

func TestGrepOfBadPaths(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "sub/f", "hit\n", env.WriteOptions{})
	fifo(t, filepath.Join(dir, "pipe"))
	fifo(t, filepath.Join(dir, "sub", "pipe"))
	for name, to := range map[string]string{
		"1": "2", "2": "1", "self": "self", "sub/up": "..",
		"sub/here": ".", "sub/pipe link": "pipe", "nowhere": "missing",
	} {
		link(t, to, filepath.Join(dir, name))
	}
	for path, want := range map[string]error{
		"missing": fs.ErrNotExist, "sub/missing": fs.ErrNotExist, "nowhere": fs.ErrNotExist,
		"sub/f/g": env.ErrNotDir, "pipe": env.ErrNotRegular, "sub/pipe link": env.ErrNotRegular,
		"1": syscall.ELOOP, "self": syscall.ELOOP, "a\x00": fs.ErrInvalid, strings.Repeat("n",
			300): syscall.ENAMETOOLONG,
	} {
		names, stats, err := namesOf(t, e, search.GrepOptions{Pattern: "hit", Path: path})
		if !errors.Is(err, want) || len(names) > 0 || stats != (search.GrepStats{}) {
			t.Errorf("%.20q: %q, %+v, %v, want %v", path, names, stats, err, want)
		}
	}
	// Below a folder, pipes and links are no files, and no link is followed.
	for path, want := range map[string][]string{
		"": {"sub/f"}, "sub": {"sub/f"},
		"sub/here/here": {"sub/here/here/f"}, "sub/up": {"sub/up/sub/f"},
	} {
		names, stats, err := namesOf(t, e, search.GrepOptions{Pattern: "hit", Path: path})
		if diff := cmp.Diff(want, names); diff != "" || err != nil || stats.Files != 1 {
			t.Errorf("%q: %+v, %v\n%s", path, stats, err, diff)
		}
	}
}

// sparse makes a file with some content at its start and nothing but a hole behind.
func sparse(t *testing.T, name, content string, size int64) {
	t.Helper()
	err := os.WriteFile(name, []byte(content), 0o666)
	if err == nil {
		err = os.Truncate(name, size)
	}
	if err != nil {
		t.Skip("files of that size cannot be made here: ", err)
	}
}

// allocated returns how many bytes a function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestGrepOfHugeFiles(t *testing.T) {
	size := int64(8 << 20)
	enough := uint64(2 * size) // bytes of memory for any file
	// which makes it slow, so that what else goes on allocates more meanwhile
	if raceEnabled() {
		size, enough = 1<<20, math.MaxUint64
	}
	text := strings.Repeat("hit\n", 9<<10/4)
	t.Run("a hole first", func(t *testing.T) {
		e := newEnv(t, local.Config{})
		sparse(t, filepath.Join(e.Info().WorkDir, "huge"), "hit\n", 10<<30)
		var names []string
		var stats search.GrepStats
		var err error
		used := allocated(func() {
			names, stats, err = namesOf(t, e,
				search.GrepOptions{Pattern: "hit"})
		})
		if stats != (search.GrepStats{SkippedBinary: 1}) || err != nil || len(names) > 0 {
			t.Errorf("%q, %+v, %v", names, stats, err)
		}
		if used > enough {
			t.Errorf("it takes %d MiB", used>>20)
		}
	})
	for _, pattern := range []string{"hit", "h.*t$|[x-z]{3}"} {
		t.Run("to its end "+pattern, func(t *testing.T) {
			e := newEnv(t, local.Config{})
			sparse(t, filepath.Join(e.Info().WorkDir, "large"), text, 3*size)
			var stats search.GrepStats
			var err error
			used := allocated(func() {
				stats, err = search.Grep(t.Context(), e, search.GrepOptions{Pattern: pattern, MaxMatches: -1},
					func(search.GrepMatch) error { return nil })
			})
			if want := (search.GrepStats{Files: 1, Matches: len(text) / 4}); stats != want || err != nil {
				t.Errorf("%+v, %v, want %+v", stats, err, want)
			}
			if used > enough {
				t.Errorf("it takes %d MiB", used>>20)
			}
		})
		t.Run("canceled "+pattern, func(t *testing.T) {
			e := newEnv(t, local.Config{})
			sparse(t, filepath.Join(e.Info().WorkDir, "huge"), text, 10<<30)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			used := allocated(func() {
				_, err = search.Grep(ctx, e, search.GrepOptions{Pattern: pattern, MaxMatches: -1},
					func(search.GrepMatch) error {
						cancel()
						return nil
					})
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v", err)
			}
			if used > enough {
				t.Errorf("it takes %d MiB", used>>20)
			}
		})
	}
	t.Run("several lines", func(t *testing.T) {
		e := newEnv(t, local.Config{})
		put(t, e, "z", "hit\nhit\n", env.WriteOptions{})
		sparse(t, filepath.Join(e.Info().WorkDir, "huge"), text, 10<<30)
		var names []string
		var err error
		used := allocated(func() {
			names, _, err = namesOf(t, e, search.GrepOptions{
				Pattern:   `hit\nhit`,
				Multiline: true,
			})
		})
		var unreadable *search.UnreadableError
		if !errors.As(err, &unreadable) || unreadable.Count != 1 || !cmp.Equal(names, []string{"z"}) {
			t.Errorf("%q, %v", names, err)
		}
		if used > 2*enough {
			t.Errorf("it takes %d MiB", used>>20)
		}
	})
}

// TestGrepOfClosedFolders is about an ordinary user. Root has it run once more by one.
func TestGrepOfClosedFolders(t *testing.T) {
	if os.Getuid() == 0 {
		asOrdinaryUser(t)
		return
	}
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	for _, name := range []string{
		"a", "closed/x", "closed/in/y", "listed/x", "file", "ignored/x",
		"searched/x", "z/.gitignore", "z/x", "z/hit",
	} {
		put(t, e, name, "hit\n", env.WriteOptions{})
	}
	put(t, e, ".gitignore", "/ignored/\n", env.WriteOptions{})
	for name, mode := range map[string]fs.FileMode{
		"closed": 0, "listed": 0o444, "file": 0,
		"ignored": 0, "searched": 0o111, "z/.gitignore": 0,
	} {
		name = filepath.Join(dir, name)
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(name, 0o700) }) //nolint:gosec // so that it can be removed
	}
	names, stats, err := namesOf(t, e, search.GrepOptions{Pattern: "hit"})
	if diff := cmp.Diff([]string{"a", "z/hit", "z/x"}, names); diff != "" || stats.Matches != 3 {
		t.Errorf("%+v: %s", stats, diff)
	}
	// The folders that are not to be listed, a file in one whose files are not to be opened, a file,
	// and an ignore file twice: as one, and as a file.
	var unreadable *search.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Count != 6 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error is %v", err)
	}
	if _, stats, err := namesOf(t, e, search.GrepOptions{
		Pattern: "hit",
		Path:    "closed",
	}); !errors.Is(err, fs.ErrPermission) || errors.As(err, &unreadable) || stats != (search.GrepStats{}) {
		t.Errorf("a closed folder that is named: %+v, %v", stats, err)
	}
	if names, _, err := namesOf(t, e, search.GrepOptions{
		Pattern: "hit",
		Path:    "searched/x",
	}); err != nil || len(names) != 1 {
		t.Errorf("a file in a folder that may not be listed: %q, %v", names, err)
	}
}

// asOrdinaryUser runs a test in another process, as a user without rights.
func asOrdinaryUser(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "test")
	if err := errors.Join(os.WriteFile(name, program, 0o755), os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // for another user
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, "-test.run=^"+t.Name()+"$", "-test.v",
		"-test.timeout=5m")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("as an ordinary user: %v\n%s", err, out)
	}
}
