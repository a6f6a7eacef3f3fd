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
	"github.com/sandboxagent/sandboxagent/env/search/internal/grep"
)

const (
	// DefaultMaxMatches is how many matches Grep delivers if GrepOptions does not say.
	DefaultMaxMatches = 100
	// DefaultMaxLineBytes is how much of a line Grep delivers if GrepOptions does not say.
	DefaultMaxLineBytes = 500
	// DefaultGrepTime is how long Grep tries an expression on each line if GrepOptions does not say.
	DefaultGrepTime = 30 * time.Second
	// DefaultGrepBytes is on how many bytes it does so.
	DefaultGrepBytes = 2 << 30
)

// GrepStop is why a search ended before everything was searched.
type GrepStop string

// Limits that end a search.
const (
	// GrepOverTime means GrepOptions.MaxTime.
	GrepOverTime GrepStop = "time"
	// GrepOverBytes means GrepOptions.MaxBytes.
	GrepOverBytes GrepStop = "bytes"
)

// GrepMode is what Grep delivers.
type GrepMode string

// Modes of Grep.
const (
	// GrepLines delivers each line that matches. It is the default.
	GrepLines GrepMode = ""
	// GrepFiles delivers each file with a line that matches, once, and searches it no further.
	GrepFiles GrepMode = "files"
	// GrepCounts delivers each file with a line that matches, once, and how many there are.
	GrepCounts GrepMode = "counts"
)

// GrepOptions say what Grep looks for.
type GrepOptions struct {
	// Pattern is a regular expression in the syntax of package regexp. It is matched against one line
	// at a time, without the line ending; one with a line ending in it is ErrBadPattern unless
	// Multiline is set.
	Pattern string
	// Literal takes Pattern for a text, not an expression.
	Literal bool
	// IgnoreCase matches letters of either case.
	IgnoreCase bool
	// Multiline matches Pattern against a whole file, so that a match may be of several lines, all of
	// which are delivered: ^ and $ are the ends of lines, which end with "\n" only, and a dot is a
	// line ending, too. Limits count lines, and so may cut a match. Files of more than 4 MiB are not
	// searched, which is an error for each.
	Multiline bool
	// Path is the file or folder to search; empty means the working directory. It is searched even if
	// it is ignored.
	Path string
	// Glob restricts the files of a folder. Without a slash, as in *.go, it is matched against the
	// last element of a name, else against the name relative to Path. The syntax is that of
	// GlobOptions.Pattern, but for a slash at the end, which stands for what is in the folder, and "!"
	// at the start, which has to be quoted. Exclude leaves files out, and folders with all that is in
	// them.
	Glob, Exclude string
	// Types restricts the files of a folder to those of one of these kinds, see FileTypes. One that is
	// not known is ErrBadPattern.
	Types []string
	// NoIgnore searches everything, see WalkOptions.
	NoIgnore bool
	// Mode is what is delivered.
	Mode GrepMode
	// Before and After are how many lines before and after each one that matches are delivered as
	// well, 1000 at most. Those before are delivered as far as 1 MiB of them goes, at least; those
	// after the last one that MaxMatches or MaxFileMatches allow may match, too.
	Before, After int
	// MaxMatches is how many matches are delivered, or files in a Mode with files: 0 means
	// DefaultMaxMatches, a negative number all. MaxFileMatches is how many of one file; 0 means all.
	MaxMatches, MaxFileMatches int
	// MaxLineBytes is how much of a line is delivered: 0 means DefaultMaxLineBytes; at most 64 KiB.
	MaxLineBytes int
	// MaxTime and MaxBytes are how long is searched at most, and how many bytes of files, if Pattern
	// has no text to look for, so that it has to be tried on each line: 0 means DefaultGrepTime and
	// DefaultGrepBytes, a negative one that there is no limit. The search ends without an error then,
	// and GrepStats.Stopped says so.
	MaxTime  time.Duration
	MaxBytes int64
}

// GrepMatch is one line that matches, or one around it.
type GrepMatch struct {
	// Name is the file, by a name that can be opened: Path with the name below it, or Path itself if
	// that is a file.
	Name string
	// Line counts from 1. It is 0 in a mode with files.
	Line int
	// Text is the line without its line ending, byte by byte: it may hold invalid UTF-8.
	Text string
	// LineCut says that Text is only the start of the line, cut between two characters.
	LineCut bool
	// Context says that the line is delivered because it is near one that matches.
	Context bool
	// Count is how many lines of the file match, with GrepCounts; those found until then if a limit
	// has stopped the search.
	Count int
}

// GrepStats tell what a search did.
type GrepStats struct {
	// Files is how many files were searched.
	Files int
	// Matches is how many matches were delivered.
	Matches int
	// SkippedBinary is how many files were left out because they are binary.
	SkippedBinary int
	// Truncated says that there are more matches than GrepOptions.MaxMatches.
	Truncated bool
	// Stopped, if set, says that files were left out or searched in part, and why: the search took too
	// long, or there is too much.
	Stopped GrepStop `json:",omitempty"`
}

// Grep calls fn for each line that matches opts.Pattern, file by file in the order of Walk, and
// line by line. Only regular files below opts.Path are searched, not links; what is ignored is as
// for Walk. A file whose first 8 KiB hold a NUL byte is binary and skipped. Lines end with "\n" or
// "\r\n"; a byte order mark at the start of a file is no part of its first line; bytes that are not
// UTF-8 match as U+FFFD does. Memory is bounded, however long a file or a line is.
//
// An error of fn ends the search with that error; fs.SkipAll ends it without one.
//
// A malformed pattern or glob is ErrBadPattern, a missing path fs.ErrNotExist, both before fn is
// called. If some folders or files could not be read, the error is an *UnreadableError, and
// everything else has been searched. GrepStats tell what was done also with an error.
func Grep(
	ctx context.Context, e env.FileReader, opts GrepOptions, fn func(GrepMatch) error,
) (GrepStats, error) {
	if s, ok := e.(Searcher); ok {
		return s.Grep(ctx, opts, fn)
	}
	g := &grepper{
		ctx: ctx, e: e, fn: fn, left: cmp.Or(opts.MaxMatches, DefaultMaxMatches),
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
		err = g.folder(ctx, root, WalkOptions{NoIgnore: opts.NoIgnore})
	} else {
		err = g.one(ctx, root)
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

// compileGrep compiles what is looked for. Its error wraps ErrBadPattern.
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
	re, err := regexp.Compile(pattern) // by itself, so that an error is about what was written
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
	if !opts.Multiline && wantsNewline(parsed) {
		return nil, fmt.Errorf("%w: it contains a line ending, but lines are matched one at a time; "+
			"only a search for several lines finds it", ErrBadPattern)
	}
	return grep.New(re, parsed), nil
}

// wantsNewline tells whether a part of the pattern is a literal line ending, so that it would
// silently never match.
func wantsNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub,
		wantsNewline)
}

// filter is GrepOptions.Glob.
type filter struct {
	glob     glob // nil lets everything pass
	baseOnly bool
}

func parseFilter(pattern string) (filter, error) {
	if pattern == "" {
		return filter{}, nil
	}
	if strings.HasPrefix(pattern, "!") {
		return filter{}, fmt.Errorf(`%w: it starts with "!", which leaves nothing out here: say what to leave out as what to exclude, or write \! for the character`, ErrBadPattern)
	}
	glob, err := parseGlob(pattern, true)
	return filter{glob: glob, baseOnly: !strings.Contains(pattern, "/")}, err
}

// parseTypes returns what lets files of some kinds pass; nil if there are none.
func parseTypes(names []string) (all []filter, err error) {
	for _, name := range names {
		globs := typeGlobs(name)
		if len(globs) == 0 {
			return nil, fmt.Errorf("%w: there is no file type %.100q; there are %s", ErrBadPattern, name,
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
