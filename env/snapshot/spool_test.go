package snapshot

import (
	"errors"
	"os"
	"path/filepath"
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
