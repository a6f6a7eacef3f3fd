package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// mapEnv returns an environment with the files of a map.
func mapEnv(files fstest.MapFS) *wiretest.Env {
	return &wiretest.Env{
		OnOpen: func(_ context.Context, name string) (fs.File, error) {
			return files.Open(path.Clean(name))
		},
		OnStat: func(_ context.Context, name string) (fs.FileInfo, error) {
			return fs.Stat(files, path.Clean(name))
		},
		OnReadDir: func(_ context.Context, name string) ([]fs.DirEntry, error) {
			return fs.ReadDir(files, path.Clean(name))
		},
	}
}

// onlyReads is an environment without optional interfaces.
type onlyReads struct{ env.FileReader }

// TestWalkSkips checks that what fn skips means the same as for a walk of this side.
func TestWalkSkips(t *testing.T) {
	wiretest.NoLeaks(t)
	files := fstest.MapFS{}
	for _, name := range []string{
		"a/1", "a/2", "a/b/1", "a/b/2", "a.x", "ab/1", "b/c/d/e/1",
		"b/c/d/e/2", "b/c/x", "b/d", "c", "d/1", "d/2/1", "d/3",
	} {
		files[name] = &fstest.MapFile{Data: []byte(name)}
	}
	served := mapEnv(files)
	list := served.OnReadDir
	served.OnReadDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
		if name == "b/c/d" {
			return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrPermission}
		}
		return list(ctx, name)
	}
	c := connected(t, served, nil)
	walk := func(e env.FileReader, at string, what error, depth int) (string, error) {
		var seen strings.Builder
		err := search.Walk(t.Context(), e, ".", search.WalkOptions{NoIgnore: true, MaxDepth: depth},
			func(e search.Entry) error {
				fmt.Fprintln(&seen, e.Name, e.Mode, e.Err)
				if e.Name == at {
					return what
				}
				return nil
			})
		return seen.String(), err
	}
	own := errors.New("of fn")
	for _, what := range []error{fs.SkipDir, fs.SkipAll, own, fmt.Errorf("of another environment: %w",
		env.ErrProtocol)} {
		for _, at := range []string{
			"", "a", "a/1", "a/2", "a/b", "a/b/1", "a.x", "ab", "b/c/d",
			"b/c/d/e/1", "b/c/x", "c", "d/3",
		} {
			for _, depth := range []int{0, 1, 2} {
				want, wantErr := walk(onlyReads{served}, at, what, depth)
				got, err := walk(c, at, what, depth)
				if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, wantErr) ||
					(err == nil) != (wantErr == nil) {
					t.Errorf("%v at %q, depth %d: error %v, want %v (-want +got):\n%s", what, at, depth, err,
						wantErr, diff)
				}
			}
		}
	}
}

// TestGrepEnds checks how a search ends that fn ends.
func TestGrepEnds(t *testing.T) {
	wiretest.NoLeaks(t)
	files := fstest.MapFS{
		"a": {Data: []byte("x\nx\n")}, "b": {Data: []byte("x\n")},
		"c": {Data: []byte("x\n")},
	}
	c := connected(t, mapEnv(files), nil)
	own := errors.New("of fn")
	for _, tc := range []struct {
		after int
		with  error
		want  search.GrepStats
	}{
		{1, fs.SkipAll, search.GrepStats{Files: 1, Matches: 1}},
		{3, fs.SkipAll, search.GrepStats{Files: 2, Matches: 3}},
		{2, own, search.GrepStats{Files: 1, Matches: 2}},
		{9, own, search.GrepStats{Files: 3, Matches: 4}},
	} {
		count := 0
		stats, err := c.Grep(t.Context(), search.GrepOptions{Pattern: "x"}, func(search.GrepMatch) error {
			if count++; count == tc.after {
				return tc.with
			}
			return nil
		})
		wantErr := tc.with
		if tc.with == fs.SkipAll || tc.after == 9 { //nolint:errorlint // it is the value itself
			wantErr = nil
		}
		if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) || stats != tc.want {
			t.Errorf("%v after %d: %+v, %v", tc.with, tc.after, stats, err)
		}
	}
}

// TestReadOverLoss loses the connection in the middle of a file.
func TestReadOverLoss(t *testing.T) {
	wiretest.NoLeaks(t)
	content := bytes.Repeat([]byte("0123456789"), 500_000)
	var changed atomic.Bool
	file := &fstest.MapFile{Data: content, ModTime: time.Unix(1, 5)}
	c := connected(t, &wiretest.Env{OnOpen: func(context.Context, string) (fs.File, error) {
		now := *file
		if changed.Load() {
			now.ModTime = time.Unix(2, 0)
		}
		return fstest.MapFS{"f": &now}.Open("f")
	}}, nil)
	for _, change := range []bool{false, true} {
		changed.Store(false)
		f, err := c.Open(t.Context(), "f")
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 100_000)
		if _, err := io.ReadFull(f, head); err != nil {
			t.Fatal(err)
		}
		changed.Store(change)
		c.lose()
		rest, err := io.ReadAll(f)
		got := append(head, rest...)
		if !bytes.HasPrefix(content, got) {
			t.Error("other bytes than those of the file")
		}
		if !change && (err != nil || len(got) != len(content)) {
			t.Errorf("%d bytes of %d, error %v", len(got), len(content), err)
		}
		var pathErr *fs.PathError
		if change && (!errors.Is(err, env.ErrChanged) || !errors.As(err, &pathErr)) {
			t.Errorf("a file that changed: %d bytes, error %v, want ErrChanged", len(got), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Read(head); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("Read after Close gives %v", err)
		}
	}
}

// TestCloseWhileReading closes a tree that is being read.
func TestCloseWhileReading(t *testing.T) {
	wiretest.NoLeaks(t)
	endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
	c := connected(t, &wiretest.Env{
		OnCopyOut: func(context.Context, string, ...string) (io.ReadCloser, error) {
			return io.NopCloser(endless), nil
		},
	}, nil)
	tree, err := c.CopyOut(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, tree)
		ended <- err
	}()
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read gives %v, want fs.ErrClosed", err)
	}
}
