package search_test

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// crowd is a directory of many files with different times, in no order.
type crowd struct {
	env.FileReader
	files int
}

type crowdFile int

func (f crowdFile) Name() string               { return fmt.Sprintf("%06d", int(f)) }
func (f crowdFile) IsDir() bool                { return false }
func (f crowdFile) Type() fs.FileMode          { return 0 }
func (f crowdFile) Mode() fs.FileMode          { return 0o644 }
func (f crowdFile) Size() int64                { return 1 }
func (f crowdFile) ModTime() time.Time         { return time.Unix(int64(f)*7919%1_000_003, 0) }
func (f crowdFile) Sys() any                   { return nil }
func (f crowdFile) Info() (fs.FileInfo, error) { return f, nil }

func (c crowd) ReadDir(context.Context, string) (entries []fs.DirEntry, err error) {
	for i := range c.files {
		entries = append(entries, crowdFile(i))
	}
	return entries, nil
}

// TestGlobLimit: Glob returns the newest of many files, and with a small limit holds few of them.
func TestGlobLimit(t *testing.T) {
	c := crowd{files: 20_000}
	all, err := search.Glob(t.Context(), c, search.GlobOptions{Pattern: "*", NoIgnore: true})
	if err != nil || len(all) != c.files {
		t.Fatalf("%d files, error %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b search.Entry) int { return b.ModTime.Compare(a.ModTime) }) {
		t.Error("they are not in order")
	}
	for _, limit := range []int{1, 100, 1000, 19_999, 20_000, math.MaxInt} {
		got, err := search.Glob(t.Context(), c, search.GlobOptions{
			Pattern: "*", NoIgnore: true,
			Limit: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all[:min(limit, len(all))], got); diff != "" {
			t.Errorf("limit %d: %.500s", limit, diff)
		}
		if limit <= 1000 && cap(got) > 4000 {
			t.Errorf("limit %d: as many as %d were held", limit, cap(got))
		}
	}
}
