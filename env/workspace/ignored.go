package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandboxagent/sandboxagent/env"
)

// checkPatterns refuses patterns that could never match.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if !doublestar.ValidatePattern(p) || p == "" || strings.HasPrefix(p, "/") {
			return fmt.Errorf("pattern %q: %w", p, doublestar.ErrBadPattern)
		}
	}
	return nil
}

// findIgnored returns the names of the files and links that the patterns match, or a folder that they are in. Only those
// that git ignores matter; others belong to the workspace anyway.
func findIgnored(ctx context.Context, host env.FileReader, patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	var names []string
	folders := make(map[string]bool) // that match
	err := env.Walk(ctx, host, "", env.WalkOptions{NoIgnore: true}, func(e env.Entry) error {
		if strings.EqualFold(path.Base(e.Name), gitName) {
			if e.Mode.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		in := folders[path.Dir(e.Name)]
		for _, p := range patterns {
			if !in {
				in = doublestar.MatchUnvalidated(strings.TrimSuffix(p, "/"), e.Name)
			}
		}
		switch {
		case !in:
		case e.Mode.IsDir():
			folders[e.Name] = true
		default:
			names = append(names, e.Name)
		}
		return nil
	})
	return names, err
}
