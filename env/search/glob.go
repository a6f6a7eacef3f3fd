package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
)

// ErrBadPattern means that a glob pattern or a regular expression is malformed. It is
// path.ErrBadPattern.
var ErrBadPattern = path.ErrBadPattern

const (
	// maxPattern bounds the length of a pattern, in bytes.
	maxPattern = 4096
	// maxAlternatives bounds the number of patterns that braces expand to.
	maxAlternatives = 1000
	// maxExpansion bounds the number of bytes read to expand them.
	maxExpansion = 4 << 20
)

// GlobOptions are options of Glob.
type GlobOptions struct {
	// Pattern matches names relative to Dir: * and ? match within one path element, ** as a whole
	// element matches any number of elements (as the last one at least one), [a-z] and [^a-z] are
	// classes, {a,b} are alternatives, 1000 at most in total, \ quotes. Neither it nor an alternative
	// may be absolute, contain ".." or end with a slash.
	Pattern string
	// Dir is the directory to search, even if it is ignored; empty means the working directory.
	Dir string
	// IgnoreCase compares the lower case of both the pattern and the name.
	IgnoreCase bool
	// NoIgnore includes ignored files, see WalkOptions.
	NoIgnore bool
	// AnyType includes files of every type: directories, and symlinks to anything.
	AnyType bool
	// Limit bounds the number of returned entries, the newest; 0 means all. Glob holds at most twice
	// as many in memory, or a thousand.
	Limit int
}

// Glob returns the regular files, and symlinks to regular files, whose names match opts.Pattern,
// newest first, those of equal time by name; opts.AnyType includes others. Names are relative to
// opts.Dir. Walk defines which files are ignored.
//
// A malformed pattern is ErrBadPattern, a missing Dir fs.ErrNotExist. If some directories or files
// could not be read, the error is an *UnreadableError with all other entries; any other error comes
// without entries.
func Glob(ctx context.Context, e env.FileReader, opts GlobOptions) ([]Entry, error) {
	if s, ok := e.(Searcher); ok {
		return s.Glob(ctx, opts)
	}
	fold := func(s string) string { return s }
	if opts.IgnoreCase {
		fold = strings.ToLower
	}
	pattern, err := parseGlob(fold(opts.Pattern), false)
	if err != nil {
		return nil, fmt.Errorf("glob %.100q: %w", opts.Pattern, err)
	}
	found := newest{limit: opts.Limit}
	var unreadable unreadable
	visit := func(entry Entry, d fs.DirEntry) error {
		if entry.Err != nil {
			unreadable.add(entry.Err)
			return nil
		}
		var below error
		if entry.Mode.IsDir() {
			if !pattern.mayMatchBelow(fold(entry.Name)) {
				below = fs.SkipDir
			}
			if !opts.AnyType {
				return below
			}
		}
		if !pattern.match(fold(entry.Name)) {
			return below
		}
		regular, err := true, error(nil)
		if !opts.AnyType {
			regular, err = isRegular(ctx, e, pathname.Join(opts.Dir, entry.Name), entry.Mode)
		}
		if err == nil && regular {
			err = entry.fill(d)
		}
		switch {
		case env.FatalError(ctx, err) != nil:
			return env.FatalError(ctx, err)
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			unreadable.add(err)
		case regular:
			found.add(entry)
		}
		return below
	}
	err = walk(ctx, e, opts.Dir, WalkOptions{NoIgnore: opts.NoIgnore}, visit)
	if err != nil {
		return nil, err
	}
	found.sort()
	return found.entries, unreadable.err()
}

// newestMore is the number of entries that newest holds before it sorts them.
const newestMore = 1000

// newest collects the newest entries, up to its limit.
type newest struct {
	limit   int // 0 means all
	entries []Entry
}

func (n *newest) add(entry Entry) {
	n.entries = append(n.entries, entry)
	if n.limit > 0 && len(n.entries) >= newestMore && len(n.entries)/2 >= n.limit {
		n.sort()
	}
}

// sort sorts the newest first and drops those over the limit.
func (n *newest) sort() {
	slices.SortFunc(n.entries, func(a, b Entry) int {
		return cmp.Or(b.ModTime.Compare(a.ModTime), strings.Compare(a.Name, b.Name))
	})
	if n.limit > 0 && len(n.entries) > n.limit {
		clear(n.entries[n.limit:])
		n.entries = n.entries[:n.limit]
	}
}

// isRegular reports whether name is a regular file or a symlink to one. A broken symlink is not.
func isRegular(ctx context.Context, e env.FileReader, name string, mode fs.FileMode) (bool, error) {
	if mode.Type() != fs.ModeSymlink {
		return mode.IsRegular(), nil
	}
	info, err := e.Stat(ctx, name)
	if err != nil {
		if fatal := env.FatalError(ctx, err); fatal != nil {
			return false, fatal
		}
		return false, nil
	}
	return info.Mode().IsRegular(), nil
}

// glob is a compiled pattern: the elements of each alternative.
type glob [][]string

// anyElements is the element that matches any number of elements.
const anyElements = "**"

// parseGlob compiles a pattern. If trees is set, a trailing slash, also of an alternative, means
// the tree of the directory. Errors wrap ErrBadPattern.
func parseGlob(pattern string, trees bool) (glob, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrBadPattern, maxPattern)
	}
	for strings.HasPrefix(pattern, "./") {
		pattern = strings.TrimLeft(pattern[len("."):], "/")
	}
	if !doublestar.ValidatePattern(pattern) {
		return nil, ErrBadPattern
	}
	work := maxExpansion
	patterns, err := expandBraces(nil, pattern, &work)
	if err != nil {
		return nil, err
	}
	var g glob
	for _, p := range patterns {
		elements := strings.Split(p, "/")
		end := len(elements) - 1
		if elements[end] == "" && trees {
			elements[end] = anyElements
		}
		// Empty and "." elements are allowed anywhere but at the ends.
		if end > 1 {
			inner := slices.DeleteFunc(elements[1:end], func(e string) bool { return e == "" || e == "." })
			elements = append(elements[:1+len(inner)], elements[end])
		}
		switch {
		case p == "":
			return nil, fmt.Errorf("%w: it is empty", ErrBadPattern)
		case elements[0] == "" || pathname.HasDrive(p):
			return nil, fmt.Errorf("%w: it must be relative to the searched directory", ErrBadPattern)
		case slices.Contains(elements, ".."):
			return nil, fmt.Errorf("%w: it must not contain %q", ErrBadPattern, "..")
		case elements[len(elements)-1] == "":
			return nil, fmt.Errorf("%w: it ends with a slash, but matches only files (DIR/** matches "+
				"those in a directory)", ErrBadPattern)
		}
		for i, element := range elements {
			if !doublestar.ValidatePattern(element) {
				return nil, ErrBadPattern
			}
			elements[i] = mergeStars(element)
		}
		g = append(g, elements)
	}
	return g, nil
}

// mergeStars replaces several stars in a row, which mean the same as one within an element, by one:
// doublestar matches them wrongly at the end of a name.
func mergeStars(element string) string {
	if element == anyElements {
		return element
	}
	var merged strings.Builder
	inClass := false
	for i := 0; i < len(element); i++ {
		switch c := element[i]; {
		case c == '\\':
			merged.WriteByte(c)
			i++
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '*' && strings.HasPrefix(element[i+1:], "*"):
			continue
		}
		merged.WriteByte(element[i])
	}
	return merged.String()
}

// match reports whether the pattern matches name.
func (g glob) match(name string) bool { return g.matches(name, false) }

// mayMatchBelow reports whether the pattern could match a file in the directory name.
func (g glob) mayMatchBelow(name string) bool { return g.matches(name, true) }

// matches is match or, with below set, mayMatchBelow.
func (g glob) matches(name string, below bool) bool {
	elements := strings.Split(name, "/")
	return slices.ContainsFunc(g, func(a []string) bool { return matchElements(a, elements, below) })
}

// matchElements matches element by element, so that no class can match a slash. With below set it
// reports whether the pattern could match a name that has more elements after those of name.
func matchElements(pattern, name []string, below bool) bool {
	p, n := 0, 0
	retryPattern, retryName := -1, 0 // after the last **, which matched the elements up to retryName
	for {
		switch {
		case p < len(pattern) && pattern[p] == anyElements:
			if p++; below || p == len(pattern) {
				return below || n < len(name)
			}
			retryPattern, retryName = p, n
			continue
		case n == len(name):
			if below || p == len(pattern) {
				return below == (p < len(pattern))
			}
		case p < len(pattern) && doublestar.MatchUnvalidated(pattern[p], name[n]):
			p, n = p+1, n+1
			continue
		}
		if retryPattern < 0 || retryName == len(name) {
			return false
		}
		retryName++
		p, n = retryPattern, retryName
	}
}

// expandBraces appends the patterns without braces that pattern means, and subtracts the bytes that
// it reads from work. A matcher that tries alternatives as it goes would take exponential time.
func expandBraces(to []string, pattern string, work *int) ([]string, error) {
	if *work -= len(pattern); *work < 0 {
		return nil, fmt.Errorf("%w: it has too many braces", ErrBadPattern)
	}
	start, depth := -1, 0
	var cuts []int // the opening brace, the commas and the closing brace of the first group
	inClass := false
	for i := 0; i < len(pattern) && (start < 0 || depth > 0); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '{':
			if depth++; depth == 1 {
				start, cuts = i, append(cuts, i)
			}
		case c == ',' && depth == 1:
			cuts = append(cuts, i)
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				cuts = append(cuts, i)
			}
		}
	}
	if start < 0 {
		if len(to) == maxAlternatives {
			return nil, fmt.Errorf("%w: its braces expand to more than %d patterns", ErrBadPattern,
				maxAlternatives)
		}
		return append(to, pattern), nil
	}
	if depth > 0 {
		return nil, ErrBadPattern
	}
	var err error
	for i, cut := range cuts[:len(cuts)-1] {
		alternative := pattern[cut+1 : cuts[i+1]]
		to, err = expandBraces(to, pattern[:start]+alternative+pattern[cuts[len(cuts)-1]+1:], work)
		if err != nil {
			return nil, err
		}
	}
	return to, nil
}
