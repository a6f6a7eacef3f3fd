package env_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// narrow is an environment that has one file open at most. Another Open waits.
type narrow struct {
	*searchDisk
	slot chan struct{}
}

func (n narrow) Open(ctx context.Context, name string) (fs.File, error) {
	select {
	case n.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := n.searchDisk.Open(ctx, name)
	if err != nil {
		<-n.slot
		return nil, err
	}
	return &narrowFile{File: file, free: sync.OnceFunc(func() { <-n.slot })}, nil
}

type narrowFile struct {
	fs.File
	free func()
}

func (f *narrowFile) Close() error {
	defer f.free()
	return f.File.Close()
}

// TestGrepFewOpen searches where few files may be open at once, and much is found in each. None is kept open for those before it.
func TestGrepFewOpen(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("small%03d", i)] = strings.Repeat("hit\n", 10_000)
		if i%20 == 0 {
			files[fmt.Sprintf("small%03d-large", i)] = strings.Repeat("hit\n", 200_000)
		}
	}
	const want = 200*10_000 + 10*200_000
	n := narrow{newSearchDisk(t, files), make(chan struct{}, 1)}
	for _, opts := range []env.GrepOptions{{Pattern: "hit"}, {Pattern: "[g-i]it", MaxTime: -1, MaxBytes: -1}} {
		opts.MaxMatches = -1
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		found := 0
		_, err := env.Grep(ctx, n, opts, func(env.GrepMatch) error {
			found++
			return nil
		})
		cancel()
		if err != nil || found != want {
			t.Errorf("%q: %d matches of %d, %v", opts.Pattern, found, want, err)
		}
	}
}

// TestGrepAfterLimit: the lines after the last match that a limit allows are those that follow it, whether they match or not.
func TestGrepAfterLimit(t *testing.T) {
	d := newSearchDisk(t, map[string]string{"a": "hit\nhit 2\nx\nhit 4\ny\n", "b": "hit\n"})
	for _, tt := range []struct {
		opts      env.GrepOptions
		want      string
		truncated bool
	}{
		{env.GrepOptions{MaxMatches: 1, After: 2}, "a:1:hit a-2-hit 2 a-3-x", true},
		{env.GrepOptions{MaxMatches: 2, After: 1}, "a:1:hit a:2:hit 2 a-3-x", true},
		{env.GrepOptions{MaxMatches: 3, After: 9}, "a:1:hit a:2:hit 2 a-3-x a:4:hit 4 a-5-y", true},
		{env.GrepOptions{MaxMatches: 4, After: 9}, "a:1:hit a:2:hit 2 a-3-x a:4:hit 4 a-5-y b:1:hit", false},
		{env.GrepOptions{MaxFileMatches: 1, After: 2}, "a:1:hit a-2-hit 2 a-3-x b:1:hit", false},
		{env.GrepOptions{MaxFileMatches: 1, After: 3}, "a:1:hit a-2-hit 2 a-3-x a-4-hit 4 b:1:hit", false},
		{env.GrepOptions{MaxFileMatches: 1}, "a:1:hit b:1:hit", false},
		{env.GrepOptions{MaxMatches: 1, Before: 1}, "a:1:hit", true},
	} {
		tt.opts.Pattern = "hit"
		var got []string
		matches := 0
		stats, err := env.Grep(t.Context(), d, tt.opts, func(m env.GrepMatch) error {
			sign := "-"
			if !m.Context {
				matches++
				sign = ":"
			}
			got = append(got, fmt.Sprint(m.Name, sign, m.Line, sign, m.Text))
			return nil
		})
		if text := strings.Join(got, " "); err != nil || text != tt.want || stats.Truncated != tt.truncated || stats.Matches != matches {
			t.Errorf("%+v: %s; %+v, %v; want %s", tt.opts, text, stats, err, tt.want)
		}
	}
}
