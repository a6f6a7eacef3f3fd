package search_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/search"
)

// TestGrepLimits: MaxTime and MaxBytes end searches.
func TestGrepLimits(t *testing.T) {
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("%03d", i)] = "word 12345\n" + strings.Repeat("x", 10_000)
	}
	files["early"] = "word 1\nword 23456\nword 34567\nword 45678\n" +
		strings.Repeat("x y z\n", 200_000)
	d := newFakeReader(t, files)
	type opts = search.GrepOptions
	for name, tt := range map[string]struct {
		opts        search.GrepOptions
		stopped     search.GrepStop
		least, most int // matches
	}{
		"bytes": {opts{MaxBytes: 200_000, MaxTime: -1}, search.GrepOverBytes, 1, 99},
		"bytes of one file": {
			opts{MaxBytes: 400_000, MaxTime: -1, Path: "early"}, search.GrepOverBytes, 3, 3,
		},
		"bytes of one of many": {
			opts{MaxBytes: 1_500_000, MaxTime: -1}, search.GrepOverBytes, 4, 103,
		},
		"time":           {opts{MaxTime: 1}, search.GrepOverTime, 0, 102},
		"enough of both": {opts{MaxBytes: 4_000_000, MaxTime: time.Hour}, "", 103, 103},
		"no limits":      {opts{MaxBytes: -1, MaxTime: -1}, "", 103, 103},
		"a literal":      {opts{Pattern: `word \d{5}`, MaxBytes: 1, MaxTime: 1}, "", 103, 103},
	} {
		t.Run(name, func(t *testing.T) {
			tt.opts.MaxMatches, tt.opts.Pattern = -1, cmp.Or(tt.opts.Pattern, `\d{5}`)
			matches := 0
			stats, err := search.Grep(t.Context(), d, tt.opts, func(search.GrepMatch) error {
				matches++
				return nil
			})
			if err != nil || stats.Stopped != tt.stopped || stats.Matches != matches || stats.Truncated {
				t.Errorf("%d matches, %+v, %v", matches, stats, err)
			}
			if matches < tt.least || matches > tt.most {
				t.Errorf("%d matches, want %d to %d", matches, tt.least, tt.most)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	stats, err := search.Grep(ctx, d, search.GrepOptions{Pattern: `\d{5}`, MaxTime: time.Hour},
		func(search.GrepMatch) error {
			cancel()
			return nil
		})
	if !errors.Is(err, context.Canceled) || stats.Stopped != "" {
		t.Errorf("a search that is canceled: %+v, %v", stats, err)
	}
}

// TestGrepEnds cancels searches of many files without a match at various times.
func TestGrepEnds(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprintf("%d/%d", i%20, i)] = strings.Repeat("a word\n", 100)
	}
	d := newFakeReader(t, files)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 100 {
			opts := search.GrepOptions{Pattern: `absent_[a-z]x`}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Microsecond)
			if i%3 == 0 {
				opts = search.GrepOptions{Pattern: `\d{5}`, MaxBytes: int64(i) * 3000}
			}
			_, err := search.Grep(ctx, d, opts, func(search.GrepMatch) error { return nil })
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a search does not end")
	}
}

// TestGrepLimitAndError: Grep returns an error of fn and a cancellation even after a limit.
func TestGrepLimitAndError(t *testing.T) {
	// The first read reaches the limit.
	d := newFakeReader(t, map[string]string{"a": strings.Repeat("12345\n", 100_000)})
	full := errors.New("the disk is full")
	for name, fn := range map[string]func(cancel context.CancelCauseFunc) error{
		"an error": func(context.CancelCauseFunc) error {
			return fmt.Errorf("%w: %w", full, context.Canceled)
		},
		"a cancellation": func(cancel context.CancelCauseFunc) error { cancel(full); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, err := search.Grep(ctx, d, search.GrepOptions{Pattern: `\d{5}`, MaxBytes: 1, MaxMatches: -1},
				func(search.GrepMatch) error { return fn(cancel) })
			if !errors.Is(err, full) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestGrepLimitInLine: $ does not match where a limit cuts a line.
func TestGrepLimitInLine(t *testing.T) {
	d := newFakeReader(t, map[string]string{
		"a": strings.Repeat("a", 200_000) + "x\n" + strings.Repeat("x", 200_000),
	})
	for _, path := range []string{"a", ""} {
		stats, err := search.Grep(t.Context(), d, search.GrepOptions{
			Pattern: `^[^x]*$`, Path: path,
			MaxBytes: 1,
		}, func(m search.GrepMatch) error {
			t.Errorf("line %d was found", m.Line)
			return nil
		})
		if err != nil || stats.Stopped != search.GrepOverBytes {
			t.Errorf("%q: %+v, %v", path, stats, err)
		}
	}
}

// TestGrepEarly: Grep delivers matches at the start of a large file before it reads the rest.
func TestGrepEarly(t *testing.T) {
	d := &longFile{
		fakeReader: newFakeReader(t, map[string]string{"f": ""}),
		found:      make(chan struct{}),
	}
	for _, path := range []string{"f", ""} {
		d.found = make(chan struct{})
		stats, err := search.Grep(t.Context(), d, search.GrepOptions{Path: path, Pattern: `12345`},
			func(search.GrepMatch) error {
				close(d.found)
				return nil
			})
		if err != nil || stats.Matches != 1 {
			t.Errorf("%q: %+v, %v", path, stats, err)
		}
	}
}

// longFile has files with one match, whose rest does not end before the match is delivered.
type longFile struct {
	*fakeReader
	found chan struct{}
}

func (l *longFile) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := l.fakeReader.Open(ctx, name)
	return &longFileReader{File: f, found: l.found, text: []byte("12345\n")}, err
}

type longFileReader struct {
	fs.File
	found chan struct{}
	text  []byte
	n     int
}

func (l *longFileReader) Read(p []byte) (int, error) {
	n := copy(p, l.text)
	if l.text = l.text[n:]; n > 0 {
		return n, nil
	}
	select {
	case <-l.found:
		return 0, io.EOF
	default:
	}
	if l.n++; l.n > 10_000 {
		return 0, errors.New("it is not found")
	}
	time.Sleep(time.Millisecond) // Reading takes its time.
	return copy(p, strings.Repeat("nothing\n", 1<<10)), nil
}

// TestGrepAfterLimit: context lines follow the last match that a limit allows, matching or not.
func TestGrepAfterLimit(t *testing.T) {
	d := newFakeReader(t, map[string]string{"a": "hit\nhit 2\nx\nhit 4\ny\n", "b": "hit\n"})
	type opts = search.GrepOptions
	for _, tt := range []struct {
		opts      search.GrepOptions
		want      string
		truncated bool
	}{
		{opts{MaxMatches: 1, After: 2}, "a:1:hit a-2-hit 2 a-3-x", true},
		{opts{MaxMatches: 2, After: 1}, "a:1:hit a:2:hit 2 a-3-x", true},
		{opts{MaxMatches: 3, After: 9}, "a:1:hit a:2:hit 2 a-3-x a:4:hit 4 a-5-y", true},
		{opts{MaxMatches: 4, After: 9}, "a:1:hit a:2:hit 2 a-3-x a:4:hit 4 a-5-y b:1:hit", false},
		{opts{MaxFileMatches: 1, After: 2}, "a:1:hit a-2-hit 2 a-3-x b:1:hit", false},
		{opts{MaxFileMatches: 1, After: 3}, "a:1:hit a-2-hit 2 a-3-x a-4-hit 4 b:1:hit", false},
		{opts{MaxFileMatches: 1}, "a:1:hit b:1:hit", false},
		{opts{MaxMatches: 1, Before: 1}, "a:1:hit", true},
	} {
		tt.opts.Pattern = "hit"
		var got []string
		matches := 0
		stats, err := search.Grep(t.Context(), d, tt.opts, func(m search.GrepMatch) error {
			sign := "-"
			if !m.Context {
				matches++
				sign = ":"
			}
			got = append(got, fmt.Sprint(m.Name, sign, m.Line, sign, m.Text))
			return nil
		})
		if text := strings.Join(got, " "); err != nil || text != tt.want ||
			stats.Truncated != tt.truncated || stats.Matches != matches {
			t.Errorf("%+v: %s; %+v, %v; want %s", tt.opts, text, stats, err, tt.want)
		}
	}
}
