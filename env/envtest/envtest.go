package envtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// requireVar is the variable that turns a skip for a missing tool into a failure.
const requireVar = "SANDBOXAGENT_REQUIRE"

// Options configure Run.
type Options struct {
	// New returns a fresh environment that writes files and runs commands. The suite closes it.
	New func(t *testing.T) env.Environment
	// Known maps the name of a case that this environment fails, such as "kill/double_fork_dies", to
	// the reason. A known case that passes or does not exist fails the run.
	Known map[string]string
	// Groups, if set, limits the run to these groups of cases, such as "kill". It suits an environment
	// that shares its other code with one that runs all cases.
	Groups []string
	// Bare reports that the environment has no shell and no tools by design: a case that needs one is
	// skipped even where SANDBOXAGENT_REQUIRE requires tools.
	Bare bool
	// NoTerminals reports that the environment has no terminals by design.
	NoTerminals bool
	// Small uses the amounts of data of go test -short.
	Small bool
	// Alive, if set, reports whether a process with exactly the command line argv runs in an
	// environment that has been closed. It is needed where a second environment from New cannot see
	// the processes of the first. AliveOnHost is one.
	Alive func(t *testing.T, argv ...string) bool

	// patience, if set, replaces pollTime in tests of the suite itself.
	patience time.Duration
}

// AliveOnHost is an Options.Alive for environments whose processes this machine lists in /proc.
func AliveOnHost(t *testing.T, argv ...string) bool {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		got, err := os.ReadFile(name)
		return err == nil && string(got) == strings.Join(argv, "\x00")+"\x00"
	})
}

// Run tests the environments that opts.New returns against the contract of package env.
func Run(t *testing.T, opts Options) {
	t.Helper()
	if opts.New == nil {
		t.Fatal("envtest: Options.New is nil")
	}
	groups := suite()
	for _, name := range opts.Groups {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			t.Errorf("Options.Groups names the group %q, which does not exist", name)
		}
	}
	for _, name := range unknownNames(groups, opts.Known) {
		t.Errorf("Options.Known names the case %q, which does not exist", name)
	}
	groups = slices.DeleteFunc(groups, func(g group) bool {
		return len(opts.Groups) > 0 && !slices.Contains(opts.Groups, g.name)
	})
	p := newSubject(t, opts)
	t.Cleanup(func() {
		if problem := p.close(); problem != "" {
			t.Errorf("%s: %s", ruleClose, problem)
		}
	})
	l := newLanes()
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() { t.Run(g.name, func(t *testing.T) { runGroup(t, opts, g, p, l) }) })
	}
	wg.Wait()
}

// lanes bound the number of cases that run at the same time. Most cases wait rather than compute,
// so that the bound of package testing, the number of processors, is too low.
type lanes struct{ usual, fresh chan struct{} }

// newLanes returns free lanes: 16 for all cases, 3 of which may be of cases that open environments.
func newLanes() *lanes {
	return &lanes{usual: make(chan struct{}, 16), fresh: make(chan struct{}, 3)}
}

// shared is held for writing by a case that runs alone in this process, and for reading by others.
var shared sync.RWMutex

// enter waits until tc may run, and returns how to leave.
func (l *lanes) enter(tc testCase) (leave func()) {
	if tc.alone {
		shared.Lock()
		return shared.Unlock
	}
	if tc.fresh {
		l.fresh <- struct{}{}
	}
	l.usual <- struct{}{}
	shared.RLock()
	return func() {
		shared.RUnlock()
		<-l.usual
		if tc.fresh {
			<-l.fresh
		}
	}
}

// runGroup runs the cases of g, in p if they need no environment of their own.
func runGroup(t *testing.T, opts Options, g group, p *subject, l *lanes) {
	var wg sync.WaitGroup
	for _, tc := range g.cases {
		wg.Go(func() {
			t.Run(tc.name, func(t *testing.T) {
				defer l.enter(tc)()
				p := p
				if tc.fresh {
					p = newSubject(t, opts)
				}
				known := opts.Known[g.name+"/"+tc.name]
				report(t, known, p.Info().Backend, runCase(t, opts, p, tc))
			})
		})
	}
	wg.Wait()
}

// report turns the outcome of a case into that of its subtest.
func report(t *testing.T, known, backend string, o outcome) {
	t.Helper()
	failures, reason := verdict(known, backend, os.Getenv(requireVar), o)
	for _, f := range failures {
		t.Error(f)
	}
	if reason != "" {
		t.Skip(reason)
	}
}

// verdict returns the failures of a subtest, or why it is skipped, or neither if it passes.
func verdict(known, backend, require string, o outcome) (failures []string, reason string) {
	switch {
	case o.skip != nil:
		required := strings.Split(require, ",")
		if o.skip.missing && (slices.Contains(required, "envtest") || slices.Contains(required,
			backend)) {
			return []string{fmt.Sprintf("%s=%s does not allow to skip this case: %s", requireVar, require,
				o.skip.reason)}, ""
		}
		return nil, o.skip.reason
	case known != "" && len(o.failures) == 0:
		return []string{fmt.Sprintf("this case passes; delete it from Options.Known (%s)", known)}, ""
	case known != "":
		return nil, fmt.Sprintf("known difference: %s\n%s", known, strings.Join(o.failures, "\n"))
	default:
		return o.failures, ""
	}
}

// unknownNames returns the keys of known that name no case, sorted.
func unknownNames(groups []group, known map[string]string) []string {
	var names []string
	for name := range known {
		if _, ok := findCase(groups, name); !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func findCase(groups []group, name string) (testCase, bool) {
	for _, g := range groups {
		for _, tc := range g.cases {
			if g.name+"/"+tc.name == name {
				return tc, true
			}
		}
	}
	return testCase{}, false
}
