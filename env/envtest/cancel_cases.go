package envtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// cancelCases are the cases of cancelled searches. A whole search takes much longer than
// a case may.
func cancelCases() []testCase {
	return []testCase{
		{name: "grep_cancelled_at_a_match", rule: ruleSearchEnds, run: grepCancelledAtMatch},
		{name: "grep_cancelled_without_matches", rule: ruleSearchEnds, run: grepCancelledWithoutMatches},
		{name: "walk_cancelled", rule: ruleSearchEnds, run: walkCancelled},
		{name: "glob_cancelled", rule: ruleSearchEnds, run: globCancelled},
	}
}

// errEnoughSeen is the cause of the cancellations.
var errEnoughSeen = errors.New("enough has been seen")

// endless makes a file of a TiB, of which all but the lines at its start is a hole.
func (c *caseT) endless(name string) {
	c.unix()
	c.write(c.name(name), strings.Repeat("needle\n", 20_000))
	if !c.test(`dd if=/dev/null of="$1" bs=1048576 seek=1048576 count=0 2>/dev/null`, c.abs(name)) {
		c.pointless("a file of a TiB cannot be made")
	}
}

// directories creates directories with some files.
func (c *caseT) directories(count, files int) {
	c.unix()
	c.sh(`n=$1 m=$2 i=0; set --
while [ $i -lt $n ]; do set -- "$@" d$i; i=$((i + 1)); done; mkdir "$@"
for d; do j=0; while [ $j -lt $m ]; do : >"$d/f$j"; j=$((j + 1)); done; done`,
		fmt.Sprint(count), fmt.Sprint(files))
}

// ends calls a search, which has to end because of its cancellation.
func (c *caseT) ends(what string, search func(ctx context.Context, cancel func()) error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	var err error
	c.within(what+" that is cancelled", func() { err = search(ctx, func() { cancel(errEnoughSeen) }) })
	c.is(what+" that is cancelled", err, context.Canceled)
	c.is(what+" that is cancelled", err, errEnoughSeen)
}

func grepCancelledAtMatch(c *caseT) {
	c.endless("endless")
	c.both(func(what string, e env.Environment) {
		for _, tc := range []struct{ pattern, path string }{
			{"needle", c.name("endless")},
			{"needle", c.dir},
			{"[m-n]e{2}[a-f]+", c.dir},
		} {
			what := fmt.Sprintf("Grep%s for %s in %s", what, tc.pattern, tc.path)
			var found atomic.Int64
			c.ends(what, func(ctx context.Context, cancel func()) error {
				opts := search.GrepOptions{
					Pattern: tc.pattern, Path: tc.path, MaxMatches: -1, MaxTime: -1,
					MaxBytes: -1,
				}
				_, err := search.Grep(ctx, e, opts, func(search.GrepMatch) error {
					found.Add(1)
					cancel()
					return nil
				})
				return err
			})
			if n := found.Load(); n != 1 {
				c.errorf("%s delivers %d matches though it is cancelled at the first", what, n)
			}
		}
	})
}

func grepCancelledWithoutMatches(c *caseT) {
	c.endless("endless")
	c.both(func(what string, e env.Environment) {
		for _, path := range []string{c.name("endless"), c.dir} {
			for _, opts := range []search.GrepOptions{
				{Pattern: "no such text"}, {
					Pattern:    "no such text",
					IgnoreCase: true,
				}, {Pattern: "[A-Z]{4}[0-9]{4}$", Mode: search.GrepFiles},
			} {
				opts.Path, opts.MaxTime, opts.MaxBytes = path, -1, -1
				c.ends(fmt.Sprintf("Grep%s for %s in %s", what, opts.Pattern, path), func(ctx context.Context,
					cancel func(),
				) error {
					// The search does not end before, whenever that is.
					defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
					_, err := search.Grep(ctx, e, opts, func(search.GrepMatch) error { return nil })
					return err
				})
			}
		}
	})
}

func walkCancelled(c *caseT) {
	c.directories(1, c.size(10_000, 2_000))
	c.both(func(what string, e env.Environment) {
		var found atomic.Int64
		c.ends("Walk"+what, func(ctx context.Context, cancel func()) error {
			return search.Walk(ctx, e, c.name("d0"), search.WalkOptions{}, func(search.Entry) error {
				found.Add(1)
				cancel()
				return nil
			})
		})
		if n := found.Load(); n != 1 {
			c.errorf("Walk%s reports %d entries though it is cancelled at the first", what, n)
		}
	})
}

// globCancelled cancels until that comes while the search runs.
func globCancelled(c *caseT) {
	c.directories(100, 2)
	c.both(func(what string, e env.Environment) {
		opts := search.GlobOptions{Pattern: "**/f*", Dir: c.dir}
		start := time.Now()
		got, err := search.Glob(c.ctx, e, opts)
		took := time.Since(start)
		if err != nil || len(got) != 200 {
			c.fatalf("Glob%s: %d files, error %v", what, len(got), err)
		}
		// On a machine with much to do a timer may be late.
		for try, end := 0, time.Now().Add(c.patience()); time.Now().Before(end); try++ {
			ctx, cancel := context.WithCancelCause(c.ctx)
			timer := time.AfterFunc(took*time.Duration(try%8)/8, func() { cancel(errEnoughSeen) })
			got, err = search.Glob(ctx, e, opts)
			timer.Stop()
			cancel(nil)
			if err != nil {
				break
			}
		}
		c.is("Glob"+what+" that is cancelled", err, context.Canceled)
		c.is("Glob"+what+" that is cancelled", err, errEnoughSeen)
		if err != nil && got != nil {
			c.errorf("Glob%s that is cancelled: %d files with the error", what, len(got))
		}
	})
}
