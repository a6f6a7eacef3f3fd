package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// guardTime bounds the check at the end.
const guardTime = 2 * time.Minute

// treeGuard finds repositories and settings that commands made for git outside. A nil one does
// nothing.
type treeGuard struct {
	env  *environment
	opts workspace.GuardOptions
	// started is nil before start.
	started *workspace.Guard
	// ctx is that of the checks between commands.
	ctx context.Context //nolint:containedctx // it is that of the run, whose events come without one
}

// newTreeGuard returns the guard of an environment that works in place. TopOnly is for a command of
// the user's own, which without a sandbox is not guarded at all.
func newTreeGuard(ctx context.Context, e *environment, topOnly bool) *treeGuard {
	info := e.plain.Info()
	if !e.inPlace || e.readOnly || topOnly && info.Strength(env.Isolation) == env.Absent {
		return nil
	}
	opts := workspace.GuardOptions{TopOnly: topOnly}
	if e.account == "" {
		if dir, err := filepath.EvalSymlinks(info.WorkDir); err == nil {
			opts.Dir = dir
			if name, err := filepath.Rel(dir, e.trusted); err == nil && e.trusted != "" {
				opts.Settings = []string{filepath.ToSlash(name)}
			}
		}
	}
	return &treeGuard{env: e, opts: opts, ctx: ctx}
}

// start starts to record the state of the working directory.
func (g *treeGuard) start() {
	if g != nil && g.started == nil {
		g.started = workspace.StartGuard(g.ctx, g.env.plain, g.opts)
	}
}

// wait waits until the state is recorded, so that commands may run.
func (g *treeGuard) wait() {
	if g != nil && g.started != nil {
		g.started.Wait(g.ctx)
	}
}

// event is a sink for the events of a run. The state is recorded beside the first request to the
// model, no tool starts before it is, and a check starts after each.
func (g *treeGuard) event(e event.Event) error {
	switch e.Kind() {
	case event.KindUserInput:
		g.start()
	case event.KindTextEnd, event.KindToolCallStart:
		g.wait()
	case event.KindToolCallEnd:
		if g.started != nil {
			g.started.Check(g.ctx)
		}
	}
	return nil
}

// guardReport is what a treeGuard found.
type guardReport struct {
	workspace.GuardReport
	// unchecked, if not nil, is why a part of the working directory was not checked.
	unchecked error
}

// finish ends all commands, unless the environment is kept, and checks what they left. It reports
// each finding, of which the error is the summary. It ignores the end of ctx.
func (g *treeGuard) finish(ctx context.Context) (r guardReport, err error) {
	if g == nil || g.started == nil {
		return r, nil
	}
	if !g.env.keep {
		g.env.kill()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardTime)
	defer cancel()
	found, err := g.started.Finish(ctx)
	if ended := g.ctx.Err(); ended != nil && ctx.Err() == nil && errors.Is(err, ended) {
		err = nil // nothing was recorded before the end, so no command ran
	}
	if err != nil {
		r, err = g.abandon(err)
	}
	r.GuardReport = found
	for _, d := range r.Disarmed {
		g.env.notify(d.String())
	}
	if n := len(r.Disarmed); n > 0 {
		err = errors.Join(fmt.Errorf("programs outside would have done what a command chose, because of "+
			"%q%s", r.Disarmed[0].Name, andMore(n-1)), err)
	}
	return r, err
}

// abandon reports that the working directory is not checked, because of err.
func (g *treeGuard) abandon(err error) (r guardReport, _ error) {
	if g == nil || g.started == nil {
		return r, nil
	}
	g.env.notify("the working directory was not checked completely: commands may have left what " +
		"makes git run their programs (look at .git, hooks and settings before you use git)")
	r.unchecked = fmt.Errorf("the working directory was not checked: %w", err)
	return r, r.unchecked
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// addGuardReport adds the findings of the guard to a record, and the control files that tools
// changed.
func addGuardReport(record *event.Result, r guardReport, workDir string) {
	if r.unchecked != nil {
		record.Unchecked = r.unchecked.Error()
	}
	for _, d := range r.Disarmed {
		found := event.Disarmed{Path: d.Name, Reason: d.Reason, Kept: d.Kept}
		if d.Err != nil {
			found.Error = d.Err.Error()
		}
		record.Disarmed = append(record.Disarmed, found)
	}
	record.ControlFiles = r.ControlFiles
	for _, c := range record.Changes {
		name := strings.TrimPrefix(c.Path, strings.TrimSuffix(workDir, "/")+"/")
		if workspace.IsControlFile(name) && !slices.Contains(record.ControlFiles, name) {
			record.ControlFiles = append(record.ControlFiles, name)
		}
	}
	slices.Sort(record.ControlFiles)
}
