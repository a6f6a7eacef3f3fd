package env_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestGrepLimits has searches that may not read everything.
func TestGrepLimits(t *testing.T) {
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("%03d", i)] = "word 12345\n" + strings.Repeat("x", 10_000)
	}
	d := newSearchDisk(t, files)
	for name, tt := range map[string]struct {
		opts    env.GrepOptions
		stopped env.GrepStop
	}{
		"bytes":             {env.GrepOptions{Pattern: `\d{5}`, MaxBytes: 200_000}, env.GrepOverBytes},
		"bytes of one file": {env.GrepOptions{Pattern: `\d{5}`, MaxBytes: 10, Path: "000"}, env.GrepOverBytes},
		"time":              {env.GrepOptions{Pattern: `\d{5}`, MaxTime: 1}, env.GrepOverTime},
		"enough of both":    {env.GrepOptions{Pattern: `\d{5}`, MaxBytes: 2_000_000, MaxTime: time.Hour}, ""},
		"no limits":         {env.GrepOptions{Pattern: `\d{5}`, MaxBytes: -1, MaxTime: -1}, ""},
		"a text":            {env.GrepOptions{Pattern: `word \d`, MaxBytes: 1, MaxTime: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.opts.MaxMatches = -1
			matches := 0
			stats, err := env.Grep(t.Context(), d, tt.opts, func(env.GrepMatch) error {
				matches++
				return nil
			})
			if err != nil || stats.Stopped != tt.stopped || stats.Matches != matches || stats.Truncated {
				t.Errorf("%d matches, %+v, %v", matches, stats, err)
			}
			if (matches == 100) != (tt.stopped == "") {
				t.Errorf("%d matches", matches)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	stats, err := env.Grep(ctx, d, env.GrepOptions{Pattern: `\d{5}`, MaxTime: time.Hour}, func(env.GrepMatch) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || stats.Stopped != "" {
		t.Errorf("a search that is canceled: %+v, %v", stats, err)
	}
}
