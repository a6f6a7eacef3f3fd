package envtest

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func backgroundCases() []testCase {
	return []testCase{
		{name: "child_holding_pipe", rule: ruleReturns, run: backgroundHolding},
		{name: "child_without_pipe", rule: ruleReturns, run: backgroundSilent},
		{name: "bytes_before_exit_delivered", rule: ruleDelivered, run: backgroundDelivered},
		{name: "bytes_while_waiting_delivered", rule: ruleDelivered, run: backgroundLate},
		{name: "child_keeps_writing", rule: ruleLiveOn, run: backgroundKeepsWriting},
		{name: "child_outlives_timeout", rule: ruleLiveOn, run: backgroundOutlivesTimeout},
		{
			name: "dies_with_close", rule: ruleCloseEnds, fresh: true,
			run: diesWithClose((*caseT).background),
		},
		{
			name: "setsid_dies_with_close", rule: ruleCloseEnds, fresh: true,
			run: diesWithClose((*caseT).backgroundSetsid),
		},
	}
}

// prompt runs a command that must not wait for its children.
func (c *caseT) prompt(cmd env.Command) ran {
	var r ran
	c.within("Exec of a command with a child that lives on", func() { r = c.exec(cmd) })
	return r
}

func backgroundHolding(c *caseT) {
	cmd, m := c.sleepers(1, `sleep "$1" & echo out; echo err >&2; exit 5`)
	r := c.prompt(cmd)
	c.wantExit("a command whose child holds its pipes", r, 5)
	c.equal("stdout", r.stdout, "out\n")
	c.equal("stderr", r.stderr, "err\n")
	if !r.Detached {
		c.errorf("a child holds the pipes, but Detached is false")
	}
	c.stays(m)
}

func backgroundSilent(c *caseT) {
	cmd, m := c.sleepers(1, `sleep "$1" >/dev/null 2>&1 & echo out`)
	r := c.prompt(cmd)
	c.wantExit("a command with a child that does not hold its pipes", r, 0)
	c.equal("stdout", r.stdout, "out\n")
	if r.Detached {
		c.errorf("no process holds the pipes, but Detached is true")
	}
	c.alive(m)
	for range 3 { // a killed process may take a moment to disappear
		if r := c.exec(c.script("echo out")); r.Detached {
			c.errorf("a command without children has Detached set")
		}
	}
	c.stays(m)
}

func backgroundDelivered(c *caseT) {
	const lines = 8000
	cmd, _ := c.sleepers(1, `sleep "$1" & i=0
while [ $i -lt "$2" ]; do echo 0123456789; i=$((i+1)); done; printf last`, fmt.Sprint(lines))
	r := c.prompt(cmd)
	c.wantExit("a command with a child in the background", r, 0)
	if want := lines*11 + 4; len(r.stdout) != want || r.stdout[len(r.stdout)-4:] != "last" {
		c.errorf("%d bytes arrived, want %d", len(r.stdout), want)
	}
}

// backgroundLate has a child that sees the command's exit as the end of a pipe, counts for some
// milliseconds and writes. It starts no program. Where a busy machine needs too long for it,
// Exec has waited for all of the time.
func backgroundLate(c *caseT) {
	c.tool("mkfifo")
	c.sh(`mkfifo pipe`)
	var r ran
	c.poll("a child that writes soon after the command's exit", func() bool {
		started := time.Now()
		r = c.exec(c.script(`{ read -r _ <"$1"; i=0
while [ $i -lt 20000 ]; do i=$((i+1)); done; echo late; } &
exec 3>"$1"; echo early`, c.abs("pipe")))
		c.wantExit("a command with a child that writes soon", r, 0)
		waited := time.Since(started)
		if r.Detached && waited < env.DrainTime {
			c.fatalf("a child writes soon, but Exec returned after %v, with Detached", waited)
		}
		return !r.Detached
	})
	c.equal("stdout", r.stdout, "early\nlate\n")
}

// backgroundKeepsWriting has a child write, long after Exec has returned, more than any pipe holds.
func backgroundKeepsWriting(c *caseT) {
	line := fmt.Sprintf("%01000d", 0)
	r := c.exec(c.script(`(i=0; while [ $i -lt 3 ]; do sleep 1; j=0
while [ $j -lt 200 ]; do echo "$2"; j=$((j+1)); done; i=$((i+1)); done; : >"$1") &`,
		c.abs("done"), line))
	c.wantExit("a command with a child that goes on writing", r, 0)
	c.poll("the child to have written all its output", func() bool {
		_, err := c.e.Stat(c.ctx, c.name("done"))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

func backgroundOutlivesTimeout(c *caseT) {
	cmd, m := c.sleepers(1, `sleep "$1" & exit 3`)
	cmd.Timeout = time.Second
	r := c.prompt(cmd)
	if r.TimedOut && r.Elapsed >= cmd.Timeout {
		c.pointless("the machine is too slow to run exit in %v", cmd.Timeout)
	}
	c.wantExit("a command that ended before its timeout, with a child that did not", r, 3)
	c.stays(m)
}

// closeSeen closes the environment and records a failure for every process of markers that is left.
func (c *caseT) closeSeen(markers []marker) {
	if c.opts.Alive == nil {
		c.witness = c.another()
		if len(c.scan(c.witness, markers)) < len(markers) {
			c.missing("another environment does not show the processes of the first, " +
				"and Options.Alive is not set")
		}
	}
	if problem := c.subject.close(); problem != "" {
		c.errorf("%s", problem)
	}
	if c.opts.Alive == nil {
		c.gone(c.witness, markers)
		return
	}
	for _, m := range markers {
		if c.opts.Alive(c.t, "sleep", m.seconds()) {
			c.errorf("the process %q still runs", m)
		}
	}
}

// diesWithClose returns a case in which Close kills the remaining processes of command.
func diesWithClose(command func(*caseT) (env.Command, []marker)) func(*caseT) {
	return func(c *caseT) {
		cmd, m := command(c)
		c.prompt(cmd)
		c.alive(m)
		c.closeSeen(m)
	}
}

// background leaves a child that holds its pipes, one that does not, and one that ignores SIGTERM.
func (c *caseT) background() (env.Command, []marker) {
	return c.sleepers(3, `sleep "$1" & sleep "$2" >/dev/null 2>&1 &
trap '' TERM; sleep "$3" >/dev/null 2>&1 & exit 0`)
}

// backgroundSetsid leaves a child in another session and an orphan.
func (c *caseT) backgroundSetsid() (env.Command, []marker) {
	setsid := c.setsid()
	return c.sleepers(2, setsid+` sleep "$2" >/dev/null 2>&1 & ( `+setsid+orphan+`); exit 0`)
}
