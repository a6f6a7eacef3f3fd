package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// recordedFailures bounds the failures in the record of a run.
const recordedFailures = 20

// job is a task with everything that it needs to start.
type job struct {
	task string
	// reply decides, instead of a task, about the call that waits; may be nil.
	reply *agent.Reply
	// parts go with the task.
	parts []llm.Part
	// hints are facts that the model gets with the task.
	hints  []string
	env    *environment
	config agent.Config
	// checkRules checks the policy of the repository; may be nil.
	checkRules func(*policy.Policy) error
	// sessions is the directory of the sessions; the record has that of the session.
	sessions string
	patch    patchSettings
	// fetch downloads from the environment; may be nil.
	fetch func(context.Context, *environment) error
	// sink receives all events; the job waits for it. May be nil.
	sink func(event.Event) error
	// interactive allows the model to put questions to the user.
	interactive bool
	// outputs is the number of lines that are shown of each result of a tool.
	outputs int
	// stored is the session to go on with; nil starts a new one.
	stored *storedSession
	// held returns an open session of the program; nil stores no changes.
	held func(id string) *heldSession
	// replay is the recording that the model replays; may be nil.
	replay *replaying
	// again are flags, each behind a blank, that the session does not record and needs to go on.
	again string
}

// work runs a job, shows its progress, and returns its record. When it returns, all processes of
// the job have ended and the patch is written. The text of the record answers the task if answered
// is true; else it is the last one before the run was cut off.
func (p *program) work(ctx context.Context, j *job) (record event.Result, answered bool) {
	show := newProgress(p.screen())
	show.outputs = j.outputs
	p.display.Store(show)
	defer show.close()
	j.checkRules = p.checkPermissions
	j.config.Observers = append(j.config.Observers, show.observe)
	info := j.env.plain.Info()
	p.watchRefusals(j, info)
	if j.sink != nil {
		j.config.Sinks = append(j.config.Sinks, j.sink)
	}
	if j.interactive {
		j.config.Answer = func(ctx context.Context, question string) (string, error) {
			return p.prompt(ctx, show, question)
		}
		if j.config.Approve == nil {
			j.config.Approve = func(ctx context.Context, a agent.Approval) (agent.Reply, error) {
				return p.approve(ctx, show, j, a)
			}
		}
	}
	started := time.Now()
	res, err := attempt(ctx, j)
	ended := res.RunResult
	answered = isAnswer(res.RunResult)
	if lerr := errors.Join(p.closeInTime(ctx, j.env), j.env.logError()); lerr != nil {
		switch {
		case res.Status == agent.StatusCompleted:
			err = errors.Join(err, lerr)
		case p.quiet:
			p.fail(lerr)
		default:
			show.notify(lerr.Error())
		}
	}
	if p.part != nil {
		p.part.failure, p.part.limit = err, res.Limit
	}
	unsafe := (len(res.guard.Disarmed) > 0 || res.guard.unchecked != nil) && ctx.Err() == nil
	if err != nil && (res.Status == agent.StatusCompleted || unsafe) {
		// after a completed run only the checks, the patch, the log and closing the environment can fail
		res.Status = agent.StatusEnvironmentError
	}
	record = event.Result{
		Status:     string(res.Status),
		ExitCode:   runCode(ctx, res.Status),
		Text:       answer(res.RunResult),
		Error:      explain(ctx, res.RunResult, err),
		Model:      cmp.Or(j.config.Settings.Model, j.config.Profile.Model),
		SessionID:  res.SessionID,
		Patch:      res.patch,
		Turns:      res.Turns,
		ModelCalls: res.ModelCalls,
		ToolCalls:  len(res.ToolCalls),
		Usage:      res.Usage, CostUSD: res.CostUSD, Models: res.Models,
		Approval: res.Approval, Refused: res.Refused, Agents: res.Agents,
		Failures:   res.Failures[max(0, len(res.Failures)-recordedFailures):],
		Tasks:      res.Plan.Tasks,
		Guarantees: info.Guarantees,
		DurationMS: time.Since(started).Milliseconds(),
	}
	addGuardReport(&record, res.guard, info.WorkDir)
	record.Changes = mergeChanges(res.Changes, res.found.Files)
	if res.unfound != nil {
		record.ChangesIncomplete = res.unfound.Error()
	}
	j.addSession(&record, ended)
	if len(record.ControlFiles) > 0 {
		show.notify("files that make other programs run commands have changed: " +
			someNames(record.ControlFiles))
	}
	show.summary(record)
	return record, answered
}

// screen returns the stream for a progress, which cleans what it writes.
func (p *program) screen() io.Writer {
	if p.quiet {
		return io.Discard
	}
	return p.std.raw.err
}

// watchRefusals has a note tell the user, once, how to allow what the sandbox has refused.
func (p *program) watchRefusals(j *job, info env.Info) {
	j.config.Observers = append(j.config.Observers, func(e event.Event) {
		if end, ok := e.Data.(event.ToolCallEnd); ok && end.ErrorKind == string(tool.KindShellExit) {
			p.noteRefusal(info, end.Result)
		}
	})
}

// addSession adds to a record the files of the session, and how it goes on after its run. A replay
// that runs nothing has no files, and took the recorded time.
func (j *job) addSession(record *event.Result, res agent.RunResult) {
	if j.replay.playsTools() {
		record.DurationMS = res.Duration.Milliseconds()
		return
	}
	if record.SessionID == "" {
		return
	}
	record.SessionDir = filepath.Join(j.sessions, record.SessionID)
	journal := filepath.Join(record.SessionDir, session.JournalName)
	if _, err := os.Stat(journal); err != nil {
		return
	}
	record.Journal = journal
	if res.Status == agent.StatusCompleted || j.replay != nil { // the recording has no answer left
		return
	}
	record.Resume = "sandboxagent " + resumeName + " " + record.SessionID + j.again
	switch flag := limitRemedies[res.Limit]; {
	case res.Approval != nil:
		record.Resume += " --" + approveName
	case res.Status == agent.StatusAwaitingHuman:
		record.Resume += " --" + answerName + " TEXT"
	case strings.HasPrefix(flag, "--"):
		record.Resume += " " + flag + " N"
	}
}

// isAnswer reports whether the last text of a run is for the user. Runs without such a text are cut
// off, and their last text is about their next step.
func isAnswer(res agent.RunResult) bool {
	switch res.Status {
	case agent.StatusCompleted, agent.StatusTaskFailed, agent.StatusVerifyFailed,
		agent.StatusAwaitingHuman, agent.StatusGaveUpTime:
		return true
	}
	return res.Reported
}

// outcome is the result of an agent, with the findings of the program after it.
type outcome struct {
	agent.RunResult
	// patch is the name of the patch; empty without one.
	patch string
	guard guardReport
	// found are the changes to the working directory; unfound, if not nil, is why some are missing.
	found   snapshot.PatchStats
	unfound error
}

// attempt runs the agent, with a snapshot of the working directory before and after. In every case
// the result has a status, and a configured patch is written.
func attempt(ctx context.Context, j *job) (res outcome, err error) {
	if j.replay.playsTools() {
		res.RunResult, err = j.replay.play(ctx, j)
		return res, err
	}
	p, err := startPatch(ctx, j.patch, j.env)
	if err != nil {
		res.patch, err = unstarted(ctx, j.patch.file, err)
		res.Status = statusOf(ctx, err, agent.StatusEnvironmentError)
		return res, err
	}
	g := newTreeGuard(ctx, j.env, false)
	if g != nil {
		j.config.Sinks = append(j.config.Sinks, g.event)
	}
	changes := newChangeFinder(ctx, j.env)
	if p == nil {
		j.config.Sinks = append(j.config.Sinks, changes.event)
	}
	stored := newCheckpoints(ctx, j, func() (*patch, error) {
		if p != nil {
			return p, nil
		}
		return changes.first()
	})
	if stored != nil {
		j.config.Sinks = append(j.config.Sinks, stored.event)
	}
	res.RunResult, err = runAgent(ctx, j)
	if silent := j.env.checkAlive(ctx); silent != nil {
		stored.close()
		p.close()
		changes.close()
		found, unchecked := g.abandon(silent)
		res.guard, res.unfound = found, silent
		return res, errors.Join(err, cmp.Or(unchecked, silent))
	}
	done := err == nil && res.Status == agent.StatusCompleted
	if p != nil {
		j.env.kill()
	}
	stored.finish(ctx)
	var guardErr, patchErr error
	res.guard, guardErr = g.finish(ctx)
	if p == nil {
		res.found, res.unfound = changes.finish(ctx)
	} else if res.patch, patchErr = p.finish(ctx, j.env.plain, done); p.stats != nil {
		res.found = *p.stats
	} else {
		res.unfound = patchErr
	}
	if j.patch.apply && done && patchErr == nil {
		stored.applied()
	}
	if j.fetch != nil {
		patchErr = errors.Join(patchErr, j.fetch(ctx, j.env))
	}
	return res, errors.Join(err, guardErr, patchErr)
}

// unstarted writes an empty patch if ctx ended before the first snapshot, when nothing was changed.
// It returns the name of the file, and err joined with its error.
func unstarted(ctx context.Context, patchFile string, err error) (string, error) {
	if ctx.Err() == nil || patchFile == "" {
		return "", err
	}
	file, werr := writableFile(patchFile)
	if werr == nil {
		werr = replaceFile(file, 0o666, func(io.Writer) error { return nil })
	}
	if werr != nil {
		return "", fmt.Errorf("%w; --patch: %w", err, werr)
	}
	return file, err
}

func runAgent(ctx context.Context, j *job) (res agent.RunResult, err error) {
	defer func() {
		if r := recover(); r != nil {
			j.env.log.Error("the program panicked", "panic", r, "stack", string(debug.Stack()))
			res.Status, err = agent.StatusInternalError, fmt.Errorf("the program panicked: %v", r)
		}
	}()
	if err = j.tighten(ctx); err != nil {
		res.Status = statusOf(ctx, err, agent.StatusEnvironmentError)
		return res, err
	}
	a, err := agent.New(j.config)
	if err == nil {
		defer a.Close() //nolint:errcheck // the run's result reports a store that fails
		in := agent.Input{Text: j.task, Parts: j.parts, Hints: j.hints, Reply: j.reply}
		switch {
		case j.stored != nil:
			res, err = j.stored.run(ctx, a, in)
		case j.replay != nil:
			res, err = j.replay.run(ctx, a, in)
		default:
			res, err = a.Run(ctx, in)
		}
	}
	if res.Status == "" {
		res.Status = statusOf(ctx, err, agent.StatusInternalError)
	}
	return res, err
}

// statusOf returns the status of a run that err prevented; otherwise is the status for other errors
// than the end of ctx and mistakes in the configuration.
func statusOf(ctx context.Context, err error, otherwise agent.Status) agent.Status {
	var usage *usageError
	switch {
	case timedOut(ctx):
		return agent.StatusTimedOut
	case ctx.Err() != nil:
		return agent.StatusAborted
	case errors.Is(err, agent.ErrConfig), errors.As(err, &usage):
		return statusUsage
	}
	return otherwise
}

// answer returns the answer of a run: the last text of the model, else its question or the reason
// why it ended the run.
func answer(res agent.RunResult) string {
	text := res.Final
	if res.Status == agent.StatusAwaitingHuman {
		text = cmp.Or(res.Question, text)
	}
	if strings.TrimSpace(text) == "" && res.Exit != nil {
		text = res.Exit.Reason
	}
	return text
}

// waitingText describes a call that waits for an approval.
func waitingText(a event.PermissionAsked) string {
	text := a.Tool
	for _, p := range a.Parts {
		text += "; " + p.Decision + " " + p.Permission + " " + oneLine(p.Subject)
		if p.Rule != "" {
			text += fmt.Sprintf(", by %q of %s", p.Rule, p.Source)
		}
	}
	return visible(text)
}

// timeoutText describes a run that timed out.
const timeoutText = "the run timed out (--timeout)"

// limitRemedies are the flags that set the limits, or other remedies.
var limitRemedies = map[string]string{
	"turns": "--max-turns", "tool_rounds": "--max-tool-rounds",
	"tokens": "--max-tokens", "cost": "--max-cost", agent.LimitBudget: "--max-cost",
	"output_tokens": "ask for smaller steps", "tool_calls": "max_tool_calls of the kind of agent",
}

// explain returns a line with the reason why a run is not completed, and a remedy; empty for a
// completed one.
func explain(ctx context.Context, res agent.RunResult, err error) string {
	text := ""
	if err != nil {
		text = strings.TrimPrefix(err.Error(), "agent: ")
	}
	switch res.Status {
	case agent.StatusAborted:
		var sig *signalError
		if errors.As(context.Cause(ctx), &sig) {
			return sig.Error()
		}
	case agent.StatusTimedOut:
		text = strings.TrimSpace(strings.TrimPrefix(text, agent.ErrTimeLimit.Error()))
		if text == "" {
			return timeoutText
		}
		return timeoutText + ": " + text
	case agent.StatusGaveUpTime:
		return "the model ended the run because of its timeout"
	case agent.StatusTaskFailed:
		return "the model reports that it cannot do the task"
	case agent.StatusAwaitingHuman:
		if res.Approval != nil {
			return "a call needs the approval of a human: " + waitingText(*res.Approval)
		}
		return "the model needs an answer from a human: " + res.Question
	case agent.StatusLimit:
		return fmt.Sprintf("the limit of %s was reached (%s)", strings.ReplaceAll(res.Limit, "_", " "),
			limitRemedies[res.Limit])
	}
	var failed *llm.Error
	if !errors.As(err, &failed) {
		return text
	}
	if long := (*llm.WaitError)(nil); errors.As(err, &long) {
		return text + " (--max-retry-wait)"
	}
	switch failed.Kind {
	case llm.KindAuth:
		if findProvider(failed.Provider) != nil {
			text += "; check the key in " + findProvider(failed.Provider).keyNames()
		}
	case llm.KindNetwork:
		text += "; check --base-url and the network"
	case llm.KindNotFound:
		if failed.Status/100 == 3 {
			return text + "; set --base-url to the final address"
		}
		text += "; check --model and --base-url"
	}
	return text
}
