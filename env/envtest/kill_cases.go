package envtest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func killCases() []testCase {
	return []testCase{
		{name: "timeout", rule: ruleTimeout, run: killTimeout},
		{name: "timed_out_beats_143", rule: ruleTimeout, run: killTimedOutBeats143},
		{name: "deadline_of_context_is_cancellation", rule: ruleCancel, run: killDeadline},
		{name: "no_timeout_without_one", rule: ruleTimeout, run: killNoTimeout},
		{name: "children_die_on_timeout", rule: ruleTreeDead, run: timeOutKills((*caseT).family)},
		{name: "children_die_on_cancel", rule: ruleTreeDead, run: cancelKills((*caseT).family)},
		{name: "too_many_processes", rule: ruleProcesses, run: killTooMany},
		{name: "processes_within_the_limit", rule: ruleProcesses, run: killFewEnough},
		{name: "term_ignored", rule: ruleTreeDead, run: killTermIgnored},
		{name: "term_is_sent_first", rule: ruleGrace, run: killTermFirst},
		{name: "grace_is_two_seconds", rule: ruleGrace, run: killGrace},
		{name: "term_reaches_children", rule: ruleGrace, run: killTermReachesChildren},
		{name: "setsid_escapee_dies_on_timeout", rule: ruleTreeDead, run: timeOutKills((*caseT).escapee)},
		{name: "setsid_escapee_dies_on_cancel", rule: ruleTreeDead, run: cancelKills((*caseT).escapee)},
		{name: "double_fork_dies", rule: ruleTreeDead, run: killDoubleFork},
		{name: "setsid_double_fork_dies", rule: ruleTreeDead, run: killSetsidDoubleFork},
		{name: "env_cleared_escapee_dies", rule: ruleTreeDead, run: killEnvCleared},
		{name: "two_hundred_processes_die", rule: ruleTreeDead, run: killManyProcesses},
		{name: "cancel", rule: ruleCancel, run: cancelKills((*caseT).sleeper)},
		{name: "cancel_in_grace_time", rule: ruleTreeDead, run: killCancelInGrace},
		{name: "during_a_flood", rule: ruleTreeDead, run: killFlood},
		{
			name: "output_before_timeout_delivered", rule: ruleDelivered,
			run: killOutput((*caseT).timeOutKills),
		},
		{
			name: "output_before_cancel_delivered", rule: ruleDelivered,
			run: killOutput((*caseT).cancelKills),
		},
		{name: "interrupt", rule: ruleInterrupt, run: killInterrupt},
		{name: "interrupt_is_trapped", rule: ruleInterrupt, run: killInterruptTrapped},
		{name: "interrupt_is_not_waited_for", rule: ruleInterrupt, run: killInterruptEnds},
		{name: "neighbour_survives", rule: ruleOthers, run: killNeighbour},
	}
}

// timeOutKills returns a case that runs the result of command until its timeout.
func timeOutKills(command func(*caseT) (env.Command, []marker)) func(*caseT) {
	return func(c *caseT) { c.timeOutKills(command(c)) }
}

// cancelKills returns a case that cancels the result of command.
func cancelKills(command func(*caseT) (env.Command, []marker)) func(*caseT) {
	return func(c *caseT) { c.cancelKills(command(c)) }
}

// timeOutKills runs cmd until its timeout, and records a failure unless that kills all of markers.
func (c *caseT) timeOutKills(cmd env.Command, markers []marker) ran {
	r := c.timeOut(cmd, markers)
	c.gone(c.subject, markers)
	if r.err != nil || !r.TimedOut {
		c.errorf("a command that timed out: %+v, error %v; want TimedOut and no error", r.Result, r.err)
	}
	return r
}

// cancelKills cancels cmd once all of markers run, and records a failure unless that kills them.
func (c *caseT) cancelKills(cmd env.Command, markers []marker) ran {
	r := c.cancelled(cmd, 1, markers)
	c.wantCancelled(r, markers)
	return r
}

// wantCancelled records a failure unless r was cancelled and none of markers runs.
func (c *caseT) wantCancelled(r ran, markers []marker) {
	c.gone(c.subject, markers)
	c.is("a cancelled command", r.err, context.Canceled)
	c.is("a cancelled command", r.err, errEnough)
	if r.TimedOut {
		c.errorf("a cancelled command has TimedOut set: %+v", r.Result)
	}
}

// errEnough is the cause of the cancellations.
var errEnough = errors.New("the caller has had enough")

// wantOutcome records a failure unless r has this exit code and signal.
func (c *caseT) wantOutcome(what string, r ran, code int, signal string) {
	if r.ExitCode != code || r.Signal != signal {
		c.errorf("%s: %+v, want exit code %d and signal %q", what, r.Result, code, signal)
	}
}

func killTimeout(c *caseT) {
	var r ran
	for range 5 { // a busy machine may not let it die within GraceTime
		if r = c.timeOutKills(c.sleeper()); r.Signal != "SIGKILL" {
			break
		}
	}
	c.wantOutcome("a command that SIGTERM ended", r, 143, "SIGTERM")
}

func killTimedOutBeats143(c *caseT) {
	for _, trap := range []string{"exit 143", "exit 0", "trap - TERM; kill -TERM $$"} {
		c.timeOutKills(c.sleepers(1, `trap '`+trap+`' TERM; sleep "$1" & wait`))
	}
}

func killDeadline(c *caseT) {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	cmd, m := c.sleeper()
	r := c.execIn(ctx, c.e, cmd)
	c.gone(c.subject, m)
	c.is("a command whose context had a deadline", r.err, context.DeadlineExceeded)
	if r.TimedOut {
		c.errorf("the deadline of the context is not a timeout of the command: %+v", r.Result)
	}
}

func killNoTimeout(c *caseT) {
	c.wantExit("a command with time to spare", c.exec(c.script("sleep 1; exit 3")), 3)
	cmd := c.script("exit 4")
	cmd.Timeout = time.Hour
	c.wantExit("a command with a long timeout", c.exec(cmd), 4)
}

// family is a parent with a child in the background, one in the foreground and a grandchild.
func (c *caseT) family() (env.Command, []marker) {
	return c.sleepers(3,
		`sleep "$1" & sh -c 'sleep "$1" & wait' sh "$2" & sleep "$3"; echo unreachable`)
}

func killTooMany(c *caseT) {
	for _, command := range []func(*caseT) (env.Command, []marker){(*caseT).family, (*caseT).escapee} {
		cmd, markers := command(c)
		cmd.MaxProcesses, cmd.Timeout = 1, c.patience()
		r := c.exec(cmd)
		c.gone(c.subject, markers)
		if r.err != nil || !r.TooManyProcesses || r.TimedOut || r.ExitCode == 0 {
			c.errorf("a command with too many processes: %+v, error %v; want TooManyProcesses, an exit "+
				"code other than 0, and no error", r.Result, r.err)
		}
	}
}

func killFewEnough(c *caseT) {
	cmd := c.script(`for i in 1 2 3; do sleep 1 & done; wait; exit 3`)
	cmd.MaxProcesses = 100
	r := c.exec(cmd)
	c.wantExit("a command with a limit of processes", r, 3)
	if r.TooManyProcesses {
		c.errorf("a command with few processes: %+v", r.Result)
	}
	cmd.MaxProcesses = -1
	c.wantStartError("a negative limit of processes", c.exec(cmd), cmd, fs.ErrInvalid)
}

func killTermIgnored(c *caseT) {
	r := c.timeOutKills(c.sleepers(2, `trap '' TERM; sleep "$2" & exec sleep "$1"`))
	c.wantOutcome("a command that ignores SIGTERM", r, 137, "SIGKILL")
}

// handleTerm runs a script that handles SIGTERM until its timeout, and once more each time that its
// machine is too busy to run the handler within GraceTime.
func (c *caseT) handleTerm(script string) ran {
	var r ran
	for range 5 {
		if r = c.timeOutKills(c.sleepers(1, script)); r.Signal != "SIGKILL" {
			break
		}
	}
	return r
}

func killTermFirst(c *caseT) {
	r := c.handleTerm(`trap 'echo cleaning up; exit 7' TERM; sleep "$1" & wait`)
	c.equal("the output of the handler of SIGTERM", r.stdout, "cleaning up\n")
	c.wantOutcome("a command that handles SIGTERM", r, 7, "")
}

// killGrace has a command that outlives SIGTERM and prints the time for as long as it lives. A busy
// machine may keep it from that, or kill it late; of several attempts one must fit.
func killGrace(c *caseT) {
	if r := c.exec(c.script(`read t r </proc/uptime`)); r.ExitCode != 0 {
		c.pointless("the system has no /proc/uptime")
	}
	const script = `trap 'read t r </proc/uptime; echo "term $t"' TERM
while :; do
	read t r </proc/uptime; echo "$t"; i=0
	while [ $i -lt 3000 ]; do i=$((i+1)); done
done`
	c.poll("a command that lives on for GraceTime after SIGTERM, and no longer", func() bool {
		cmd := c.script(script)
		cmd.Timeout = time.Second
		lines := strings.Fields(c.exec(cmd).stdout)
		i := slices.Index(lines, "term")
		if i < 0 || i+1 >= len(lines) {
			return false
		}
		term, err := strconv.ParseFloat(lines[i+1], 64)
		last, err2 := strconv.ParseFloat(lines[len(lines)-1], 64)
		lived := time.Duration((last - term) * float64(time.Second))
		return err == nil && err2 == nil && lived > env.GraceTime*4/5 && lived < env.GraceTime*3/2
	})
}

func killTermReachesChildren(c *caseT) {
	r := c.handleTerm(`sh -c 'trap "echo child cleans up; exit 0" TERM
sleep "$1" & wait' sh "$1" & trap '' TERM; wait; wait`)
	c.equal("the output of a child's handler of SIGTERM", r.stdout, "child cleans up\n")
}

// setsid returns words of sh that run the arguments after them in a new session.
func (c *caseT) setsid() string {
	switch c.tool("setsid", "perl", "python3") {
	case "setsid":
		return "setsid"
	case "perl":
		return `perl -e 'use POSIX; if (fork) { wait; exit } POSIX::setsid(); exec @ARGV'`
	default:
		return `python3 -c 'import os, sys
if os.fork(): os.wait(); sys.exit()
os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])'`
	}
}

// escapee has a child in another session.
func (c *caseT) escapee() (env.Command, []marker) {
	return c.sleepers(2, c.setsid()+` sleep "$1" & sleep "$2"`)
}

// orphan are words of sh, after those that start a program, for a program that leaves a child to
// PID 1.
const orphan = ` sh -c '( exec sleep "$1" >/dev/null 2>&1 ) & exit 0' sh "$1" & `

func killDoubleFork(c *caseT) {
	c.timeOutKills(c.sleepers(2, `( ( exec sleep "$1" ) & ); sleep "$2"`))
}

func killSetsidDoubleFork(c *caseT) {
	cmd, m := c.sleepers(2, `( `+c.setsid()+orphan+`); sleep "$2"`)
	c.timeOutKills(cmd, m)
	c.cancelKills(cmd, m)
}

// killEnvCleared is for environments whose guarantee also holds for commands that work against it.
func killEnvCleared(c *caseT) {
	if c.e.Info().Strength(env.KillTree) == env.BestEffort {
		c.pointless("the guarantee holds only for commands that do not work against it")
	}
	c.timeOutKills(c.sleepers(2, `( env -i PATH="$PATH" `+c.setsid()+orphan+`); sleep "$2"`))
}

func killManyProcesses(c *caseT) {
	cmd, m := c.sleepers(1, `i=0; while [ $i -lt 200 ]; do sleep "$1" & i=$((i+1)); done; wait`)
	c.wantCancelled(c.cancelled(cmd, 200, m), m)
}

// killCancelInGrace cancels a command that is being stopped already.
func killCancelInGrace(c *caseT) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	cmd, m := c.sleepers(1, `trap 'echo >"$2"' TERM; while :; do sleep "$1"; done`, c.abs("term"))
	cmd.Timeout = time.Second / 2
	result := make(chan ran, 1)
	go func() { result <- c.execIn(ctx, c.e, cmd) }()
	c.poll("SIGTERM, or the end of the command", func() bool {
		_, err := c.e.Stat(c.ctx, c.name("term"))
		return err == nil || len(result) > 0 || !errors.Is(err, fs.ErrNotExist)
	})
	cancel(errEnough)
	r := <-result
	c.gone(c.subject, m)
	if r.err == nil && !r.TimedOut {
		c.errorf("a command that was stopped twice: %+v, no error; want TimedOut or the cancellation",
			r.Result)
	}
}

func killFlood(c *caseT) {
	flood, m := c.sleepers(1,
		`sleep "$1" & while :; do echo flood; done & while :; do echo flood >&2; done`)
	flood.Stdout = writerFunc(func(p []byte) (int, error) { return len(p), nil })
	flood.Stderr = flood.Stdout
	c.timeOutKills(flood, m)
	c.cancelKills(flood, m)
}

// killOutput checks the output of a command that kill ends.
func killOutput(kill func(*caseT, env.Command, []marker) ran) func(*caseT) {
	return func(c *caseT) {
		cmd, m := c.sleepers(1, `printf "$2"; printf err >&2; sleep "$1"`, octal(allBytes))
		r := kill(c, cmd, m)
		c.equal("stdout before the kill", r.stdout, allBytes)
		c.equal("stderr before the kill", r.stderr, "err")
	}
}

func killNeighbour(c *caseT) {
	start, daemon := c.sleepers(1, `sleep "$1" >/dev/null 2>&1 &`)
	c.wantExit("a command that starts a daemon", c.exec(start), 0)
	parallel, m := c.sleeper()
	others := append(daemon, m...)
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	result := make(chan ran, 1)
	go func() { result <- c.execIn(ctx, c.e, parallel) }()
	c.alive(others)

	c.timeOutKills(c.sleepers(1, `trap '' TERM; sleep "$1" & wait`))
	c.stays(others)
	c.cancelKills(c.sleepers(1, `sleep "$1" & wait`))
	c.stays(others)
	if len(result) > 0 {
		c.errorf("a command ended when another one was killed")
	}
	cancel(errEnough)
	<-result
}

// interrupted runs cmd and interrupts it each time the next of markers runs.
func (c *caseT) interrupted(cmd env.Command, markers []marker) ran {
	interrupts := make(chan struct{})
	cmd.Interrupt, cmd.Timeout = interrupts, c.patience()
	result := make(chan ran, 1)
	go func() { result <- c.exec(cmd) }()
	for _, m := range markers {
		c.alive([]marker{m})
		select {
		case interrupts <- struct{}{}:
		case <-time.After(c.patience()):
			c.fatalf("Exec does not receive from Interrupt while the command runs")
		}
	}
	return <-result
}

func killInterrupt(c *caseT) {
	c.unix()
	r := c.interrupted(c.sleeper())
	if r.err != nil || r.ExitCode != 130 || r.Signal != "SIGINT" || r.TimedOut {
		c.errorf("an interrupted command: %+v, error %v; want exit code 130 and SIGINT", r.Result, r.err)
	}
}

// killInterruptTrapped interrupts a shell that survives it, and its children.
func killInterruptTrapped(c *caseT) {
	c.unix()
	r := c.interrupted(c.sleepers(2,
		`trap 'echo caught' INT; sleep "$1"; echo "status $?"; sleep "$2"; exit 5`))
	c.wantExit("a shell that traps SIGINT", r, 5)
	if strings.Count(r.stdout, "caught\n") != 2 || !strings.Contains(r.stdout, "status 130\n") {
		c.errorf("the output is %q, want the trap's text twice and the status 130 of a child", r.stdout)
	}
}

func killInterruptEnds(c *caseT) {
	closed, silent := make(chan struct{}), make(chan struct{})
	close(closed)
	for what, interrupts := range map[string]<-chan struct{}{
		"is closed": closed, "gives none": silent,
	} {
		cmd := c.script("exit 3")
		cmd.Interrupt = interrupts
		var r ran
		c.within("a command with an Interrupt that "+what, func() { r = c.exec(cmd) })
		c.wantExit("a command with an Interrupt that "+what, r, 3)
	}
	// Whoever still received could do it at any time; a receiver that waits is met at once.
	for range 20 {
		select {
		case silent <- struct{}{}:
			c.fatalf("a value was received from Interrupt after Exec had returned")
		case <-time.After(time.Millisecond):
		}
	}
}
