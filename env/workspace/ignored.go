package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// validatePatterns refuses patterns that can never match.
func validatePatterns(patterns []string) error {
	for _, p := range patterns {
		clean := strings.TrimSuffix(p, "/")
		switch {
		case strings.HasPrefix(p, "/") || filepath.IsAbs(filepath.FromSlash(p)):
			return fmt.Errorf("pattern %q: it must be relative to the directory", p)
		case p == "" || path.Clean(clean) != clean || clean == "." || clean == ".." ||
			strings.HasPrefix(clean, "../"):
			return fmt.Errorf("pattern %q: it must be a name in the directory, without empty parts, \".\" "+
				"and \"..\"", p)
		case !doublestar.ValidatePattern(p):
			return fmt.Errorf("pattern %q: %w", p, doublestar.ErrBadPattern)
		}
	}
	return nil
}

// findIgnored returns the names of the files and symlinks that match an UploadIgnored pattern, or
// are below a directory that does, ignored or not.
func (w *Workspace) findIgnored(ctx context.Context, host env.FileReader) ([]string, error) {
	patterns := w.opts.UploadIgnored
	if len(patterns) == 0 {
		return nil, nil
	}
	var names []string
	matching := make(map[string]bool) // directories
	used := make([]bool, len(patterns))
	err := search.Walk(ctx, host, "", search.WalkOptions{NoIgnore: true}, func(e search.Entry) error {
		if w.isOmitted(e) {
			if e.Mode.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		in := matching[path.Dir(e.Name)]
		for i, p := range patterns {
			if (!in || !used[i]) && doublestar.MatchUnvalidated(strings.TrimSuffix(p, "/"), e.Name) {
				in, used[i] = true, true
			}
		}
		switch {
		case !in:
		case e.Mode.IsDir():
			matching[e.Name] = true
		default:
			names = append(names, e.Name)
		}
		return nil
	})
	for i, p := range patterns {
		if !used[i] && err == nil {
			w.warn("no ignored file matches the pattern %q", p)
		}
	}
	return names, err
}
