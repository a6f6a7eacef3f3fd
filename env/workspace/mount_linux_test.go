package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// mounted returns the directory of a workspace with another file system in it, and the changes that
// change makes in the directory of an environment.
func mounted(t *testing.T, change func(dir string) error) (*Changes, string) {
	t.Helper()
	host, envDir := t.TempDir(), t.TempDir()
	cache := filepath.Join(host, "cache")
	if err := os.Mkdir(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", cache, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("file systems cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(cache, 0); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{host, envDir} {
		err := errors.Join(
			os.MkdirAll(filepath.Join(dir, "cache"), 0o755),
			os.WriteFile(filepath.Join(dir, "cache/old"), []byte("old"), 0o644),
			os.WriteFile(filepath.Join(dir, "z"), []byte("z"), 0o644),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := Open(t.Context(), host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := local.New(local.Config{Dir: envDir})
	if err != nil {
		t.Fatal(err)
	}
	if err := change(envDir); err != nil {
		t.Fatal(err)
	}
	c, err := w.Changes(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), w.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, host
}

func addToCache(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "cache/new"), []byte("new"), 0o755), //nolint:gosec // executable
		os.WriteFile(filepath.Join(dir, "z"), []byte("Z"), 0o644),
	)
}

func TestApplyToOtherFileSystem(t *testing.T) {
	c, host := mounted(t, addToCache)
	if _, err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(host, "cache/new"))
	fi, serr := os.Stat(filepath.Join(host, "cache/new"))
	if err != nil || serr != nil || string(got) != "new" || fi.Mode()&0o100 == 0 {
		t.Errorf("%q %v %v %v", got, fi, err, serr)
	}
}

func TestRollBackOnOtherFileSystem(t *testing.T) {
	for n := 1; ; n++ {
		c, host := mounted(t, addToCache)
		was := listing(t, host)
		_, err := c.Apply(&stepContext{Context: t.Context(), onCheck: func(check int) error {
			if check >= n {
				return context.Canceled
			}
			return nil
		}})
		if err == nil {
			return
		}
		if diff := cmp.Diff(was, listing(t, host)); diff != "" {
			t.Fatalf("ended at check %d, the host is not as before (-want +got):\n%s", n, diff)
		}
	}
}

func TestChangeOnOtherFileSystem(t *testing.T) {
	c, host := mounted(t, func(envDir string) error {
		return errors.Join(addToCache(envDir), os.WriteFile(filepath.Join(envDir, "cache/old"),
			[]byte("OLD"), 0o644))
	})
	was := listing(t, host)
	if _, err := c.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "git apply") {
		t.Errorf("%v, want the remedy", err)
	}
	if diff := cmp.Diff(was, listing(t, host)); diff != "" {
		t.Errorf("the host is not as before (-want +got):\n%s", diff)
	}
}
