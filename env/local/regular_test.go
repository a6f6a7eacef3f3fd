//go:build unix

package local_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/regular"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestOpenRegular opens files of all kinds as a search does.
func TestOpenRegular(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir, open := e.Info().WorkDir, regular.OpenOf(struct{ *local.Environment }{e})
	write(t, filepath.Join(dir, "file"), "content", 0o600)
	write(t, filepath.Join(dir, "empty"), "", 0o600)
	err := errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Symlink("file", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "content", "empty": ""} {
		f, size, err := open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if string(got) != want || size != int64(len(want)) || err != nil || f.Close() != nil {
			t.Errorf("%s: %q, size %d, %v", name, got, size, err)
		}
	}
	for name, want := range map[string]error{
		"pipe": env.ErrNotRegular, "directory": env.ErrIsDir,
		"link": unix.ELOOP, "missing": os.ErrNotExist,
	} {
		if _, _, err := open(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := os.Stat("/proc/self/status"); err == nil { // which has no size, but content
		f, _, err := open(t.Context(), "/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); len(got) == 0 || err != nil || f.Close() != nil {
			t.Errorf("/proc/self/status: %q, %v", got, err)
		}
	}
}
