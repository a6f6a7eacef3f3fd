package envtest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// A breaker makes an environment that breaks a rule of one that keeps all.
type breaker func(t *testing.T, good env.Environment) env.Environment

// breakage breaks one rule, and the suite must notice in each of cases.
type breakage struct {
	name  string
	wrap  breaker
	cases []string
}

// altered is an environment whose methods can be replaced.
type altered struct {
	env.Environment
	exec      func(context.Context, env.Command) (env.Result, error)
	open      func(context.Context, string) (fs.File, error)
	stat      func(context.Context, string) (fs.FileInfo, error)
	lstat     func(context.Context, string) (fs.FileInfo, error)
	readLink  func(context.Context, string) (string, error)
	readDir   func(context.Context, string) ([]fs.DirEntry, error)
	writeFile func(context.Context, string, io.Reader, env.WriteOptions) (env.Written, error)
	remove    func(context.Context, string, env.RemoveOptions) error
	copyIn    func(context.Context, string, io.Reader) error
	copyOut   func(context.Context, string, ...string) (io.ReadCloser, error)
	info      func() env.Info
	close     func() error
}

func newAltered(good env.Environment) altered {
	return altered{
		good, good.Exec, good.Open, good.Stat, good.Lstat, good.ReadLink, good.ReadDir, good.WriteFile,
		good.Remove, good.CopyIn, good.CopyOut, good.Info, good.Close,
	}
}

// alter returns a breaker that replaces methods.
func alter(f func(good env.Environment, a *altered)) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		a := newAltered(good)
		f(good, &a)
		return &a
	}
}

func (a *altered) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	return a.exec(ctx, cmd)
}

func (a *altered) Open(ctx context.Context, name string) (fs.File, error) {
	return a.open(ctx, name)
}

func (a *altered) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return a.stat(ctx, name)
}

func (a *altered) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return a.lstat(ctx, name)
}

func (a *altered) ReadLink(ctx context.Context, name string) (string, error) {
	return a.readLink(ctx, name)
}

func (a *altered) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return a.readDir(ctx, name)
}

func (a *altered) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	return a.writeFile(ctx, name, r, opts)
}

func (a *altered) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	return a.remove(ctx, name, opts)
}

func (a *altered) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	return a.copyIn(ctx, dir, archive)
}

func (a *altered) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	return a.copyOut(ctx, dir, names...)
}

func (a *altered) Info() env.Info {
	return a.info()
}

func (a *altered) Close() error {
	return a.close()
}

// host returns the name for the operating system of a name in a local environment.
func host(e env.Environment, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return e.Info().WorkDir + "/" + name
}

// newBroken returns a constructor of environments that break a rule. Each of them wraps a good one,
// which is closed at the end of the test.
func newBroken(b breakage) func(t *testing.T) env.Environment {
	return func(t *testing.T) env.Environment {
		good, err := local.New(local.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = good.Close() })
		return b.wrap(t, good)
	}
}

func breakages() []breakage {
	return slices.Concat(
		brokenExec(), brokenArguments(), brokenStdin(), brokenStreams(), brokenProcesses(),
		brokenTerminals(), brokenConfinements(), brokenTyping(), brokenScreens(),
		brokenFiles(), brokenListings(), brokenWrites(), brokenConditions(),
		brokenCopies(), brokenCopyOut(), brokenRest(), brokenReadFiles(), brokenSearches(),
		brokenCancellations(), brokenLife(),
	)
}

// TestSuiteNoticesBrokenEnvironments runs single cases on environments of which each breaks one
// rule.
func TestSuiteNoticesBrokenEnvironments(t *testing.T) {
	groups := suite()
	l := newLanes()
	var wg sync.WaitGroup
	for _, b := range breakages() {
		for _, name := range b.cases {
			wg.Go(func() {
				t.Run(b.name+"/"+name, func(t *testing.T) {
					tc, ok := findCase(groups, name)
					if !ok {
						t.Fatalf("the case %s does not exist", name)
					}
					tc.fresh = false // its environment costs nothing
					defer l.enter(tc)()
					notices(t, b, tc)
				})
			})
		}
	}
	wg.Wait()
}

// notices fails the test unless tc fails on an environment with the breakage.
func notices(t *testing.T, b breakage, tc testCase) {
	opts := Options{New: newBroken(b), patience: 3 * time.Second}
	p := newSubject(t, opts)
	o := runCase(t, opts, p, tc)
	p.close()
	if o.skip != nil {
		t.Skip(o.skip.reason)
	}
	if len(o.failures) == 0 {
		t.Fatal("the suite did not notice")
	}
	for _, f := range o.failures {
		if !strings.HasPrefix(f, tc.rule+": ") {
			t.Errorf("the failure %q does not start with the broken sentence %q", f, tc.rule)
		}
	}
	t.Log(strings.Join(o.failures, "\n"))
}

// TestEveryRuleIsBrokenOnce reports sentences of the contract that no environment breaks.
func TestEveryRuleIsBrokenOnce(t *testing.T) {
	groups := suite()
	broken := make(map[string]bool)
	for _, b := range breakages() {
		for _, name := range b.cases {
			tc, _ := findCase(groups, name)
			broken[tc.rule] = true
		}
	}
	for _, g := range groups {
		for _, tc := range g.cases {
			if !broken[tc.rule] {
				t.Errorf("%s/%s checks %q, but no environment breaks that", g.name, tc.name, tc.rule)
				broken[tc.rule] = true
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	missing := outcome{skip: &skipped{reason: "no sh", missing: true}}
	pointless := outcome{skip: &skipped{reason: "root"}}
	failed := outcome{failures: []string{"rule: broken"}}
	for _, tc := range []struct {
		name, known, require string
		o                    outcome
		failures             int
		reason               string
	}{
		{name: "pass"},
		{name: "failure", o: failed, failures: 1},
		{
			name: "known difference", known: "because", o: failed,
			reason: "known difference: because\nrule: broken",
		},
		{name: "known difference that passes", known: "because", failures: 1},
		{name: "missing tool", o: missing, reason: "no sh"},
		{name: "missing tool, another required", o: missing, require: "docker", reason: "no sh"},
		{name: "missing tool, backend required", o: missing, require: "docker,local", failures: 1},
		{name: "missing tool, suite required", o: missing, require: "envtest", failures: 1},
		{name: "missing tool of a known difference", known: "because", o: missing, reason: "no sh"},
		{name: "pointless case, suite required", o: pointless, require: "envtest,local", reason: "root"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			failures, reason := verdict(tc.known, "local", tc.require, tc.o)
			if len(failures) != tc.failures || reason != tc.reason {
				t.Errorf("failures %q, reason %q; want %d and %q", failures, reason, tc.failures, tc.reason)
			}
		})
	}
}

func TestUnknownNames(t *testing.T) {
	got := unknownNames(suite(), map[string]string{
		"exec/exit_codes": "x", "exec/nonsense": "x",
		"kill": "x",
	})
	if want := []string{"exec/nonsense", "kill"}; !slices.Equal(got, want) {
		t.Errorf("unknown names %q, want %q", got, want)
	}
}

func TestCaseNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, g := range suite() {
		for _, tc := range g.cases {
			name := g.name + "/" + tc.name
			if seen[name] || tc.rule == "" || tc.run == nil {
				t.Errorf("the case %s stands twice, or lacks something", name)
			}
			seen[name] = true
			if strings.Trim(tc.name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				t.Errorf("the name %q does not fit into a test name", name)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d cases", len(seen))
	}
}

// TestHangingCase shows that a case that hangs, in an environment whose Close hangs as well, fails
// in bounded time.
func TestHangingCase(t *testing.T) {
	var log []string
	c := &caseT{rule: "rule", opts: Options{patience: time.Millisecond}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { log = c.outcome.failures }()
		c.within("nothing", func() { select {} })
		c.errorf("not reached")
	}()
	<-done
	if got := fmt.Sprint(log); got != "[rule: nothing hangs]" {
		t.Errorf("failures %s", got)
	}
}
