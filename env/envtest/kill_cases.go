package envtest

import (
	"context"
	"errors"
	"io/fs"
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
		{name: "children_die_on_timeout", rule: ruleTreeDead, run: killChildren},
		{name: "children_die_on_cancel", rule: ruleTreeDead, run: killChildrenCancel},
		{name: "term_ignored", rule: ruleTreeDead, run: killTermIgnored},
		{name: "term_is_sent_first", rule: ruleGrace, run: killTermFirst},
		{name: "term_reaches_children", rule: ruleGrace, run: killTermReachesChildren},
		{name: "setsid_escapee_dies_on_timeout", rule: ruleTreeDead, run: killSetsidTimeout},
		{name: "setsid_escapee_dies_on_cancel", rule: ruleTreeDead, run: killSetsidCancel},
		{name: "double_fork_dies", rule: ruleTreeDead, run: killDoubleFork},
		{name: "setsid_double_fork_dies", rule: ruleTreeDead, run: killSetsidDoubleFork},
		{name: "env_cleared_escapee_dies", rule: ruleTreeDead, run: killEnvCleared},
		{name: "two_hundred_processes_die", rule: ruleTreeDead, run: killManyProcesses},
		{name: "cancel", rule: ruleCancel, run: killCancel},
		{name: "cancel_in_grace_time", rule: ruleTreeDead, run: killCancelInGrace},
		{name: "during_a_flood", rule: ruleTreeDead, run: killFlood},
		{name: "output_before_timeout_delivered", rule: ruleDelivered, run: killOutputTimeout},
		{name: "output_before_cancel_delivered", rule: ruleDelivered, run: killOutputCancel},
		{name: "neighbour_survives", rule: ruleOthers, run: killNeighbour},
	}
}

// wantTimedOut records a failure unless r timed out.
func (c *caseT) wantTimedOut(r ran) {
	if r.err != nil || !r.TimedOut {
		c.errorf("a command that timed out: %+v, error %v; want TimedOut and no error", r.Result, r.err)
	}
}

// wantCancelled records a failure unless r was cancelled with cause.
func (c *caseT) wantCancelled(r ran, cause error) {
	c.is("a cancelled command", r.err, context.Canceled)
	c.is("a cancelled command", r.err, cause)
	if r.TimedOut {
		c.errorf("a cancelled command has TimedOut set: %+v", r.Result)
	}
}

var errEnough = errors.New("the caller has had enough")

func killTimeout(c *caseT) {
	m := c.marker()
	r := c.timeOut(env.Command{Argv: strings.Fields(string(m))}, m)
	c.gone(c.subject, m)
	c.wantTimedOut(r)
	if r.ExitCode != 143 || r.Signal != "SIGTERM" {
		c.errorf("a command that SIGTERM ended: %+v, want exit code 143 and SIGTERM", r.Result)
	}
}

func killTimedOutBeats143(c *caseT) {
	for _, text := range []string{
		`trap 'exit 143' TERM`, `trap 'exit 0' TERM`,
		`trap 'trap - TERM; kill -TERM $$' TERM`,
	} {
		m := c.marker()
		r := c.timeOut(c.script(text+`; sleep "$1" & wait`, m.seconds()), m)
		c.gone(c.subject, m)
		c.wantTimedOut(r)
	}
}

func killDeadline(c *caseT) {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	m := c.marker()
	r := c.execIn(ctx, c.e, env.Command{Argv: strings.Fields(string(m))})
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
const family = `sleep "$1" & sh -c 'sleep "$1" & wait' sh "$2" & sleep "$3"; echo unreachable`

func (c *caseT) family() (env.Command, []marker) {
	m := []marker{c.marker(), c.marker(), c.marker()}
	return c.script(family, m[0].seconds(), m[1].seconds(), m[2].seconds()), m
}

func killChildren(c *caseT) {
	cmd, m := c.family()
	r := c.timeOut(cmd, m...)
	c.gone(c.subject, m...)
	c.wantTimedOut(r)
}

func killChildrenCancel(c *caseT) {
	cmd, m := c.family()
	r := c.cancelled(cmd, errEnough, 1, m...)
	c.gone(c.subject, m...)
	c.wantCancelled(r, errEnough)
}

func killTermIgnored(c *caseT) {
	m, child := c.marker(), c.marker()
	r := c.timeOut(c.script(`trap '' TERM; sleep "$2" & exec sleep "$1"`, m.seconds(),
		child.seconds()), m, child)
	c.gone(c.subject, m, child)
	c.wantTimedOut(r)
	if r.ExitCode != 137 || r.Signal != "SIGKILL" {
		c.errorf("a command that ignores SIGTERM: %+v, want exit code 137 and SIGKILL", r.Result)
	}
}

func killTermFirst(c *caseT) {
	m := c.marker()
	r := c.timeOut(c.script(`trap 'echo cleaning up; exit 7' TERM; sleep "$1" & wait`, m.seconds()), m)
	c.gone(c.subject, m)
	c.wantTimedOut(r)
	c.equal("the output of the handler of SIGTERM", r.stdout, "cleaning up\n")
	if r.ExitCode != 7 || r.Signal != "" {
		c.errorf("a command that handles SIGTERM: %+v, want exit code 7", r.Result)
	}
}

func killTermReachesChildren(c *caseT) {
	m := c.marker()
	r := c.timeOut(c.script(`sh -c 'trap "echo child cleans up; exit 0" TERM; sleep "$1" & wait' sh "$1" & trap '' TERM; wait; wait`, m.seconds()), m)
	c.gone(c.subject, m)
	c.wantTimedOut(r)
	c.equal("the output of a child's handler of SIGTERM", r.stdout, "child cleans up\n")
}

// setsid returns words of sh that run the arguments after them in a session of their own.
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

func (c *caseT) escapee() (env.Command, []marker) {
	m := []marker{c.marker(), c.marker()}
	return c.script(c.setsid()+` sleep "$1" & sleep "$2"`, m[0].seconds(), m[1].seconds()), m
}

func killSetsidTimeout(c *caseT) {
	cmd, m := c.escapee()
	r := c.timeOut(cmd, m...)
	c.gone(c.subject, m...)
	c.wantTimedOut(r)
}

func killSetsidCancel(c *caseT) {
	cmd, m := c.escapee()
	r := c.cancelled(cmd, errEnough, 1, m...)
	c.gone(c.subject, m...)
	c.wantCancelled(r, errEnough)
}

func killDoubleFork(c *caseT) {
	m, main := c.marker(), c.marker()
	r := c.timeOut(c.script(`( ( exec sleep "$1" ) & ); sleep "$2"`, m.seconds(), main.seconds()), m,
		main)
	c.gone(c.subject, m, main)
	c.wantTimedOut(r)
}

func killSetsidDoubleFork(c *caseT) {
	m, main := c.marker(), c.marker()
	text := `( ` + c.setsid() + ` sh -c '( exec sleep "$1" >/dev/null 2>&1 ) & exit 0' sh "$1" & ); sleep "$2"`
	cmd := c.script(text, m.seconds(), main.seconds())
	r := c.timeOut(cmd, m, main)
	c.gone(c.subject, m, main)
	c.wantTimedOut(r)
	r = c.cancelled(cmd, errEnough, 1, m, main)
	c.gone(c.subject, m, main)
	c.wantCancelled(r, errEnough)
}

// killEnvCleared is for environments that keep the promise against commands that work against it.
func killEnvCleared(c *caseT) {
	if c.e.Info().Strength(env.KillTree) == env.BestEffort {
		c.pointless("the environment makes its promise only for commands that do not work against it")
	}
	m, main := c.marker(), c.marker()
	text := `( env -i PATH="$PATH" ` + c.setsid() +
		` sh -c '( exec sleep "$1" >/dev/null 2>&1 ) & exit 0' sh "$1" & ); sleep "$2"`
	r := c.timeOut(c.script(text, m.seconds(), main.seconds()), m, main)
	c.gone(c.subject, m, main)
	c.wantTimedOut(r)
}

func killManyProcesses(c *caseT) {
	m := c.marker()
	r := c.cancelled(c.script(`i=0; while [ $i -lt 200 ]; do sleep "$1" & i=$((i+1)); done; wait`,
		m.seconds()), errEnough, 200, m)
	c.gone(c.subject, m)
	c.wantCancelled(r, errEnough)
}

func killCancel(c *caseT) {
	m := c.marker()
	r := c.cancelled(env.Command{Argv: strings.Fields(string(m))}, errEnough, 1, m)
	c.gone(c.subject, m)
	c.wantCancelled(r, errEnough)
}

// killCancelInGrace cancels a command that is being stopped already.
func killCancelInGrace(c *caseT) {
	m := c.marker()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	cmd := c.script(`trap 'echo >"$2"' TERM; while :; do sleep "$1"; done`, m.seconds(), c.abs("term"))
	cmd.Timeout = time.Second / 2
	result := make(chan ran, 1)
	go func() { result <- c.execIn(ctx, c.e, cmd) }()
	c.poll("SIGTERM to arrive, or the command to end", func() bool {
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
	m := c.marker()
	flood := c.script(`sleep "$1" & while :; do echo flood; done & while :; do echo flood >&2; done`,
		m.seconds())
	flood.Stdout = writerFunc(func(p []byte) (int, error) { return len(p), nil })
	flood.Stderr = flood.Stdout
	r := c.timeOut(flood, m)
	c.gone(c.subject, m)
	c.wantTimedOut(r)
	r = c.cancelled(flood, errEnough, 1, m)
	c.gone(c.subject, m)
	c.wantCancelled(r, errEnough)
}

func killOutputTimeout(c *caseT) {
	m := c.marker()
	r := c.timeOut(c.script(`printf "$2"; printf err >&2; sleep "$1"`, m.seconds(), octal(allBytes)),
		m)
	c.wantTimedOut(r)
	c.equal("stdout before the timeout", r.stdout, allBytes)
	c.equal("stderr before the timeout", r.stderr, "err")
}

func killOutputCancel(c *caseT) {
	m := c.marker()
	r := c.cancelled(c.script(`printf "$2"; printf err >&2; sleep "$1"`, m.seconds(), octal(allBytes)),
		errEnough, 1, m)
	c.wantCancelled(r, errEnough)
	c.equal("stdout before the cancellation", r.stdout, allBytes)
	c.equal("stderr before the cancellation", r.stderr, "err")
}

func killNeighbour(c *caseT) {
	daemon, parallel := c.marker(), c.marker()
	c.wantExit("a command that starts a daemon", c.exec(c.script(`sleep "$1" >/dev/null 2>&1 &`,
		daemon.seconds())), 0)
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	result := make(chan ran, 1)
	go func() { result <- c.execIn(ctx, c.e, env.Command{Argv: strings.Fields(string(parallel))}) }()
	c.alive(daemon, parallel)

	m := c.marker()
	c.wantTimedOut(c.timeOut(c.script(`trap '' TERM; sleep "$1" & wait`, m.seconds()), m))
	c.gone(c.subject, m)
	c.stays(daemon, parallel)
	c.cancelled(c.script(`sleep "$1" & wait`, m.seconds()), errEnough, 1, m)
	c.gone(c.subject, m)
	c.stays(daemon, parallel)
	if len(result) > 0 {
		c.errorf("a command ended when another one was killed")
	}
	cancel(errEnough)
	<-result
}
