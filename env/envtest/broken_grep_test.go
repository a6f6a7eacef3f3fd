package envtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// matchFunc is the function of a caller of Grep.
type matchFunc = func(search.GrepMatch) error

// forgetful is an environment that ignores options of searches.
type forgetful struct {
	altered
	grep  func(opts *search.GrepOptions)
	match func(m search.GrepMatch, fn matchFunc) error
	glob  func(opts *search.GlobOptions)
}

func (f *forgetful) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, plain{f.Environment}, root, opts, fn)
}

func (f *forgetful) Grep(
	ctx context.Context, opts search.GrepOptions, fn matchFunc,
) (search.GrepStats, error) {
	if f.grep != nil {
		f.grep(&opts)
	}
	return search.Grep(ctx, plain{f.Environment}, opts, func(m search.GrepMatch) error {
		if f.match != nil {
			return f.match(m, fn)
		}
		return fn(m)
	})
}

func (f *forgetful) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	if f.glob != nil {
		f.glob(&opts)
	}
	return search.Glob(ctx, plain{f.Environment}, opts)
}

// grepBut returns a breaker that changes the options of Grep.
func grepBut(change func(opts *search.GrepOptions)) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		return &forgetful{altered: newAltered(good), grep: change}
	}
}

// matchesBut returns a breaker that changes the matches of Grep.
func matchesBut(change func(m search.GrepMatch, fn matchFunc) error) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		return &forgetful{altered: newAltered(good), match: change}
	}
}

// deaf is an environment whose searches take their contexts for others.
type deaf struct {
	altered
	other func(ctx context.Context) context.Context
	err   func(err error) error
}

func (d *deaf) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return d.err(search.Walk(d.other(ctx), plain{d.Environment}, root, opts, fn))
}

func (d *deaf) Grep(
	ctx context.Context, opts search.GrepOptions, fn matchFunc,
) (search.GrepStats, error) {
	stats, err := search.Grep(d.other(ctx), plain{d.Environment}, opts, fn)
	return stats, d.err(err)
}

func (d *deaf) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	found, err := search.Glob(d.other(ctx), plain{d.Environment}, opts)
	return found, d.err(err)
}

// endsWith replaces every context by that of t.
func endsWith(t *testing.T) func(context.Context) context.Context {
	return func(context.Context) context.Context { return t.Context() }
}

// deafErrors returns a breaker that changes the errors of searches.
func deafErrors(f func(error) error) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		return &deaf{newAltered(good), func(ctx context.Context) context.Context { return ctx }, f}
	}
}

// brokenCancellations have searches that end with the test at the latest.
func brokenCancellations() []breakage {
	same := func(err error) error { return err }
	return []breakage{
		{"searches ignore a cancellation", func(t *testing.T, good env.Environment) env.Environment {
			return &deaf{newAltered(good), endsWith(t), same}
		}, []string{"search/grep_cancelled_without_matches", "search/glob_cancelled"}},
		{"searches hide the cause of a cancellation", deafErrors(func(err error) error {
			if err != nil {
				return context.Canceled
			}
			return nil
		}), []string{"search/grep_cancelled_at_a_match"}},
		{
			"searches hide a cancellation", deafErrors(func(error) error { return nil }),
			[]string{"search/glob_cancelled"},
		},
		{"searches do not end", func(t *testing.T, good env.Environment) env.Environment {
			return &deaf{newAltered(good), endsWith(t), func(error) error {
				return fmt.Errorf("%w: %w", context.Canceled, errEnoughSeen)
			}}
		}, []string{"search/grep_cancelled_at_a_match", "search/walk_cancelled"}},
	}
}

func brokenSearches() []breakage {
	return []breakage{
		{
			"Grep shows nothing before a match", grepBut(func(o *search.GrepOptions) { o.Before = 0 }),
			[]string{"search/grep_context"},
		},
		{
			"Grep shows nothing after a match", grepBut(func(o *search.GrepOptions) { o.After = 0 }),
			[]string{"search/grep_context"},
		},
		{"Grep has no context lines", matchesBut(func(m search.GrepMatch, fn matchFunc) error {
			m.Context = false
			return fn(m)
		}), []string{"search/grep_context"}},
		{"Grep repeats context lines", matchesBut(func(m search.GrepMatch, fn matchFunc) error {
			if err := fn(m); err != nil || !m.Context {
				return err
			}
			return fn(m)
		}), []string{"search/grep_context"}},
		{
			"Grep delivers all matches", grepBut(func(o *search.GrepOptions) { o.MaxMatches = -1 }),
			[]string{"search/grep_context_limits"},
		},
		{
			"Grep matches line by line", grepBut(func(o *search.GrepOptions) { o.Multiline = false }),
			[]string{"search/grep_multiline_large"},
		},
		{
			"Grep takes texts for expressions", grepBut(func(o *search.GrepOptions) { o.Literal = false }),
			[]string{"search/grep_literal"},
		},
		{
			"Grep minds case", grepBut(func(o *search.GrepOptions) { o.IgnoreCase = false }),
			[]string{"search/grep_multiline"},
		},
		{
			"Grep ignores Types", grepBut(func(o *search.GrepOptions) { o.Types = nil }),
			[]string{"search/grep_types"},
		},
		{
			"Grep leaves nothing out", grepBut(func(o *search.GrepOptions) { o.Exclude = "" }),
			[]string{"search/grep_exclude"},
		},
		{
			"Grep has one mode", grepBut(func(o *search.GrepOptions) { o.Mode = search.GrepLines }),
			[]string{"search/grep_files"},
		},
		{"Grep names files with a line", matchesBut(func(m search.GrepMatch, fn matchFunc) error {
			m.Line = max(1, m.Line)
			return fn(m)
		}), []string{"search/grep_files"}},
		{"Grep counts at most one match", matchesBut(func(m search.GrepMatch, fn matchFunc) error {
			m.Count = min(m.Count, 1)
			return fn(m)
		}), []string{"search/grep_counts"}},
		{
			"Grep has no limit for a file", grepBut(func(o *search.GrepOptions) { o.MaxFileMatches = 0 }),
			[]string{"search/grep_file_limit"},
		},
		{"Glob minds case", func(_ *testing.T, good env.Environment) env.Environment {
			return &forgetful{
				altered: newAltered(good),
				glob:    func(o *search.GlobOptions) { o.IgnoreCase = false },
			}
		}, []string{"search/glob_ignore_case"}},
		{"Glob minds no case", func(_ *testing.T, good env.Environment) env.Environment {
			return &forgetful{
				altered: newAltered(good),
				glob:    func(o *search.GlobOptions) { o.IgnoreCase = true },
			}
		}, []string{"search/glob_ignore_case"}},
	}
}
