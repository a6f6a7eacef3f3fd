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
	// maxPattern is the length of the longest pattern, in bytes.
	maxPattern = 4096
	// maxAlternatives is how many patterns the braces of one may stand for.
	maxAlternatives = 1000
	// maxExpansion is how many bytes are looked at to find them.
	maxExpansion = 4 << 20
)

// GlobOptions say what Glob looks for.
type GlobOptions struct {
	// Pattern is matched against names relative to Dir: * and ? stay within one path element, ** as a
	// whole element stands for any number of them (as the last one for at least one), [a-z] and [^a-z]
	// are classes, {a,b} are alternatives, 1000 at most in total, \ quotes. It may not be absolute,
	// may not contain ".." and may not end with a slash, nor may an alternative.
	Pattern string
	// Dir is the folder to search; empty means the working directory. It is searched even if it is
	// ignored.
	Dir string
	// IgnoreCase compares the lower case of both the pattern and the name.
	IgnoreCase bool
	// NoIgnore searches everything, see WalkOptions.
	NoIgnore bool
	// Limit is how many entries are returned at most, the newest; 0 means all. Twice as many or a
	// thousand, whichever is more, are held in memory at most.
	Limit int
}

// Glob finds the files whose names match opts.Pattern, newest first, those of equal time by name.
// Names are relative to opts.Dir. Regular files are found, and links that lead to one. What is
// ignored, and which order names have, is as for Walk.
//
// A malformed pattern is ErrBadPattern, a missing Dir fs.ErrNotExist. If some folders or files
// could not be read, the error is an *UnreadableError and the entries are all those found
// elsewhere; with any other error there are none.
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
		if entry.Mode.IsDir() {
			if !pattern.mayMatchBelow(fold(entry.Name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !pattern.match(fold(entry.Name)) {
			return nil
		}
		regular, err := isRegular(ctx, e, pathname.Join(opts.Dir, entry.Name), entry.Mode)
		if err == nil && regular {
			err = entry.fill(d)
		}
		switch {
		case env.IsFatal(ctx, err):
			return err
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			unreadable.add(err)
		case regular:
			found.add(entry)
		}
		return nil
	}
	err = walk(ctx, e, opts.Dir, WalkOptions{NoIgnore: opts.NoIgnore}, visit)
	if err != nil {
		return nil, err
	}
	found.sort()
	return found.entries, unreadable.err()
}

// newestMore is how many entries are held without sorting them.
const newestMore = 1000

// newest keeps the newest entries, as many as its limit.
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

// sort puts the newest first and drops those over the limit.
func (n *newest) sort() {
	slices.SortFunc(n.entries, func(a, b Entry) int {
		return cmp.Or(b.ModTime.Compare(a.ModTime), strings.Compare(a.Name, b.Name))
	})
	if n.limit > 0 && len(n.entries) > n.limit {
		clear(n.entries[n.limit:])
		n.entries = n.entries[:n.limit]
	}
}

// isRegular tells whether name is a regular file or a link that leads to one.
func isRegular(ctx context.Context, e env.FileReader, name string, mode fs.FileMode) (bool, error) {
	if mode.Type() != fs.ModeSymlink {
		return mode.IsRegular(), nil
	}
	info, err := e.Stat(ctx, name)
	if err != nil {
		// A link that leads nowhere, or in a circle, is no file; that it can be listed is all there is to
		// say about it.
		if env.IsFatal(ctx, err) {
			return false, err
		}
		return false, nil
	}
	return info.Mode().IsRegular(), nil
}

// glob is a compiled pattern: the elements of each alternative.
type glob [][]string

// anyElements is the element that stands for any number of elements.
const anyElements = "**"

// parseGlob checks and compiles a pattern. A slash at its end, or at that of an alternative, stands
// for what is in the folder if folders is set. Errors wrap ErrBadPattern.
func parseGlob(pattern string, folders bool) (glob, error) {
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
		if elements[end] == "" && folders {
			elements[end] = anyElements
		}
		// Elements that say nothing may be anywhere but at the ends.
		if end > 1 {
			inner := slices.DeleteFunc(elements[1:end], func(e string) bool { return e == "" || e == "." })
			elements = append(elements[:1+len(inner)], elements[end])
		}
		switch {
		case p == "":
			return nil, fmt.Errorf("%w: it is empty", ErrBadPattern)
		case elements[0] == "" || pathname.HasDrive(p):
			return nil, fmt.Errorf("%w: it must be relative to the folder searched", ErrBadPattern)
		case slices.Contains(elements, ".."):
			return nil, fmt.Errorf("%w: it must not contain %q", ErrBadPattern, "..")
		case elements[len(elements)-1] == "":
			return nil, fmt.Errorf("%w: it ends with a slash, but only files are found; what is in a "+
				"folder is folder/**", ErrBadPattern)
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

// mergeStars makes several stars in a row one, which is what they mean within an element;
// doublestar gets them wrong at the end of a name.
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

// match tells whether the pattern matches name.
func (g glob) match(name string) bool { return g.matches(name, false) }

// mayMatchBelow tells whether the pattern could match something in the folder name.
func (g glob) mayMatchBelow(name string) bool { return g.matches(name, true) }

// matches is match or, with below set, mayMatchBelow.
func (g glob) matches(name string, below bool) bool {
	elements := strings.Split(name, "/")
	return slices.ContainsFunc(g, func(a []string) bool { return matchElements(a, elements, below) })
}

// matchElements matches element by element, so that no class can match a slash. With below set it
// tells whether the pattern could match a name that starts with the elements of name and has more
// of them.
func matchElements(pattern, name []string, below bool) bool {
	p, n := 0, 0
	retryPattern, retryName := -1, 0 // after the last **, which took the elements up to retryName
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

// expandBraces appends the patterns without braces that pattern stands for, and takes the bytes
// that it looks at from work. Doing so once bounds the work; a matcher that tries alternatives as
// it goes takes exponential time.
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
			return nil, fmt.Errorf("%w: its braces stand for more than %d patterns", ErrBadPattern,
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
