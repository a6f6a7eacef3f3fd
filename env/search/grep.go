package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/regular"
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// DefaultMaxMatches is the default of GrepOptions.MaxMatches.
	DefaultMaxMatches = 100
	// DefaultMaxLineBytes is the default of GrepOptions.MaxLineBytes.
	DefaultMaxLineBytes = 500
	// DefaultGrepTime is the default of GrepOptions.MaxTime.
	DefaultGrepTime = 30 * time.Second
	// DefaultGrepBytes is the default of GrepOptions.MaxBytes.
	DefaultGrepBytes = 2 << 30
)

// GrepStop is the limit that ended a search early.
type GrepStop string

// Limits that end a search.
const (
	// GrepOverTime means GrepOptions.MaxTime.
	GrepOverTime GrepStop = "time"
	// GrepOverBytes means GrepOptions.MaxBytes.
	GrepOverBytes GrepStop = "bytes"
)

// GrepMode is the kind of results of Grep.
type GrepMode string

// Modes of Grep.
const (
	// GrepLines reports each matching line. It is the default.
	GrepLines GrepMode = ""
	// GrepFiles reports each file with a matching line once.
	GrepFiles GrepMode = "files"
	// GrepCounts reports each file with a matching line once, with their number.
	GrepCounts GrepMode = "counts"
)

// GrepOptions are options of Grep.
type GrepOptions struct {
	// Pattern is a regular expression in the syntax of package regexp. It matches within one line,
	// without the line ending; one with a line ending in it is ErrBadPattern unless Multiline is set.
	Pattern string
	// Literal makes Pattern a plain text.
	Literal bool
	// IgnoreCase matches letters of either case.
	IgnoreCase bool
	// Multiline matches Pattern against whole files, so that a match may have several lines, all of
	// which are reported: ^ and $ match at line boundaries, a dot also matches "\n", and lines end
	// with "\n" only. Limits count lines, and so may cut a match. A file of more than 4 MiB counts as
	// unreadable.
	Multiline bool
	// Path is the file or directory to search, even if it is ignored; empty means the working
	// directory.
	Path string
	// Glob selects files of a directory. Without a slash, as in *.go, it matches the last element of a
	// name, else the name relative to Path. The syntax is that of GlobOptions.Pattern, except that a
	// trailing slash means the tree of a directory, and a leading "!" needs quoting. Exclude leaves
	// out files, and directories with their trees.
	Glob, Exclude string
	// Types selects files of a directory by type, see FileTypes. An unknown type is ErrBadPattern.
	Types []string
	// NoIgnore includes ignored files, see WalkOptions.
	NoIgnore bool
	// Mode is the kind of results.
	Mode GrepMode
	// Before and After are the numbers of context lines before and after each match, at most 1000.
	// Lines before a match are reported as far as they fit into at least 1 MiB; lines after the last
	// match that MaxMatches or MaxFileMatches allows may match too.
	Before, After int
	// MaxMatches bounds the number of matching lines, or of files, depending on Mode: 0 means
	// DefaultMaxMatches, a negative number no limit. MaxFileMatches bounds those of one file; 0 means
	// no limit.
	MaxMatches, MaxFileMatches int
	// MaxLineBytes bounds the reported part of a line: 0 means DefaultMaxLineBytes; at most 64 KiB.
	MaxLineBytes int
	// MaxTime and MaxBytes bound a search whose pattern has no required literal, so that Grep tries it
	// on each line: the duration, and the number of bytes read. 0 means DefaultGrepTime and
	// DefaultGrepBytes, a negative value no limit. At a limit the search ends without an error, and
	// sets GrepStats.Stopped.
	MaxTime  time.Duration
	MaxBytes int64
}

// GrepMatch is a matching line, a context line, or a file, depending on GrepOptions.Mode.
type GrepMatch struct {
	// Name is the path of the file: GrepOptions.Path joined with the name below it, or Path itself if
	// that is a file.
	Name string
	// Line counts from 1. It is 0 for a file.
	Line int
	// Text are the bytes of the line without its ending, which may be invalid UTF-8.
	Text string
	// LineCut is true if Text is only the start of the line, cut between two characters.
	LineCut bool
	// Context is true for a context line.
	Context bool
	// Count is the number of matching lines in the file, with GrepCounts; the number so far if a limit
	// has ended the search.
	Count int
}

// GrepStats are the statistics of a search.
type GrepStats struct {
	// Files is the number of searched files.
	Files int
	// Matches is the number of reported matches.
	Matches int
	// SkippedBinary is the number of binary files.
	SkippedBinary int
	// Truncated is true if the search found more than GrepOptions.MaxMatches.
	Truncated bool
	// Stopped, if set, is the limit that ended the search before all files were searched.
	Stopped GrepStop `json:",omitempty"`
}

// Grep calls fn for each line that matches opts.Pattern, file by file in the order of Walk, and
// line by line. It searches the regular files below opts.Path, not symlinks; Walk defines which are
// ignored. A file with a NUL byte in its first 8 KiB is binary and skipped. Lines end with "\n" or
// "\r\n"; a byte order mark is not part of the first line; bytes that are not UTF-8 match as
// U+FFFD. Memory is bounded, however long a file or a line is.
//
// An error of fn ends the search with that error; fs.SkipAll ends it without one.
//
// A malformed pattern or glob is ErrBadPattern, a missing path fs.ErrNotExist, both before fn is
// called. If some directories or files could not be read, the error is an *UnreadableError, and all
// other files have been searched. GrepStats are valid with an error too.
func Grep(
	ctx context.Context, e env.FileReader, opts GrepOptions, fn func(GrepMatch) error,
) (GrepStats, error) {
	if s, ok := e.(Searcher); ok {
		return s.Grep(ctx, opts, fn)
	}
	g := &grepper{
		openRegular: regular.OpenOf(e),
		ctx:         ctx, e: e, fn: fn, left: cmp.Or(opts.MaxMatches, DefaultMaxMatches),
		mode: opts.Mode, perFile: opts.MaxFileMatches,
	}
	lines := grep.Options{Multiline: opts.Multiline, MaxLine: min(cmp.Or(max(opts.MaxLineBytes, 0),
		DefaultMaxLineBytes), maxLineBytes)}
	if opts.Mode == GrepLines {
		lines.Before, lines.After = min(max(opts.Before, 0), maxContext), min(max(opts.After, 0),
			maxContext)
	}
	g.after = lines.After
	pattern, err := compileGrep(opts)
	if err != nil {
		return g.stats, fmt.Errorf("grep %.100q: %w", opts.Pattern, err)
	}
	for _, f := range []struct {
		of   *filter
		glob string
	}{{&g.filter, opts.Glob}, {&g.exclude, opts.Exclude}} {
		if *f.of, err = parseFilter(f.glob); err != nil {
			return g.stats, fmt.Errorf("grep: glob %.100q: %w", f.glob, err)
		}
	}
	if g.types, err = parseTypes(opts.Types); err != nil {
		return g.stats, fmt.Errorf("grep: %w", err)
	}
	root := cmp.Or(opts.Path, ".")
	info, err := e.Stat(ctx, root)
	if err != nil {
		return g.stats, err
	}
	if !pattern.Literal() {
		var end context.CancelFunc
		ctx, end = g.limit(ctx, opts)
		defer end()
	}
	g.searcher = func() *grep.Searcher { return grep.NewSearcher(pattern, lines) }
	if info.IsDir() {
		if !opts.Multiline {
			if g.rg = findRipgrep(e, pattern, root); g.rg != nil {
				g.early = make(chan struct{})
			}
		}
		err = g.searchDir(ctx, root, WalkOptions{NoIgnore: opts.NoIgnore})
	} else {
		err = g.searchFile(ctx, root)
	}
	var over overLimit
	switch {
	case err == nil, errors.Is(err, fs.SkipAll):
	case g.failed != nil:
		return g.stats, g.failed
	case ctx.Err() == nil:
		return g.stats, err
	case g.ctx.Err() != nil:
		return g.stats, &fs.PathError{Op: "grep", Path: root, Err: env.ContextError(g.ctx)}
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &over):
		g.stats.Stopped = GrepStop(over)
	default:
		return g.stats, err
	}
	return g.stats, g.unreadable.err()
}

const (
	// maxLineBytes limits GrepOptions.MaxLineBytes.
	maxLineBytes = 64 << 10
	// maxContext limits GrepOptions.Before and After.
	maxContext = 1000
)

// compileGrep compiles the pattern. Its error wraps ErrBadPattern.
func compileGrep(opts GrepOptions) (*grep.Pattern, error) {
	pattern, flags := opts.Pattern, ""
	if opts.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if opts.IgnoreCase {
		flags = "(?i)"
	}
	if opts.Multiline {
		flags += "(?ms)"
	}
	re, err := regexp.Compile(pattern) // without flags, so that an error quotes the given pattern
	if err == nil && flags != "" {
		re, err = regexp.Compile(flags + pattern)
	}
	if err != nil {
		var detail *syntax.Error
		if errors.As(err, &detail) {
			return nil, fmt.Errorf("%w: %s: %.100q", ErrBadPattern, detail.Code, detail.Expr)
		}
		return nil, fmt.Errorf("%w: %w", ErrBadPattern, err)
	}
	parsed, err := syntax.Parse(flags+pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPattern, err)
	}
	if !opts.Multiline && needsNewline(parsed) {
		return nil, fmt.Errorf("%w: it contains a line ending, but matches within one line "+
			"(only a multiline search finds it)", ErrBadPattern)
	}
	return grep.New(re, parsed), nil
}

// needsNewline reports whether a part of the pattern is a literal line ending, with which it would
// never match.
func needsNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') ||
		slices.ContainsFunc(re.Sub, needsNewline)
}

// filter is GrepOptions.Glob.
type filter struct {
	glob     glob // nil matches every name
	baseOnly bool
}

func parseFilter(pattern string) (filter, error) {
	if pattern == "" {
		return filter{}, nil
	}
	if strings.HasPrefix(pattern, "!") {
		return filter{}, fmt.Errorf(`%w: it starts with "!" (another parameter excludes files; `+
			`\! is the character)`, ErrBadPattern)
	}
	glob, err := parseGlob(pattern, true)
	return filter{glob: glob, baseOnly: !strings.Contains(pattern, "/")}, err
}

// parseTypes returns the filters of the named file types.
func parseTypes(names []string) (all []filter, err error) {
	for _, name := range names {
		globs := typeGlobs(name)
		if len(globs) == 0 {
			return nil, fmt.Errorf("%w: unknown file type %.100q (the types are %s)", ErrBadPattern, name,
				strings.Join(FileTypes(), ", "))
		}
		for _, pattern := range globs {
			f, err := parseFilter(pattern)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func (f filter) match(name string) bool {
	if f.baseOnly {
		name = path.Base(name)
	}
	return f.glob == nil || f.glob.match(name)
}

func (f filter) mayMatchBelow(name string) bool {
	return f.glob == nil || f.baseOnly || f.glob.mayMatchBelow(name)
}
