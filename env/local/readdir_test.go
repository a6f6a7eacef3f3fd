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

// dying is a context that ends after some calls of Err.
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

// TestReadDirCancelled lists a large directory, sorted, until the context ends.
func TestReadDirCancelled(t *testing.T) {
	dir := t.TempDir()
	const files = 15_000
	if err := os.WriteFile(filepath.Join(dir, "00000"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < files; i++ {
		name := filepath.Join(dir, fmt.Sprintf("%05d", i*7919%files))
		if err := os.Link(filepath.Join(dir, "00000"), name); err != nil {
			t.Fatal(err)
		}
	}
	e := newEnv(t, local.Config{Dir: dir})
	entries, err := e.ReadDir(t.Context(), ".")
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	if err != nil || len(entries) != files || !slices.IsSortedFunc(entries, byName) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	ended := map[int]bool{}
	for calls := range int64(20) {
		ctx := &dying{Context: t.Context()}
		ctx.left.Store(calls)
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
