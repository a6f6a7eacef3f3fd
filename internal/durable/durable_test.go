package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	dir := t.TempDir()
	if err := Dir(dir); err != nil {
		t.Error(err)
	}
	if err := Dir(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(File(f), f.Close()); err != nil {
		t.Error(err)
	}
	if err := File(f); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
}
