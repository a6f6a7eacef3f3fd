package helper

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program returns a program of this system.
func program(t *testing.T, name string) []byte {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("there is no program called " + name)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// install installs the helper, and closes it when the test ends.
func install(t *testing.T, h *Program, cache string) *Installed {
	t.Helper()
	i, err := h.Install(cache)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// TestPrepare checks that a stored helper is verified, and only one caller gets it.
func TestPrepare(t *testing.T) {
	h := mustFind(t, pack(t, program(t, "true")))
	cache := t.TempDir()
	if i := h.Prepare(cache).Installed(); i != nil {
		t.Errorf("%s is stored, before the installation", i.Name())
	}
	name := install(t, h, cache).Name()
	p := h.Prepare(cache)
	i := p.Installed()
	if i == nil || i.Name() != name {
		t.Fatalf("%v, want the file %s", i, name)
	}
	defer i.Close() //nolint:errcheck // it was only read
	if i := p.Installed(); i != nil {
		t.Error("another caller has the file, too")
	}
	if err := os.WriteFile(name, []byte("changed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if i := h.Prepare(cache).Installed(); i != nil {
		t.Error("a file with another digest is taken")
	}
}

func TestInstallOnce(t *testing.T) {
	content := program(t, "true")
	h := mustFind(t, pack(t, content))
	cache := t.TempDir()
	i := install(t, h, cache)
	if want := filepath.Join(cache, "sandboxagent", h.Name); i.Name() != want {
		t.Errorf("installed as %s, want %s", i.Name(), want)
	}
	for name, want := range map[string]fs.FileMode{
		i.Name():               0o700,
		filepath.Dir(i.Name()): fs.ModeDir | 0o700,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", name, info.Mode(), err, want)
		}
	}
	if got, err := os.ReadFile(i.Name()); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file holds %d bytes, %v", len(got), err)
	}
	before := inode(t, i.Name())
	if again := install(t, h, cache); inode(t, again.Name()) != before {
		t.Error("the second use made another file")
	}
	if entries, err := os.ReadDir(filepath.Dir(i.Name())); err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

func TestInstallReplacesOtherFiles(t *testing.T) {
	content := program(t, "true")
	for _, tt := range []struct {
		name string
		harm func(name string) error
	}{
		{"another content", func(name string) error {
			return os.WriteFile(name, []byte("#!/bin/sh\n"),
				0o700)
		}},
		{"one byte", func(name string) error {
			b := bytes.Clone(content)
			b[len(b)/2] ^= 1
			return os.WriteFile(name, b, 0o700)
		}},
		{"more at the end", func(name string) error {
			return os.WriteFile(name,
				append(bytes.Clone(content), 0), 0o700)
		}},
		{"an empty file", func(name string) error { return os.Truncate(name, 0) }},
		{"writable for others", func(name string) error { return os.Chmod(name, 0o722) }},
		{"not executable", func(name string) error { return os.Chmod(name, 0o600) }},
		{"a link", func(name string) error {
			return errors.Join(os.Rename(name, name+".moved"), os.Symlink(name+".moved", name))
		}},
		{"a pipe", func(name string) error {
			return errors.Join(os.Remove(name), syscall.Mkfifo(name,
				0o700))
		}},
		{"another user's", func(name string) error {
			if os.Getuid() != 0 {
				return errors.ErrUnsupported
			}
			return os.Chown(name, 65534, 65534)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := mustFind(t, pack(t, content))
			cache := t.TempDir()
			name := install(t, h, cache).Name()
			if err := tt.harm(name); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("only root can do that")
			} else if err != nil {
				t.Fatal(err)
			}
			before := inode(t, name)
			i := install(t, h, cache)
			if inode(t, name) == before {
				t.Error("the file was not replaced")
			}
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the file holds %d bytes, %v", len(got), err)
			}
			if err := exec.Command(i.Exec()).Run(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatWasVerifiedRuns replaces the file between the check and its use.
func TestWhatWasVerifiedRuns(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("there is no /proc")
	}
	cache := t.TempDir()
	i := install(t, mustFind(t, pack(t, program(t, "true"))), cache)
	other := filepath.Join(cache, "other")
	if err := errors.Join(os.WriteFile(other, program(t, "false"), 0o700), os.Rename(other,
		i.Name())); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(i.Name()).Run(); err == nil {
		t.Error("the file was not replaced, so that this test shows nothing")
	}
	if err := exec.Command(i.Exec()).Run(); err != nil {
		t.Errorf("what runs is not what was verified: %v", err)
	}
}

func TestInstallAtOnce(t *testing.T) {
	h := mustFind(t, pack(t, program(t, "true")))
	cache := t.TempDir()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			i, err := h.Install(cache)
			if err != nil {
				t.Error(err)
				return
			}
			if err := i.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if entries, err := os.ReadDir(filepath.Join(cache, "sandboxagent")); err != nil ||
		len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

func TestInstallSaysWhereItCannot(t *testing.T) {
	h := mustFind(t, pack(t, []byte("a program")))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Install(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as the cache: %v", err)
	}
	t.Run("no cache", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", "")
		if _, err := h.Install(""); err == nil || !strings.Contains(err.Error(), "cache") {
			t.Errorf("%v", err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root writes everywhere")
		}
		cache := t.TempDir()
		if err := os.Chmod(cache, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Install(cache); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v", err)
		}
	})
}

func TestInstallInUsersCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	i := install(t, mustFind(t, pack(t, []byte("a program"))), "")
	if !strings.HasPrefix(i.Name(), cache) {
		t.Errorf("installed as %s, not in %s", i.Name(), cache)
	}
}

func TestInstallRemovesWhatIsOld(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "sandboxagent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{
		"sandboxd-linux-amd64-old": 2 * unusedTime, "sandboxd-linux-amd64-x.tmp-1": 2 * unusedTime,
		"sandboxd-linux-amd64-recent": time.Hour, "something-else": 2 * unusedTime,
	} {
		name = filepath.Join(dir, name)
		when := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(name, nil, 0o700), os.Chtimes(name, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	h := mustFind(t, pack(t, []byte("a program")))
	install(t, h, cache)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := h.Name + " sandboxd-linux-amd64-recent something-else"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("what is left: %s, want %s", got, want)
	}
}
