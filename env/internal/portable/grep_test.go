package portable_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// TestGrepFewShells searches files that are too large to be held, each of which takes a shell as long as it is open, where there is
// one for that.
func TestGrepFewShells(t *testing.T) {
	e := kinds()[0].open(t, func(cfg *portable.Config) { cfg.MaxShells = 3 })
	const files, lines = 8, 700_000
	content := bytes.Repeat([]byte("needle\n"), lines)
	for i := range files {
		if err := os.WriteFile(filepath.Join(e.Info().WorkDir, fmt.Sprint("f", i)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	found := 0
	_, err := env.Grep(ctx, e, env.GrepOptions{Pattern: "needle", MaxMatches: -1}, func(env.GrepMatch) error {
		found++
		return nil
	})
	if err != nil || found != files*lines {
		t.Errorf("%d matches of %d, %v", found, files*lines, err)
	}
}
