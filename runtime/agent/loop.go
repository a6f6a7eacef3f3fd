package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// inputs are everything that a run depends on.
type inputs struct {
	in        Input
	sessionID string

	client       llm.Client
	profile      profile.Profile
	surroundings profile.Surroundings
	settings     func() Settings // the current ones, as limits
	limits       func() Limits

	env      env.Environment
	registry *tool.Registry
	policy   ToolPolicy
	scope    tool.Scope
	execute  ToolExecutor
	agents   *subagents
	verify   Verify
	answer   func(ctx context.Context, question string) (string, error)
	// finalAnswer is Config.FinalAnswer, and titles Config.Titles; kind returns built-in kinds.
	finalAnswer bool
	titles      bool
	kind        func(name string) Kind
	// aggregate, argumentDeltas, isQuestion and buildSystem are those of Config.
	aggregate      func() Aggregator
	argumentDeltas bool
	// kindInstructions are those of the agent's kind.
	kindInstructions string
	isQuestion       func(string) bool
	buildSystem      func(profile.Profile, profile.Surroundings, []llm.ToolSpec, string) string
	planner          *planner // nil without one
	// progressFile is Config.ProgressFile.
	progressFile string
	// progressEnv is the environment with that file; nil means env.
	progressEnv env.Environment
	manager     ContextManager
	// pastFailures are those of earlier sessions.
	pastFailures func(context.Context) []failure.Past
	// rules decide calls; nil allows everything. agentID is the sub-agent of the loop, or empty.
	rules       *policy.Policy
	mode        *modes
	permissions *permissions
	agentID     string

	history  *history
	budget   *budget
	steering *queue
	store    session.Store
	emit     func(event.Data) error
	clock    llm.Clock
	log      *slog.Logger
}

// loop is one run: small steps, each of which leaves a complete history.
type loop struct {
	inputs

	machine machine
	res     RunResult
	rounds  int
	checks  int  // checks of Verify that have run
	empty   int  // answers in a row without text and calls
	silent  bool // the last answer has no text
	// noCalls means that the answer of the next request may call no tools.
	noCalls bool
	// replans counts the new plans after failures, and progress means that a call has succeeded since
	// the last one.
	replans  int
	progress bool
	// nobody means that nobody has answered a question about a permission.
	nobody bool
	cuts   int // answers in a row that the output limit cut
	// partial is the text of these answers, which the next one continues.
	partial string
	// request is the last request, and model the profile of its model; tools and offered are the
	// tools that its answer may call.
	request llm.Request
	model   profile.Profile
	tools   *tool.Registry
	offered []string
	// reserved is what the current request has reserved with the settings next, and most the tokens
	// that its answer may have; zero leaves them to the profile. sent means that it was sent.
	reserved cost
	next     Settings
	most     int64
	sent     bool
	// summaries counts those that replaced the conversation, and answersSince the answers since the
	// last one. retried means that a request was too long, since the last answer.
	summaries, answersSince int
	retried                 bool
	// told are the limits of whose end the model knows.
	told map[string]bool
	// refused means that a human refused a call of the current answer, and waits is the one that waits
	// for an approval.
	refused atomic.Bool
	waits   atomic.Pointer[session.ApprovalAsked]
	// stop ends the context of the run, so that a run with fatal set does not wait for a tool call.
	stop context.CancelCauseFunc

	mu sync.Mutex
	// fatal is the first error of delivering events or appending entries; it ends the run at the next
	// step.
	fatal error
}

// maxContinued bounds the answers in a row that the model may continue after the output limit.
const maxContinued = 2

// fatalError is the cause of the end of a run's context.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// ending is the end of a run.
type ending struct {
	signal Signal
	status Status
	err    error
}

func internalError(err error) ending {
	return ending{SignalError, StatusInternalError, fmt.Errorf("agent: %w", err)}
}

func modelError(err error) ending {
	return ending{SignalError, StatusModelError, fmt.Errorf("agent: %w", err)}
}

func (l *loop) run(ctx context.Context) RunResult {
	if d := l.limits().MaxDuration; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, ErrTimeLimit)
		defer stop()
	}
	l.res = RunResult{SessionID: l.sessionID, RunID: l.in.RunID, Started: l.clock.Now()}
	started := time.Now() // a duration needs a clock that never jumps
	ctx, l.stop = context.WithCancelCause(ctx)
	defer l.stop(nil)
	l.agents.startRun(l.in, func(err error) { l.stop(&fatalError{err}) })
	l.budget.begin(ctx)
	e, err := l.work(ctx)
	l.settleUnanswered()
	if err == nil {
		err = catchPanic(l.log, func() error { return l.report(ctx, e) })
		l.settleUnanswered()
	}
	if err == nil {
		err = catchPanic(l.log, func() error { return l.giveTitle(ctx, e) })
		l.settleUnanswered()
	}
	if err != nil {
		e = internalError(err)
	}
	l.endAgents()
	err = catchPanic(l.log, func() error {
		l.end(e)
		l.res.Duration = time.Since(started)
		l.close()
		return nil
	})
	if err != nil {
		l.res.Status, l.res.Err = StatusInternalError, fmt.Errorf("agent: %w", err)
	}
	return l.res
}

// endAgents ends the running sub-agents, and adds the work of all sub-agents to the result.
func (l *loop) endAgents() {
	results, changes, err := l.agents.endRun()
	if err != nil {
		l.fail(err)
	}
	l.res.Agents = results
	if l.agentID == "" {
		l.res.Refused = l.permissions.takeRefusals()
	}
	l.res.Models = l.budget.run()
	l.res.Usage, l.res.CostUSD = event.TotalUsage(l.res.Models)
	for _, c := range changes {
		l.res.Changes = mergeChange(l.res.Changes, c)
	}
}

// catchPanic returns the error of fn, or its panic as an error.
func catchPanic(log *slog.Logger, fn func() error) (err error) {
	defer recoverAs(&err, log)
	return fn()
}

// recoverAs, deferred, turns a panic into an error, and logs the stack.
func recoverAs(err *error, log *slog.Logger) {
	if p := recover(); p != nil {
		log.Error("panic", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", p)
	}
}

// work runs the loop until its end. The error is a panic, or interrupts a step.
func (l *loop) work(ctx context.Context) (e ending, err error) {
	defer recoverAs(&err, l.log)
	if err := l.start(); err != nil {
		return ending{}, err
	}
	if l.in.Reply != nil {
		l.offerTools()
		calls := l.history.waiting.openCalls()
		l.history.markOpen(calls)
		outcomes, err := l.runTools(ctx, calls)
		if err != nil {
			return ending{}, err
		}
		if e, over, err := l.afterTools(ctx, calls, outcomes); over || err != nil {
			return e, err
		}
	}
	for {
		if e, over, err := l.makeRoom(ctx); over || err != nil {
			return e, err
		}
		if err := l.steer(); err != nil {
			return ending{}, err
		}
		resp, err := l.stream(ctx)
		if err != nil {
			e, over, err := l.overflowed(ctx, l.modelFailed(ctx, err))
			if over || err != nil {
				return e, err
			}
			continue
		}
		l.answersSince++
		l.retried = false
		calls, err := l.recordAnswer(resp)
		if err != nil {
			return ending{}, err
		}
		if len(calls) > 0 || strings.TrimSpace(resp.Message.Text()) != "" {
			l.empty = 0
		}
		var over bool
		if len(calls) == 0 {
			e, over, err = l.endOfAnswer(ctx, resp)
		} else {
			var outcomes []tool.Outcome
			l.startRound(calls)
			if outcomes, err = l.runTools(ctx, calls); err != nil {
				return ending{}, err
			}
			e, over, err = l.afterTools(ctx, calls, outcomes)
		}
		if over || err != nil {
			return e, err
		}
	}
}

// start records the start of the run and its input.
func (l *loop) start() error {
	l.step(SignalStart)
	started := session.RunStarted{
		RunID: l.in.RunID, Instructions: l.in.Instructions, Limits: l.limits(),
	}
	if l.in.Reply != nil {
		started.Reply = string(l.in.Reply.Verdict)
	} else if err := l.dismiss(); err != nil {
		return err
	} else {
		l.history.failures.Forgive()
	}
	if err := l.store.Append(session.TypeRunStarted, started); err != nil {
		return err
	}
	if l.in.Reply != nil {
		if len(l.in.Hints) > 0 {
			l.steering.add(hintsText(l.in.Hints))
		}
		l.send(event.UserInput{Reply: started.Reply})
		l.step(SignalReply)
		return nil
	}
	var parts []llm.Part
	if l.in.Text != "" {
		parts = append(parts, llm.Text(l.in.Text))
	}
	if len(l.in.Hints) > 0 {
		parts = append(parts, llm.Text("\n\n"+hintsText(l.in.Hints)))
	}
	parts = append(parts, l.in.Parts...)
	if err := l.record(session.Turn{Kind: session.TurnUser, Parts: parts}); err != nil {
		return err
	}
	l.send(event.UserInput{Text: l.in.Text})
	if l.plans() && !l.planner.Plan().IsOpen() {
		l.step(SignalPlan)
	} else {
		l.step(SignalPrepared)
	}
	return nil
}

// steer adds the queued steering messages to the history, and the notes about plan mode, plans and
// limits.
func (l *loop) steer() error {
	texts := l.steering.takeAll()
	if note := l.mode.note(); note != "" {
		texts = append(texts, note)
	}
	if l.plans() {
		if note := l.planner.note(); note != "" {
			texts = append(texts, note)
		}
	}
	texts = append(texts, l.limitNotes()...)
	for _, m := range texts {
		if err := l.recordText(session.TurnSteering, m); err != nil {
			return err
		}
		l.send(event.SteeringInjected{Text: m})
	}
	return nil
}

// makeRoom checks the limits, lets the context manager shorten the conversation, and reserves the
// next request.
func (l *loop) makeRoom(ctx context.Context) (ending, bool, error) {
	if e, over := l.checkLimits(ctx); over {
		return e, true, nil
	}
	if e, over, err := l.fitContext(ctx); over || err != nil {
		return e, over, err
	}
	e, over := l.reserveNext(ctx)
	return e, over, nil
}

// checkLimits ends the run if the next request must not be sent.
func (l *loop) checkLimits(ctx context.Context) (ending, bool) {
	if ctx.Err() != nil {
		return stopped(ctx), true
	}
	if err := l.failure(); err != nil {
		return internalError(err), true
	}
	limits := l.limits()
	switch {
	case l.rounds >= limits.MaxToolRounds:
		return l.limitReached("tool_rounds", int64(limits.MaxToolRounds)), true
	case limits.MaxToolCalls > 0 && len(l.res.ToolCalls) >= limits.MaxToolCalls:
		return l.limitReached("tool_calls", int64(limits.MaxToolCalls)), true
	}
	return ending{}, false
}

func (l *loop) limitReached(name string, value int64) ending {
	l.res.Limit = name
	l.send(event.TurnLimit{Limit: name, Value: value})
	return ending{signal: SignalLimit, status: StatusLimit}
}

// stopped is the end of a run whose context has ended.
func stopped(ctx context.Context) ending {
	cause := context.Cause(ctx)
	if f := (*fatalError)(nil); errors.As(cause, &f) {
		return internalError(f.err)
	}
	if errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, ErrTimeLimit) {
		return ending{SignalDeadline, StatusTimedOut, fmt.Errorf("agent: %w", cause)}
	}
	if !errors.Is(cause, ErrAborted) {
		cause = fmt.Errorf("%w: %w", ErrAborted, cause)
	}
	return ending{SignalAbort, StatusAborted, fmt.Errorf("agent: %w", cause)}
}

func (l *loop) modelFailed(ctx context.Context, err error) ending {
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	if fatal := l.failure(); fatal != nil {
		return internalError(fatal)
	}
	e := modelError(err)
	if llm.KindOf(err) == llm.KindContextLength {
		l.send(event.Warning{
			Code:    "context_overflow",
			Message: "the conversation is longer than the model's context: " + err.Error(),
		})
		e.status = StatusContextOverflow
	}
	return e
}

// endOfAnswer follows an answer without a tool call.
func (l *loop) endOfAnswer(ctx context.Context, resp llm.Response) (ending, bool, error) {
	switch resp.Finish {
	case llm.FinishLength:
		return l.cutAnswer()
	case llm.FinishContentFilter:
		return modelError(&llm.Error{
			Kind: llm.KindContentFilter, Message: "the provider's content filter stopped the answer",
		}), true, nil
	}
	switch {
	case !l.steering.empty():
		l.step(SignalContinue)
		return ending{}, false, nil
	case strings.TrimSpace(resp.Message.Text()) != "":
		if text := resp.Message.Text(); l.isQuestion != nil && l.isQuestion(text) {
			return l.question(ctx, text)
		}
		return l.complete(ctx)
	}
	if l.empty++; l.empty > 1 {
		return modelError(&llm.Error{
			Kind:    llm.KindStream,
			Message: "the model answered with neither text nor a tool call, twice in a row",
		}), true, nil
	}
	l.step(SignalContinue)
	return ending{}, false, nil
}

// cutAnswer lets the model continue an answer that the output limit cut, up to maxContinued times
// in a row.
func (l *loop) cutAnswer() (ending, bool, error) {
	if l.cuts++; l.cuts > maxContinued {
		return l.limitReached("output_tokens", int64(l.request.MaxOutputTokens)), true, nil
	}
	message := continueText()
	if err := l.recordText(session.TurnSteering, message); err != nil {
		return ending{}, false, err
	}
	l.send(event.SteeringInjected{Text: message})
	l.step(SignalContinue)
	return ending{}, false, nil
}

// complete follows the model's report of a completed task: with Verify, a check.
func (l *loop) complete(ctx context.Context) (ending, bool, error) {
	if l.verify.Command == "" {
		return ending{signal: SignalFinal, status: StatusCompleted}, true, nil
	}
	l.agents.stop() // the files under check do not change any more
	l.step(SignalCheck)
	passed, message, err := l.check(ctx)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx), true, nil
	case err != nil:
		err = fmt.Errorf("agent: run the check: %w", err)
		return ending{SignalError, StatusEnvironmentError, err}, true, nil
	case passed && !l.steering.empty():
		l.step(SignalContinue)
		return ending{}, false, nil
	case passed:
		return ending{signal: SignalPassed, status: StatusCompleted}, true, nil
	case l.checks >= l.verify.Attempts:
		err = fmt.Errorf("agent: the check %q did not pass in %d attempts", l.verify.Command, l.checks)
		return ending{SignalGiveUp, StatusVerifyFailed, err}, true, nil
	}
	l.res.Exit = nil // the check rejected it
	if l.checks == l.verify.Attempts-1 && l.mayReplan() {
		return l.replan(ctx, message)
	}
	if err := l.recordText(session.TurnSteering, message); err != nil {
		return ending{}, false, err
	}
	l.send(event.SteeringInjected{Text: message})
	l.step(SignalRejected)
	return ending{}, false, nil
}

// end takes the last step of the state machine.
func (l *loop) end(e ending) {
	if err := l.failure(); err != nil && e.status != StatusInternalError &&
		e.status != StatusAborted && e.status != StatusTimedOut {
		e = internalError(err)
	}
	l.res.Status, l.res.Err = e.status, e.err
	if e.status == StatusCompleted {
		l.history.failures.Passed(failure.KindTask)
	}
	if err := l.advance(e.signal); err != nil && e.status != StatusInternalError {
		l.res.Status, l.res.Err = StatusInternalError, errors.Join(l.res.Err, err)
	}
	if l.res.Err != nil && l.res.Status != StatusAborted {
		l.send(event.Error{Code: errorCode(l.res), Message: l.res.Err.Error()})
	}
}

func errorCode(r RunResult) string {
	if kind := llm.KindOf(r.Err); kind != "" && kind != llm.KindCanceled {
		return string(kind)
	}
	return string(r.Status)
}

// close writes the run's last entry and event.
func (l *loop) close() {
	_, l.res.Turns = l.budget.total()
	l.res.Transitions, l.res.Plan = l.machine.transitions, l.planner.Plan()
	entry := l.res.entry()
	entry.Spent = l.budget.soFar()
	err := l.store.Append(session.TypeRunEnded, entry)
	if err == nil {
		err = l.store.Sync()
	}
	if err != nil && l.res.Status != StatusInternalError {
		l.res.Status, l.res.Err = StatusInternalError, fmt.Errorf("agent: store the session: %w", err)
		l.send(event.Error{Code: string(StatusInternalError), Message: l.res.Err.Error()})
	}
	l.send(event.ProcessingEnd{
		Status: string(l.res.Status), Usage: l.res.Usage, CostUSD: l.res.CostUSD,
		ModelCalls: l.res.ModelCalls, ToolCalls: len(l.res.ToolCalls),
		DurationMS: l.res.Duration.Milliseconds(),
	})
}

// step takes a step of the state machine. A step that the table lacks ends the run.
func (l *loop) step(s Signal) {
	if err := l.advance(s); err != nil {
		l.fail(err)
	}
}

// advance takes a step of the state machine, and records it in the journal and as an event.
func (l *loop) advance(s Signal) error {
	t, err := l.machine.signal(s)
	if err != nil {
		return err
	}
	err = l.store.Append(session.TypeState, session.State{RunID: l.in.RunID, Status: t.event()})
	l.send(t.event())
	return err
}

// send emits an event. Tool calls use it concurrently.
func (l *loop) send(d event.Data) {
	if err := l.emit(d); err != nil {
		l.fail(err)
	}
}

// fail keeps the first fatal error and ends the context of the run.
func (l *loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
		l.stop(&fatalError{err})
	}
}

func (l *loop) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// record adds a turn to the journal and then to the history.
func (l *loop) record(t session.Turn) error {
	if t.Kind == session.TurnUser || t.Kind == session.TurnSteering {
		l.scope.Cache.Changing()() // people who write may have changed files
	}
	t.Time = l.clock.Now()
	if t.Kind != session.TurnToolResults { // each result has an entry
		if err := l.store.Append(session.TypeTurn, t); err != nil {
			return err
		}
	}
	l.history.add(t)
	return nil
}

func (l *loop) recordText(kind session.TurnKind, text string) error {
	return l.record(session.Turn{Kind: kind, Parts: []llm.Part{llm.Text(text)}})
}
