package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// ran is a finished command.
type ran struct {
	env.Result
	stdout, stderr string
	err            error
}

// exec runs cmd and keeps its output, unless cmd has writers. A terminal has no stderr.
func (c *caseT) exec(cmd env.Command) ran { return c.execIn(c.ctx, c.e, cmd) }

func (c *caseT) execIn(ctx context.Context, e env.Environment, cmd env.Command) ran {
	var stdout, stderr lockedBuffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil && cmd.TTY == nil {
		cmd.Stderr = &stderr
	}
	res, err := e.Exec(ctx, cmd)
	return ran{Result: res, stdout: stdout.take(), stderr: stderr.take(), err: err}
}

// lockedBuffer keeps the output of a command in an environment that may break the rule to write
// from one goroutine, and not after the end.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns the output since the last call.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// script returns a command that runs text in sh with args as $1 and so on. A case in an environment
// without sh ends here.
func (c *caseT) script(text string, args ...string) env.Command {
	if !c.subject.learn(c.ctx).sh {
		c.missing("no sh in PATH")
	}
	return env.Command{Argv: append([]string{"sh", "-c", text, "sh"}, args...)}
}

// sh runs a script that prepares a case, and returns its output. The script must work.
func (c *caseT) sh(text string, args ...string) string { return c.shIn(c.dir, text, args...) }

// shIn is sh in the directory dir.
func (c *caseT) shIn(dir, text string, args ...string) string {
	cmd := c.script(text, args...)
	cmd.Dir = dir
	r := c.exec(cmd)
	if r.err != nil || r.ExitCode != 0 {
		c.fatalf("the script %q, which the case needs, ended with exit code %d, error %v, stderr %q",
			text, r.ExitCode, r.err, r.stderr)
	}
	return r.stdout
}

// test runs a script and reports whether its exit code is 0. It does not read output: an
// environment with broken output must not skip a case.
func (c *caseT) test(text string, args ...string) bool {
	r := c.exec(c.script(text, args...))
	if r.err != nil {
		c.fatalf("the script %q, which the case needs: %v", text, r.err)
	}
	return r.ExitCode == 0
}

// tool returns the first of the programs names that exists. Without any the case ends.
func (c *caseT) tool(names ...string) string {
	for _, name := range names {
		if c.test(`command -v "$1" >/dev/null`, name) {
			return name
		}
	}
	c.missing("no %s in PATH", strings.Join(names, " or "))
	return ""
}

// ordinaryUser ends the case if commands run as root, whom missing rights do not stop.
func (c *caseT) ordinaryUser() {
	if c.test(`test "$(id -u)" -eq 0`) {
		c.pointless("root may do everything")
	}
}

// unix ends the case if the files of the environment have no Unix modes, symlinks and so on.
func (c *caseT) unix() {
	if c.e.Info().OS == "windows" {
		c.pointless("files have no Unix modes")
	}
}

// wantExit records a failure unless r is a command that ended with code, by itself.
func (c *caseT) wantExit(what string, r ran, code int) {
	if r.err != nil {
		c.errorf("%s: error %v, want none", what, r.err)
	}
	if r.ExitCode != code || r.Signal != "" || r.TimedOut || r.OutOfMemory {
		c.errorf("%s: %+v, want exit code %d and nothing else", what, r.Result, code)
	}
}

// equal records a failure unless got is want. Long texts are cut where they start to differ.
func (c *caseT) equal(what, got, want string) {
	if got == want {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, i-20):min(len(s), i+80)] }
	c.errorf("%s: %d bytes, want %d; they differ from byte %d on:\n got …%q…\nwant …%q…", what,
		len(got), len(want), i, cut(got), cut(want))
}

// is records a failure unless err wraps target.
func (c *caseT) is(what string, err, target error) {
	if !errors.Is(err, target) {
		c.errorf("%s: error %v, want one that wraps %q", what, err, target)
	}
}

// facts are the properties of an environment that its commands report.
type facts struct {
	sh   bool
	proc bool // Processes can be read from /proc.
	ps   bool // Processes can be read with ps.
}

// learn returns the facts about the environment. A tool is missing only if Exec
// reports fs.ErrNotExist.
func (p *subject) learn(ctx context.Context) facts {
	p.probe.Do(func() {
		test := func(text string) (env.Result, error) {
			return p.Exec(ctx, env.Command{Argv: []string{"sh", "-c", text}})
		}
		_, err := test("exit 0")
		p.facts.sh = !errors.Is(err, fs.ErrNotExist)
		if p.facts.sh {
			res, err := test(`read -r line </proc/self/cmdline; test -n "$line"`)
			p.facts.proc = err == nil && res.ExitCode == 0
			res, err = test("ps -axo pid=,command=")
			p.facts.ps = err == nil && res.ExitCode == 0
		}
	})
	return p.facts
}

// A marker is the command line of processes that no other process has: sleep with a random number.
type marker string

// marker returns the command line of a new marker. Its remaining processes are killed at the
// end of the case.
func (c *caseT) marker() marker {
	f := c.subject.learn(c.ctx)
	if !f.sh {
		c.missing("no sh in PATH")
	}
	if !f.proc && !f.ps {
		c.missing("neither /proc nor ps shows the processes")
	}
	// Seconds: days, longer than any test.
	m := marker("sleep " + strconv.Itoa(100_000+rand.IntN(900_000)))
	c.cleanup(func() { c.killAll(m) })
	return m
}

// killAll kills the processes of a marker. An environment that breaks a rule may have left shells
// that are about to become such processes, which its second look finds.
func (c *caseT) killAll(m marker) {
	p := c.subject
	if c.witness != nil {
		p = c.witness
	}
	for looks, empty := 0, 0; looks < maxScans && empty < 2; looks++ {
		pids := c.scan(p, []marker{m})[m]
		switch {
		case len(pids) > 0:
			empty = 0
			_ = c.execIn(context.WithoutCancel(c.ctx), p, env.Command{
				Argv: append([]string{"sh", "-c", `kill -9 "$@"`, "sh"}, pids...),
			})
		case c.opts.patience > 0: // a test of the suite
			empty++
			time.Sleep(time.Second / 2)
		default:
			return
		}
	}
}

// seconds returns the argument of sleep.
func (m marker) seconds() string { return strings.TrimPrefix(string(m), "sleep ") }

// scanScript prints process ID and command line of every sleep in /proc. A zombie has no command
// line. The shell reads byte by byte and drops the NUL bytes between arguments, so grep, where it
// exists, narrows the files down. grep lists itself: an empty list means that it does not work.
const scanScript = `p=slee; files=$(grep -lsF "${p}p" /proc/[0-9]*/cmdline 2>/dev/null)
test -n "$files" || files=$(echo /proc/[0-9]*/cmdline)
for f in $files; do line=; { IFS= read -r line <"$f"; } 2>/dev/null
case $line in sleep[0-9]*) p=${f#/proc/}; echo "${p%/cmdline} sleep ${line#sleep}";; esac; done; :`

// scan returns the process IDs of each of markers as p sees them.
func (c *caseT) scan(p *subject, markers []marker) map[marker][]string {
	script := scanScript
	if !p.learn(c.ctx).proc {
		script = "ps -axo pid=,command="
	}
	cmd := env.Command{Argv: []string{"sh", "-c", script}}
	r := c.execIn(context.WithoutCancel(c.ctx), p, cmd)
	pids := make(map[marker][]string)
	if r.err != nil || r.ExitCode != 0 {
		// An unreadable process table must never look like one without the marker.
		if !errors.Is(r.err, fs.ErrClosed) {
			c.errorf("reading the process table: exit code %d, error %v, stderr %q",
				r.ExitCode, r.err, r.stderr)
		}
		return pids
	}
	for line := range strings.Lines(r.stdout) {
		pid, argv, _ := strings.Cut(strings.TrimSpace(line), " ")
		if m := marker(strings.TrimSpace(argv)); slices.Contains(markers, m) {
			pids[m] = append(pids[m], pid)
		}
	}
	return pids
}

// alive waits until all of markers run.
func (c *caseT) alive(markers []marker) {
	c.poll(fmt.Sprintf("processes with the command lines %q", markers), func() bool {
		return c.allAlive(1, markers)
	})
}

// gone records a failure for every process of markers that runs now.
func (c *caseT) gone(p *subject, markers []marker) {
	for m, pids := range c.scan(p, markers) {
		c.errorf("%d processes %q still run (pid %s)", len(pids), m, strings.Join(pids, ", "))
	}
}

// stays records a failure for each of markers that does not run now.
func (c *caseT) stays(markers []marker) {
	running := c.scan(c.subject, markers)
	for _, m := range markers {
		if len(running[m]) == 0 {
			c.errorf("the process %q is gone, but must live", m)
		}
	}
}

// sleepers returns a command that runs text in sh and n new markers. Their seconds are $1 and so
// on, followed by args.
func (c *caseT) sleepers(n int, text string, args ...string) (env.Command, []marker) {
	var markers []marker
	var all []string
	for i := range n {
		markers = append(markers, c.marker())
		all = append(all, markers[i].seconds())
	}
	return c.script(text, append(all, args...)...), markers
}

// sleeper returns a command that is a new marker.
func (c *caseT) sleeper() (env.Command, []marker) {
	m := c.marker()
	return env.Command{Argv: strings.Fields(string(m))}, []marker{m}
}

const (
	// pollPause is the pause between two checks of a condition.
	pollPause = 10 * time.Millisecond
	// maxScans is the number of scans beside a command after which its processes, if none of the
	// scans found them, will not appear: each scan takes longer than starting them.
	maxScans = 40
)

// timeOut runs cmd with a timeout that fires after every one of markers has been seen running. If
// the first timeout was too short for that, it tries longer ones.
func (c *caseT) timeOut(cmd env.Command, markers []marker) ran {
	for cmd.Timeout = time.Second / 2; cmd.Timeout < time.Minute; cmd.Timeout *= 4 {
		result := make(chan ran, 1)
		go func() { result <- c.exec(cmd) }()
		seen, scans := false, 0
		for ; !seen && len(result) == 0; scans++ {
			if seen = c.allAlive(1, markers); !seen {
				time.Sleep(pollPause)
			}
			if scans == maxScans {
				c.absent(markers)
			}
		}
		r := <-result
		if seen {
			return r
		}
		if r.err != nil || !r.TimedOut {
			c.fatalf("the command ended before its timeout and before its processes ran: "+
				"%+v, error %v, stderr %q", r.Result, r.err, r.stderr)
		}
	}
	c.absent(markers)
	return ran{}
}

// absent ends the case, because the processes of markers do not run beside their command.
func (c *caseT) absent(markers []marker) {
	c.fatalf("a command starts processes with the command lines %q, but while it runs other commands "+
		"do not find them all in the process table", markers)
}

// allAlive reports whether at least n processes of each of markers run.
func (c *caseT) allAlive(n int, markers []marker) bool {
	running := c.scan(c.subject, markers)
	return !slices.ContainsFunc(markers, func(m marker) bool { return len(running[m]) < n })
}

// cancelled runs cmd and cancels it once n processes of each of markers run.
func (c *caseT) cancelled(cmd env.Command, n int, markers []marker) ran {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	result := make(chan ran, 1)
	go func() { result <- c.execIn(ctx, c.e, cmd) }()
	c.poll(fmt.Sprintf("processes with the command lines %q", markers), func() bool {
		return len(result) > 0 || c.allAlive(n, markers)
	})
	cancel(errEnough)
	return <-result
}
