//go:build unix

package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// TestAhead finds a program before it is asked for: it is handed out once, found anew for each
// later call, and closed if nobody asks.
func TestAhead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	var opened []*os.File
	find := locator(func() (*sandbox.Program, error) {
		f, err := os.Open(name)
		opened = append(opened, f)
		return &sandbox.Program{File: f}, err
	})
	open := func(f *os.File) bool { _, err := f.Stat(); return err == nil }

	asked, drop := find.ahead()
	for i := range 3 {
		p, err := asked()
		if err != nil || len(opened) != i+1 || p.File != opened[i] {
			t.Fatalf("call %d: %v, %v of %d programs", i, p, err, len(opened))
		}
		defer p.Close()
	}
	drop()
	for i, f := range opened {
		if !open(f) {
			t.Errorf("the program of call %d is closed, and belongs to who asked", i)
		}
	}

	opened = nil
	_, drop = find.ahead()
	drop()
	if len(opened) != 1 || open(opened[0]) {
		t.Errorf("%d programs were found, and what nobody asked for is to be closed", len(opened))
	}

	no := errors.New("no")
	asked, drop = locator(func() (*sandbox.Program, error) { return nil, no }).ahead()
	for range 2 {
		if _, err := asked(); !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
	}
	drop()
}
