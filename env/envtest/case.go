package envtest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// caseTime bounds a case, so that an environment that hangs fails one case and not the whole test
	// binary.
	caseTime = 10 * time.Minute
	// closeTime bounds Close. Like pollTime it only ends the wait for an environment that hangs: a
	// loaded machine may take ten times as long as an idle one.
	closeTime = 3 * time.Minute
	// pollTime bounds the wait for an effect that the contract guarantees.
	pollTime = 3 * time.Minute
)

// A group is a set of cases about one part of the contract.
type group struct {
	name  string
	cases []testCase
}

// A testCase checks one thing.
type testCase struct {
	name string
	// rule is the sentence of the contract that a failure violates.
	rule string
	run  func(c *caseT)
	// fresh gives the case an environment that no other case uses, and which it may close.
	fresh bool
	// alone keeps other cases, also those of other suites in this process, from running at the same
	// time.
	alone bool
}

// outcome is the outcome of a case.
type outcome struct {
	failures []string
	skip     *skipped
}

// skipped is why a case did not run.
type skipped struct {
	reason string
	// missing reports that a tool is missing, and not that the case cannot apply.
	missing bool
}

// caseT is the state of a running case. It records failures instead of passing them to a testing.T,
// so that the suite can be tested on broken environments.
type caseT struct {
	ctx     context.Context
	e       env.Environment
	subject *subject
	opts    Options
	rule    string
	// dir is a directory for this case alone, relative to the working directory.
	dir string
	// spawn returns one more fresh environment. It runs in the goroutine of the test.
	spawn chan chan *subject
	stop  chan struct{}
	// witness, if set, is the environment that sees the processes of e after e has been closed.
	witness *subject
	// t is only for Options.Alive.
	t *testing.T

	mu       sync.Mutex
	outcome  outcome
	cleanups []func()
}

// runCase runs tc in p. It always returns in bounded time.
func runCase(t *testing.T, opts Options, p *subject, tc testCase) outcome {
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	c := &caseT{
		ctx: ctx, e: p.Environment, subject: p, opts: opts, rule: tc.rule, t: t,
		dir:   strings.NewReplacer("/", "-").Replace(tc.name) + fmt.Sprintf("-%08x", rand.Uint32()),
		spawn: make(chan chan *subject), stop: make(chan struct{}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.cleanUp()
		c.makeDir()
		tc.run(c)
	}()
	var subjects []*subject
	if tc.fresh {
		subjects = append(subjects, p)
	}
	defer close(c.stop)
	for {
		select {
		case reply := <-c.spawn:
			fresh := newSubject(t, opts)
			subjects = append(subjects, fresh)
			reply <- fresh
			continue
		case <-done:
		case <-time.After(caseTime + closeTime):
			buf := make([]byte, 1<<20)
			c.errorf("the case hangs; goroutines:\n%s", buf[:runtime.Stack(buf, true)])
		}
		break
	}
	for _, p := range subjects {
		if problem := p.close(); problem != "" {
			c.errorf("%s", problem)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return outcome{failures: slices.Clone(c.outcome.failures), skip: c.outcome.skip}
}

// makeDir creates the directory of the case.
func (c *caseT) makeDir() {
	keep := c.dir + "/.keep"
	if _, err := c.e.WriteFile(c.ctx, keep, strings.NewReader(""), env.WriteOptions{}); err != nil {
		c.fatalf("making the directory of the case: %v", err)
	}
	if err := c.e.Remove(c.ctx, keep, env.RemoveOptions{}); err != nil {
		c.fatalf("making the directory of the case: %v", err)
	}
	c.cleanup(func() {
		// The directory is removed with the environment at the latest.
		_ = c.e.Remove(context.WithoutCancel(c.ctx), c.dir, env.RemoveOptions{Recursive: true})
	})
}

// another returns one more fresh environment, which the suite closes.
func (c *caseT) another() *subject {
	reply := make(chan *subject)
	select {
	case c.spawn <- reply:
	case <-c.stop:
		runtime.Goexit()
	}
	select {
	case p := <-reply:
		return p
	case <-c.stop:
		runtime.Goexit()
	}
	return nil
}

// errorf records a failure.
func (c *caseT) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.failures = append(c.outcome.failures, c.rule+": "+fmt.Sprintf(format, args...))
}

// fatalf records a failure and ends the case. Only the goroutine of the case may call it.
func (c *caseT) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	runtime.Goexit()
}

// missing ends the case because a tool is missing.
func (c *caseT) missing(format string, args ...any) {
	c.end(skipped{reason: fmt.Sprintf(format, args...), missing: !c.opts.Bare})
}

// pointless ends the case because it cannot apply to this environment.
func (c *caseT) pointless(format string, args ...any) {
	c.end(skipped{reason: fmt.Sprintf(format, args...)})
}

func (c *caseT) end(s skipped) {
	c.mu.Lock()
	if len(c.outcome.failures) == 0 {
		c.outcome.skip = &s
	}
	c.mu.Unlock()
	runtime.Goexit()
}

// cleanup makes f run at the end of the case, last in first out.
func (c *caseT) cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

func (c *caseT) cleanUp() {
	for _, f := range slices.Backward(c.cleanups) {
		f()
	}
}

// name returns the relative name of a file in the directory of the case.
func (c *caseT) name(elem ...string) string { return c.dir + "/" + strings.Join(elem, "/") }

// abs returns the absolute name of a file in the directory of the case.
func (c *caseT) abs(elem ...string) string {
	return strings.TrimSuffix(c.e.Info().WorkDir, "/") + "/" + c.name(elem...)
}

// size returns long, or short under -short.
func (c *caseT) size(long, short int) int {
	if testing.Short() || c.opts.Small || c.opts.patience > 0 {
		return short
	}
	return long
}

// patience bounds the wait for an effect that the contract guarantees.
func (c *caseT) patience() time.Duration { return cmp.Or(c.opts.patience, pollTime) }

// poll waits for ok to become true.
func (c *caseT) poll(what string, ok func() bool) {
	deadline := time.Now().Add(c.patience())
	for !ok() {
		if time.Now().After(deadline) || c.ctx.Err() != nil {
			c.fatalf("waited in vain for %s", what)
		}
		time.Sleep(pollPause)
	}
}

// within calls f and fails the case if it does not return.
func (c *caseT) within(what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(c.patience()):
		c.fatalf("%s hangs", what)
	}
}

// A subject is an environment under test, with its facts.
type subject struct {
	env.Environment
	probe  sync.Once
	facts  facts
	closed sync.Once
	result string
}

// newSubject returns a fresh environment. It runs in the goroutine of the test.
func newSubject(t *testing.T, opts Options) *subject {
	t.Helper()
	e := opts.New(t)
	if e == nil {
		t.Fatal("envtest: Options.New returned nil")
	}
	return &subject{Environment: e}
}

// close closes the environment and returns the problem, if any. A later call returns the same.
func (p *subject) close() string {
	p.closed.Do(func() {
		done := make(chan error, 1)
		go func() { done <- p.Close() }()
		select {
		case err := <-done:
			if err != nil {
				p.result = fmt.Sprintf("Close gives %v", err)
			}
		case <-time.After(closeTime):
			p.result = fmt.Sprintf("Close has not returned after %v", closeTime)
		}
	})
	return p.result
}
