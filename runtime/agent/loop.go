package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// loop is one run: small steps, each of which leaves the session's history whole.
type loop struct {
	s       *Session
	in      Input
	machine machine
	res     Result
	rounds  int
	checks  int
	empty   int
	asked   llm.Request
	// profile is that of the model that is asked, blind the number of images that it is told of and
	// not shown.
	profile profile.Profile
	blind   int
	// tools are those of the last request, by which its answer is carried out; offered are their
	// names.
	tools   *tool.Registry
	offered []string
	// broken is the first error of delivering events or keeping entries; it ends the run at the next
	// step.
	broken error
	// stop ends the context of the run, so that a broken run does not wait for the call that runs.
	stop context.CancelCauseFunc
}

// brokenError is the cause of the end of a broken run's context.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// ending is how a run ends.
type ending struct {
	signal Signal
	status Status
	err    error
}

func (l *loop) run(ctx context.Context) Result {
	l.res = Result{SessionID: l.s.id, RunID: l.in.RunID, Started: l.s.agent.cfg.Clock.Now()}
	began := time.Now() // durations are measured on a clock that never jumps
	ctx, l.stop = context.WithCancelCause(ctx)
	defer l.stop(nil)
	l.s.agents.begin(l.in, func(err error) { l.stop(&brokenError{err}) })
	e, err := guard(l.s.agent.cfg.Log, func() ending { return l.work(ctx) })
	if err != nil {
		e = broken(err)
	}
	l.stopAgents()
	_, err = guard(l.s.agent.cfg.Log, func() error {
		l.end(e)
		l.res.Duration = time.Since(began)
		l.close()
		return nil
	})
	if err != nil {
		l.res.Status, l.res.Err = StatusInternalError, fmt.Errorf("agent: %w", err)
	}
	return l.res
}

// stopAgents ends the sub-agents that still run, and adds what all of them did to the result.
func (l *loop) stopAgents() {
	worked, usage, changes, broken := l.s.agents.finish()
	if l.broken == nil {
		l.broken = broken
	}
	l.res.Agents = worked
	l.res.Usage = l.res.Usage.Add(usage)
	for _, c := range changes {
		l.res.Changes = mergeChange(l.res.Changes, c)
	}
}

// guard calls fn and makes an error of its panic, whose stack goes to log.
func guard[T any](log *slog.Logger, fn func() T) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn(), nil
}

// limits are those of the run, or else those of the session as they are now.
func (l *loop) limits() Limits { return l.s.limitsOf(l.in) }

// work runs the loop until there is an ending.
func (l *loop) work(ctx context.Context) ending {
	l.step(SignalStart)
	if err := l.s.store.Append(entryRunStarted, runStartedEntry{
		RunID: l.in.RunID, Limits: l.limits(),
		Instructions: l.in.Instructions,
	}); err != nil {
		return broken(err)
	}
	if err := l.takeInput(); err != nil {
		return broken(err)
	}
	l.step(SignalPrepared)
	for {
		if e, over := l.checkBefore(ctx); over {
			return e
		}
		if err := l.steer(); err != nil {
			return broken(err)
		}
		resp, err := l.ask(ctx)
		if err != nil {
			return l.modelFailed(ctx, err)
		}
		calls, err := l.takeAnswer(resp)
		if err != nil {
			return broken(err)
		}
		if len(calls) > 0 || strings.TrimSpace(resp.Message.Text()) != "" {
			l.empty = 0
		}
		var e ending
		var over bool
		if len(calls) == 0 {
			e, over = l.answered(ctx, resp)
		} else {
			e, over = l.runTools(ctx, calls)
		}
		if over {
			return e
		}
	}
}

func broken(err error) ending {
	return ending{SignalError, StatusInternalError, fmt.Errorf("agent: %w", err)}
}

// takeInput puts the user's input into the history.
func (l *loop) takeInput() error {
	var parts []llm.Part
	if l.in.Text != "" {
		parts = append(parts, llm.Text(l.in.Text))
	}
	if len(l.in.Hints) > 0 {
		parts = append(parts, llm.Text("\n\n"+tool.HintsNote(l.in.Hints)))
	}
	parts = append(parts, l.in.Parts...)
	if err := l.record(Turn{Kind: TurnUser, Parts: parts}); err != nil {
		return err
	}
	l.emit(event.UserInput{Text: l.in.Text})
	return nil
}

// steer puts waiting steering messages into the history.
func (l *loop) steer() error {
	for _, m := range l.s.takeSteering() {
		if err := l.record(Turn{Kind: TurnSteering, Parts: []llm.Part{llm.Text(m)}}); err != nil {
			return err
		}
		l.emit(event.SteeringInjected{Text: m})
	}
	return nil
}

// checkBefore looks for reasons not to ask the model again.
func (l *loop) checkBefore(ctx context.Context) (ending, bool) {
	switch {
	case ctx.Err() != nil:
		return stopped(ctx), true
	case l.broken != nil:
		return broken(l.broken), true
	}
	s, limits := l.s, l.limits()
	s.mu.Lock()
	turns := countTurns(s.history)
	s.mu.Unlock()
	tokens, over := s.overTokens(l.in)
	name, value := "", int64(0)
	switch {
	case l.rounds >= limits.MaxToolRounds:
		name, value = "tool_rounds", int64(limits.MaxToolRounds)
	case limits.MaxTurns > 0 && turns >= limits.MaxTurns:
		name, value = "turns", int64(limits.MaxTurns)
	case limits.MaxToolCalls > 0 && len(l.res.ToolCalls) >= limits.MaxToolCalls:
		name, value = "tool_calls", int64(limits.MaxToolCalls)
	case over:
		name, value = "tokens", tokens
	default:
		return ending{}, false
	}
	l.res.Limit = name
	l.emit(event.TurnLimit{Limit: name, Value: value})
	return ending{signal: SignalLimit, status: StatusLimit}, true
}

// stopped is the ending of a run whose context is over.
func stopped(ctx context.Context) ending {
	cause := context.Cause(ctx)
	if b := (*brokenError)(nil); errors.As(cause, &b) {
		return broken(b.err)
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
	if l.broken != nil {
		return broken(l.broken)
	}
	if llm.KindOf(err) == llm.KindContextLength {
		l.emit(event.Warning{
			Code:    "context_overflow",
			Message: "the conversation is longer than the model's context: " + err.Error(),
		})
		return ending{SignalError, StatusContextOverflow, fmt.Errorf("agent: %w", err)}
	}
	return ending{SignalError, StatusModelError, fmt.Errorf("agent: %w", err)}
}

// answered deals with an answer that has no tool call.
func (l *loop) answered(ctx context.Context, resp llm.Response) (ending, bool) {
	switch resp.Finish {
	case llm.FinishLength:
		err := &llm.Error{Kind: llm.KindStream, Message: "the answer was cut off at the model's " +
			"output limit"}
		return ending{SignalError, StatusModelError, fmt.Errorf("agent: %w", err)}, true
	case llm.FinishContentFilter:
		err := &llm.Error{
			Kind:    llm.KindContentFilter,
			Message: "the provider's content filter stopped the answer",
		}
		return ending{SignalError, StatusModelError, fmt.Errorf("agent: %w", err)}, true
	}
	switch {
	case l.s.hasSteering():
		l.step(SignalContinue)
		return ending{}, false
	case strings.TrimSpace(resp.Message.Text()) != "":
		return l.done(ctx)
	}
	if l.empty++; l.empty > 1 {
		err := &llm.Error{Kind: llm.KindStream, Message: "the model answered with neither text nor a " +
			"tool call, twice in a row"}
		return ending{SignalError, StatusModelError, fmt.Errorf("agent: %w", err)}, true
	}
	l.step(SignalContinue)
	return ending{}, false
}

// done is what follows when the model believes that it is done: the host's check, if there is one.
func (l *loop) done(ctx context.Context) (ending, bool) {
	if l.s.agent.cfg.Verify.Command == "" {
		return ending{signal: SignalFinal, status: StatusCompleted}, true
	}
	l.s.agents.stop() // what is checked does not change any more
	l.step(SignalCheck)
	passed, note, err := l.verify(ctx)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx), true
	case err != nil:
		return ending{SignalError, StatusEnvironmentError, fmt.Errorf("agent: run the check: %w",
			err)}, true
	case passed && l.s.hasSteering():
		l.step(SignalContinue)
		return ending{}, false
	case passed:
		return ending{signal: SignalPassed, status: StatusCompleted}, true
	case l.checks >= l.s.agent.cfg.Verify.Attempts:
		return ending{
			SignalGiveUp, StatusVerifyFailed,
			fmt.Errorf("agent: the check %q did not pass in %d attempts",
				l.s.agent.cfg.Verify.Command, l.checks),
		}, true
	}
	if err := l.record(Turn{Kind: TurnSteering, Parts: []llm.Part{llm.Text(note)}}); err != nil {
		return broken(err), true
	}
	l.emit(event.SteeringInjected{Text: note})
	l.res.Exit = nil // it was rejected
	l.step(SignalRejected)
	return ending{}, false
}

// end takes the last step of the state machine.
func (l *loop) end(e ending) {
	if l.broken != nil && e.status != StatusInternalError && e.status != StatusAborted &&
		e.status != StatusTimedOut {
		e = broken(l.broken)
	}
	l.res.Status, l.res.Err = e.status, e.err
	t, err := l.machine.signal(e.signal)
	if err != nil {
		l.res.Status, l.res.Err = StatusInternalError, errors.Join(l.res.Err, err)
	} else {
		l.emit(event.Status{From: string(t.From), Signal: string(t.Signal), To: string(t.To)})
	}
	if l.res.Err != nil && l.res.Status != StatusAborted {
		l.emit(event.Error{Code: errorCode(l.res), Message: l.res.Err.Error()})
	}
}

func errorCode(r Result) string {
	if kind := llm.KindOf(r.Err); kind != "" && kind != llm.KindCanceled {
		return string(kind)
	}
	return string(r.Status)
}

// close writes the record of the run and its last event.
func (l *loop) close() {
	l.s.mu.Lock()
	l.res.Turns = countTurns(l.s.history)
	l.s.mu.Unlock()
	l.res.Steps = l.machine.steps
	err := l.s.store.Append(entryRunEnded, l.res.entry())
	if err == nil {
		err = l.s.store.Sync()
	}
	if err != nil && l.res.Status != StatusInternalError {
		l.res.Status, l.res.Err = StatusInternalError, fmt.Errorf("agent: keep the session: %w", err)
		l.emit(event.Error{Code: string(StatusInternalError), Message: l.res.Err.Error()})
	}
	l.emit(event.ProcessingEnd{
		Status: string(l.res.Status), Usage: l.res.Usage, ModelCalls: l.res.ModelCalls,
		ToolCalls:  len(l.res.ToolCalls),
		DurationMS: l.res.Duration.Milliseconds(),
	})
}

// step takes a step of the state machine and tells of it. A step that the table lacks breaks the
// run.
func (l *loop) step(s Signal) {
	t, err := l.machine.signal(s)
	if err != nil {
		l.breakWith(err)
		return
	}
	l.emit(event.Status{From: string(t.From), Signal: string(t.Signal), To: string(t.To)})
}

func (l *loop) emit(d event.Data) {
	if err := l.s.emit(l.in.RunID, d); err != nil {
		l.breakWith(err)
	}
}

func (l *loop) breakWith(err error) {
	if l.broken == nil {
		l.broken = err
		l.stop(&brokenError{err})
	}
}

func (l *loop) record(t Turn) error {
	t.Time = l.s.agent.cfg.Clock.Now()
	return l.s.record(t)
}

// envGone reports whether err means that the place where tools act will not answer any more.
func envGone(err error) bool { return errors.Is(err, env.ErrGone) }
