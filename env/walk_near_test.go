package env_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// nearDisk is a disk of this machine: what it tells to be regular may be opened as such.
type nearDisk struct {
	*searchDisk
	alive atomic.Int32 // the listings going on
}

func (n *nearDisk) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	n.alive.Add(1)
	defer n.alive.Add(-1)
	return n.searchDisk.ReadDir(ctx, name)
}

func (n *nearDisk) OpenRegular(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, errors.New("a walk opens no file")
}

// TestWalkNear: while one folder is being listed, so is another.
func TestWalkNear(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	d := &nearDisk{searchDisk: newSearchDisk(t, map[string]string{"a/x": "", "b/y": "", "c/z": ""})}
	d.after = func(call string) {
		switch call {
		case "readdir a":
			close(first)
			<-second
		case "readdir b":
			<-first
			close(second)
		}
	}
	want := []string{"a/", "a/x", "b/", "b/y", "c/", "c/z"}
	if diff := cmp.Diff(want, walkNames(t, d, "", env.WalkOptions{})); diff != "" {
		t.Error(diff)
	}
}

// TestWalkNearSame: the order, what is left out and what is skipped are as without folders that are listed ahead, and nothing
// goes on after a walk.
func TestWalkNearSame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	files := map[string]string{".gitignore": "d3\n", "d1/.gitignore": "*.o\n/d2\n"}
	for range 400 {
		name := fmt.Sprintf("f%d", random.IntN(20))
		for range random.IntN(4) {
			name = fmt.Sprintf("d%d/", random.IntN(12)) + name
		}
		files[name] = ""
	}
	d := newSearchDisk(t, files)
	walks := map[string]func(env.Entry) error{
		"all": func(env.Entry) error { return nil },
		"skips folders": func(entry env.Entry) error {
			if base := path.Base(entry.Name); entry.Mode.IsDir() && (base == "d1" || base == "d5" || base == "d11") {
				return fs.SkipDir
			}
			return nil
		},
		"skips rests": func(entry env.Entry) error {
			if path.Base(entry.Name) == "d7" || path.Base(entry.Name) == "f3" {
				return fs.SkipDir
			}
			return nil
		},
		"ends early": func(entry env.Entry) error {
			if path.Base(entry.Name) == "f9" {
				return fs.SkipAll
			}
			return nil
		},
	}
	for name, fn := range walks {
		for _, opts := range []env.WalkOptions{{}, {NoIgnore: true}, {MaxDepth: 2}} {
			t.Run(fmt.Sprintf("%s/%+v", name, opts), func(t *testing.T) {
				walk := func(e env.FileReader) (names []string) {
					err := env.Walk(t.Context(), e, "", opts, func(entry env.Entry) error {
						names = append(names, entry.Name)
						return fn(entry)
					})
					if err != nil {
						t.Fatal(err)
					}
					return names
				}
				n := &nearDisk{searchDisk: d}
				if diff := cmp.Diff(walk(d), walk(n)); diff != "" {
					t.Error(diff)
				}
				if alive := n.alive.Load(); alive != 0 {
					t.Errorf("%d listings go on", alive)
				}
			})
		}
	}
}

// TestWalkNearCost: no folder is listed twice, and none that a walk does not come to beyond the next ones of each level.
func TestWalkNearCost(t *testing.T) {
	files := map[string]string{".gitignore": "x\n", "x/y/z": ""}
	for i := range 100 {
		files[fmt.Sprintf("d%02d/e/f", i)] = ""
	}
	d := &nearDisk{searchDisk: newSearchDisk(t, files)}
	listed := func() map[string]int {
		counts := map[string]int{}
		for _, call := range d.calls {
			if name, ok := strings.CutPrefix(call, "readdir "); ok {
				counts[name]++
			}
		}
		d.calls = nil
		return counts
	}
	walkNames(t, d, "", env.WalkOptions{})
	counts := listed()
	for name, n := range counts {
		if n > 1 {
			t.Errorf("%s was listed %d times", name, n)
		}
	}
	if len(counts) != 201 {
		t.Errorf("%d folders were listed of 201", len(counts))
	}
	err := env.Walk(t.Context(), d, "", env.WalkOptions{}, func(entry env.Entry) error {
		if !entry.Mode.IsDir() && entry.Name != ".gitignore" {
			return fs.SkipAll
		}
		return nil
	})
	if counts := listed(); err != nil || len(counts) > 11 {
		t.Errorf("to find the first file %d folders were listed: %v", len(counts), err)
	}
}
