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
	"github.com/sandboxagent/sandboxagent/internal/race"
)

// namesOf returns the files in which Grep finds "hit".
func namesOf(
	t *testing.T, e env.FileReader, path string,
) (names []string, stats search.GrepStats, err error) {
	t.Helper()
	opts := search.GrepOptions{Pattern: "hit", Path: path, Mode: search.GrepFiles}
	stats, err = search.Grep(t.Context(), e, opts, func(m search.GrepMatch) error {
		names = append(names, m.Name)
		return nil
	})
	return names, stats, err
}

func TestGrepPaths(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	writeFile(t, dir, "sub/f", "hit\n")
	fifo(t, filepath.Join(dir, "pipe"))
	fifo(t, filepath.Join(dir, "sub", "pipe"))
	for name, to := range map[string]string{
		"1": "2", "2": "1", "self": "self", "sub/up": "..",
		"sub/here": ".", "sub/pipe link": "pipe", "nowhere": "missing",
	} {
		symlink(t, to, filepath.Join(dir, name))
	}
	for path, want := range map[string]error{
		"missing": fs.ErrNotExist, "sub/missing": fs.ErrNotExist, "nowhere": fs.ErrNotExist,
		"sub/f/g": env.ErrNotDir, "pipe": env.ErrNotRegular, "sub/pipe link": env.ErrNotRegular,
		"1": syscall.ELOOP, "self": syscall.ELOOP, "a\x00": fs.ErrInvalid,
		strings.Repeat("n", 300): syscall.ENAMETOOLONG,
	} {
		names, stats, err := namesOf(t, e, path)
		if !errors.Is(err, want) || len(names) > 0 || stats != (search.GrepStats{}) {
			t.Errorf("%.20q: %q, %+v, %v, want %v", path, names, stats, err, want)
		}
	}
	// Below a directory, FIFOs are not read, and no symlink is followed.
	for path, want := range map[string][]string{
		"": {"sub/f"}, "sub": {"sub/f"},
		"sub/here/here": {"sub/here/here/f"}, "sub/up": {"sub/up/sub/f"},
	} {
		names, stats, err := namesOf(t, e, path)
		if diff := cmp.Diff(want, names); diff != "" || err != nil || stats.Files != 1 {
			t.Errorf("%q: %+v, %v\n%s", path, stats, err, diff)
		}
	}
}

// TestGrepMemory searches sparse files of up to 10 GiB, whose hole is one long line, in little
// memory.
func TestGrepMemory(t *testing.T) {
	const huge = 10 << 30
	large, enough := int64(24<<20), uint64(16<<20)
	if race.Enabled() {
		large, enough = 3<<20, math.MaxUint64 // the detector allocates too
	}
	hits := strings.Repeat("hit\n", 9<<10/4) // longer than the part that is probed for NUL
	opts := search.GrepOptions{Pattern: "hit", MaxMatches: -1}
	slow, lines := opts, opts
	slow.Pattern = "h.*t$|[x-z]{3}"
	lines.Pattern, lines.Multiline = `hit\nhit`, true
	for _, tt := range []struct {
		name    string
		content string
		size    int64
		opts    search.GrepOptions
		cancel  bool // at the first match
		stats   search.GrepStats
	}{
		{
			name: "binary", content: "hit\n", size: huge, opts: opts,
			stats: search.GrepStats{SkippedBinary: 1},
		},
		{
			name: "to the end", content: hits, size: large, opts: opts,
			stats: search.GrepStats{Files: 1, Matches: len(hits) / 4},
		},
		{
			name: "to the end, by expression", content: hits, size: large, opts: slow,
			stats: search.GrepStats{Files: 1, Matches: len(hits) / 4},
		},
		{name: "canceled", content: hits, size: huge, opts: opts, cancel: true},
		{name: "canceled, by expression", content: hits, size: huge, opts: slow, cancel: true},
		{
			name: "several lines", content: hits, size: huge, opts: lines,
			stats: search.GrepStats{Files: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t, local.Config{})
			writeFile(t, e.Info().WorkDir, "f", tt.content)
			if err := os.Truncate(filepath.Join(e.Info().WorkDir, "f"), tt.size); err != nil {
				t.Skip("files of that size cannot be created: ", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			stats, err := search.Grep(ctx, e, tt.opts, func(search.GrepMatch) error {
				if tt.cancel {
					cancel()
				}
				return nil
			})
			runtime.ReadMemStats(&after)
			var unreadable *search.UnreadableError
			switch {
			case tt.cancel:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error is %v", err)
				}
			case stats != tt.stats || errors.As(err, &unreadable) != tt.opts.Multiline:
				t.Errorf("%+v, %v, want %+v", stats, err, tt.stats)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used/2 > enough ||
				used > enough && !tt.opts.Multiline {
				t.Errorf("allocates %d MiB", used>>20)
			}
		})
	}
}

// TestGrepClosedDirs runs as an ordinary user. Root runs it again as one.
func TestGrepClosedDirs(t *testing.T) {
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
		writeFile(t, dir, name, "hit\n")
	}
	writeFile(t, dir, ".gitignore", "/ignored/\n")
	for name, mode := range map[string]fs.FileMode{
		"closed": 0, "listed": 0o444, "file": 0, "ignored": 0, "searched": 0o111, "z/.gitignore": 0,
	} {
		name = filepath.Join(dir, name)
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(name, 0o700) }) //nolint:gosec // so that it can be removed
	}
	names, stats, err := namesOf(t, e, "")
	if diff := cmp.Diff([]string{"a", "z/hit", "z/x"}, names); diff != "" || stats.Matches != 3 {
		t.Errorf("%+v: %s", stats, diff)
	}
	// Two directories that cannot be listed, a file in one without search permission, a file, and an
	// ignore file twice: for its rules and for its lines.
	var unreadable *search.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Count != 6 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error is %v", err)
	}
	if _, stats, err := namesOf(t, e, "closed"); !errors.Is(err, fs.ErrPermission) ||
		errors.As(err, &unreadable) || stats != (search.GrepStats{}) {
		t.Errorf("a closed directory that is named: %+v, %v", stats, err)
	}
	if names, _, err := namesOf(t, e, "searched/x"); err != nil || len(names) != 1 {
		t.Errorf("a file in a directory that may not be listed: %q, %v", names, err)
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
	err = errors.Join(
		os.WriteFile(name, program, 0o755), //nolint:gosec // for another user
		os.Chmod(dir, 0o777),               //nolint:gosec // for another user
		os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // for another user
	if err != nil {
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
