package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

type fullSpool struct{}

func (fullSpool) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// The error of a full disk has the directory of the spool and the remedy.
func TestSpoolFull(t *testing.T) {
	spool, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = spool.Close() }()
	_, err = spoolWriter{spool, fullSpool{}}.Write([]byte("x"))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), filepath.Dir(spool.Name())) ||
		!strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("%v, want ENOSPC with the directory and TMPDIR", err)
	}
}

// A spool leaves no name, neither while it is used nor after Close.
func TestSpoolHasNoName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps its name")
	}
	for name, create := range map[string]func(string) (*os.File, bool, error){
		"new": newSpool, "named": namedSpool,
	} {
		dir := t.TempDir()
		f, named, err := create(dir)
		if err != nil || named {
			t.Fatalf("%s: named %t, %v", name, named, err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
		_ = f.Close() // it was written
	}
}
