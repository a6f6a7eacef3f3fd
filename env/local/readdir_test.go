package local_test

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

	"github.com/sandboxagent/sandboxagent/env/local"
)

// dying is a context that ends when it has been looked at some times.
type dying struct {
	context.Context
	left atomic.Int64
}

func (d *dying) Err() error {
	if d.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestReadDirCancelled lists a large directory, which is sorted, and which ends when its context
// does.
func TestReadDirCancelled(t *testing.T) {
	dir := t.TempDir()
	const files = 15_000
	if err := os.WriteFile(filepath.Join(dir, "00000"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < files; i++ {
		if err := os.Link(filepath.Join(dir, "00000"), filepath.Join(dir, fmt.Sprintf("%05d",
			i*7919%files))); err != nil {
			t.Fatal(err)
		}
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	entries, err := e.ReadDir(t.Context(), ".")
	if err != nil || len(entries) != files || !slices.IsSortedFunc(entries,
		func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	ended := map[int]bool{}
	for looks := range int64(20) {
		ctx := &dying{Context: t.Context()}
		ctx.left.Store(looks)
		entries, err := e.ReadDir(ctx, ".")
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err != nil {
			ended[len(entries)] = true
		}
	}
	if len(ended) < 4 {
		t.Errorf("it ends after %v entries only", ended)
	}
}
