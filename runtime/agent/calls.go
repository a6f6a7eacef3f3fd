package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// call is a tool call of an answer. Some servers reuse IDs or omit them, so the run, the number of
// the model call, the position in the answer and the ID together identify a call.
type call struct {
	// ToolCall is what the history and events have: without secrets in its arguments.
	llm.ToolCall
	// arguments are those of the model, with which the call runs.
	arguments string
	position  int
	// runID is the run of the answer, and modelCall the number of the answer in it.
	runID     string
	modelCall int
	// result is that of an earlier run; nil without one.
	result *llm.ToolResult
	// original is the ID of the model's server.
	original string
	// duplicate means that an earlier call of the same answer has the same ID; it does not run.
	duplicate bool
	// overLimit means that the run's limit of calls was reached before it; it does not run.
	overLimit bool
	// repeats means that it equals the calls before it, at least two.
	repeats bool
}

// Reasons why a call does not run, for the model.
const (
	skipNotStored = "the session could not be stored"
	skipExit      = "the run ended before it"
	skipQuestion  = "the user is asked first"
	skipEnvGone   = "the environment does not exist any more"
	skipStopped   = "the run was stopped"
	skipLimit     = "the limit of tool calls is reached"
	skipRefused   = "the user refused an earlier call"
	skipSecret    = "an earlier call waits for an approval, and the secret in its arguments is not " +
		"stored; call the tool again if you still need it"
	// skipWaits keeps calls for the next run.
	skipWaits = "an earlier call waits for an approval"
)

// startRound prepares the calls of a new answer.
func (l *loop) startRound(calls []call) {
	l.step(SignalToolCalls)
	l.rounds++
	limit, before := l.limits().MaxToolCalls, len(l.res.ToolCalls)
	for i := range calls {
		calls[i].overLimit = limit > 0 && before+i >= limit
	}
	l.markRepeats(calls)
}

// runTools runs the calls of an answer in order, consecutive read-only ones concurrently if the
// profile supports it, and records exactly one result for each. Calls after the end of the run,
// after a question or an exit, or after an error of the store do not run; their results give the
// reason. After an error the history gets no results. If a call waits for an approval, it gets none
// either, and the outcomes of calls that wait are empty.
func (l *loop) runTools(ctx context.Context, calls []call) ([]tool.Outcome, error) {
	outcomes := make([]tool.Outcome, len(calls))
	var failed error
	skip := ""
	ran := func(i, n int, err error) {
		waits := errors.Is(err, ErrPostponed)
		if failed == nil && !waits {
			failed = err
		}
		for j := i; j < i+n; j++ {
			if outcomes[j].Result.CallID != "" {
				l.addToResult(calls[j], outcomes[j])
			}
			skip = skipAfter(outcomes[j], failed, skip)
		}
		switch {
		case skip != "":
		case waits:
			skip = skipWaits
		case l.refused.Load():
			skip = skipRefused
		}
	}
	if i := slices.IndexFunc(calls, l.repliesTo); i >= 0 { // before another call waits
		var err error
		outcomes[i], err = l.runTool(ctx, calls[i], "")
		ran(i, 1, err)
	}
	for i, n := 0, 0; i < len(calls); i += n {
		n = 1
		switch r := calls[i].result; {
		case r != nil:
			outcomes[i] = tool.Outcome{Call: calls[i].ToolCall, Result: *r}
			continue
		case l.repliesTo(calls[i]):
			continue
		}
		if skip == "" && l.profile.SupportsParallelToolCalls {
			n = l.countReadOnly(calls[i:])
		}
		var err error
		if n == 1 {
			outcomes[i], err = l.runTool(ctx, calls[i], skip)
		} else {
			err = l.runConcurrently(ctx, calls[i:i+n], outcomes[i:i+n])
		}
		ran(i, n, err)
	}
	if asked := l.waits.Load(); asked != nil {
		l.history.waiting = newWaiting(*asked, calls, outcomes)
		return outcomes, failed
	}
	if failed != nil { // the journal lacks results, and so does the history
		return outcomes, failed
	}
	l.history.waiting = nil
	results := make([]llm.ToolResult, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Result
	}
	return outcomes, l.record(session.Turn{Kind: session.TurnToolResults, Results: results})
}

// skipAfter returns the reason why the calls after an outcome do not run; empty means they do.
func skipAfter(o tool.Outcome, failed error, skip string) string {
	switch {
	case failed != nil:
		return skipNotStored
	case o.Exit != nil:
		return skipExit
	case o.Question != "":
		return skipQuestion
	case o.Err != nil && errors.Is(o.Err, env.ErrGone):
		return skipEnvGone
	}
	return skip
}

// countReadOnly counts the calls at the start of calls that may run concurrently; at least one.
func (l *loop) countReadOnly(calls []call) int {
	n := 0
	for n < len(calls) {
		t, ok := l.tools.Get(calls[n].Name)
		if !ok || !t.ReadOnly || calls[n].result != nil || l.repliesTo(calls[n]) {
			break
		}
		n++
	}
	return max(n, 1)
}

// runConcurrently runs calls, at most ToolPolicy.MaxParallel at once.
func (l *loop) runConcurrently(ctx context.Context, calls []call, outcomes []tool.Outcome) error {
	slots := make(chan struct{}, l.policy.MaxParallel)
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i := range calls {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i], errs[i] = l.runTool(ctx, calls[i], "")
		})
	}
	wg.Wait()
	waits := func(err error) bool { return err == nil || errors.Is(err, ErrPostponed) }
	if i := slices.IndexFunc(errs, func(err error) bool { return !waits(err) }); i >= 0 {
		return errs[i]
	}
	return errors.Join(errs...)
}

// runTool runs one call, or refuses it, between its journal entries and its events. A panic, such
// as one of the store, is an error; the call has a result nevertheless. The error is ErrPostponed,
// and the outcome empty, if the call waits for an approval.
func (l *loop) runTool(ctx context.Context, c call, skip string) (o tool.Outcome, err error) {
	if skip == skipWaits {
		switch {
		case c.arguments != c.Arguments:
			skip = skipSecret
		case c.overLimit:
			skip = skipLimit
		case !c.duplicate:
			return tool.Outcome{}, ErrPostponed
		}
	}
	l.send(event.ToolCallStart{CallID: c.ID, Name: c.Name, Arguments: c.Arguments})
	defer func() {
		switch {
		case errors.Is(err, ErrPostponed):
			l.send(toolCallEnd(l.refuse(c, tool.KindPermission, postponedText)))
			return
		case o.Result.CallID == "":
			o = l.refuse(c, tool.KindCanceled, notRunText(skipNotStored))
		}
		l.send(toolCallEnd(o))
	}()
	defer recoverAs(&err, l.log)
	t, _ := l.tools.Get(c.Name)
	offered := slices.Contains(l.offered, c.Name)
	durable := offered && !t.ReadOnly
	switch {
	case c.duplicate:
		o = l.refuse(c, tool.KindValidation, duplicateText(c.original))
	case skip != "":
		o = l.refuse(c, tool.KindCanceled, notRunText(skip))
	case ctx.Err() != nil:
		o = l.refuse(c, tool.KindCanceled, notRunText(skipStopped))
	case !offered:
		o = l.refuse(c, tool.KindUnknownTool, notOfferedText(c.Name, l.offered))
	case c.overLimit:
		o = l.refuse(c, tool.KindCanceled, notRunText(skipLimit))
	default:
		scope, flush := l.scopeOf(c)
		if t.Class != policy.ClassWrite && l.env != nil && l.mode.isPlanning() {
			scope.Env = l.mode.env
		}
		var unstored, denied error
		scope.Permit = func(ctx context.Context, t tool.Tool, args json.RawMessage) error {
			denied = l.permit(ctx, t, c, args)
			return denied
		}
		if durable {
			scope.Starting = func() error {
				unstored = catchPanic(l.log, func() error { return l.storeStart(c) })
				return unstored
			}
		}
		given := c.ToolCall
		if t.Class != policy.ClassAgent && t.Class != policy.ClassHuman {
			given.Arguments = c.arguments // those of other agents and of people enter a history
		}
		if l.execute == nil {
			o = l.tools.Run(ctx, scope, given)
		} else {
			o = l.execute(ctx, l.tools, scope, given)
		}
		o.Call, o.Result.CallID, o.Result.Name = c.ToolCall, c.ID, c.Name
		flush()
		switch {
		case unstored != nil:
			return tool.Outcome{}, unstored
		case errors.Is(denied, ErrPostponed):
			return tool.Outcome{}, denied
		}
	}
	l.judge(ctx, c, t, &o)
	if err = l.storeResult(c, o, durable); err == nil {
		o.Steps = append(o.Steps, event.StepRecord)
	}
	return o, err
}

// storeStart makes the start of a call durable that may change something.
func (l *loop) storeStart(c call) error {
	err := l.store.Append(session.TypeToolStarted, session.ToolStarted{
		RunID: c.runID, ModelCall: c.modelCall, Position: c.position, CallID: c.ID,
		Name: c.Name, Arguments: c.Arguments,
	})
	if err != nil {
		return err
	}
	return l.store.Sync()
}

func (l *loop) storeResult(c call, o tool.Outcome, durable bool) error {
	e := session.ToolResult{
		RunID: c.runID, ModelCall: c.modelCall, Position: c.position, Result: o.Result,
		OutputFile: o.Output.File, OutputSize: o.Output.Size, OutputSHA256: o.Output.SHA256,
		DurationMS: o.Duration.Milliseconds(), Changes: o.Changes,
		Failure: o.Failure, Resolved: o.Resolved,
	}
	if o.Err != nil {
		e.ErrorKind = string(o.Err.Kind)
	}
	if err := l.store.Append(session.TypeToolResult, e); err != nil || !durable {
		return err
	}
	return l.store.Sync()
}

// scopeOf returns the scope of a call, which emits the tool's output while it runs; flush emits the
// rest.
func (l *loop) scopeOf(c call) (s tool.Scope, flush func()) {
	var text textStream
	send := func(s string) {
		if s != "" {
			l.send(event.ToolOutputDelta{CallID: c.ID, Text: s})
		}
	}
	settings := l.settings()
	s = l.scope
	s.DefaultTimeout, s.MaxTimeout = settings.CommandTimeout, settings.MaxCommandTimeout
	s.Limits = settings.ToolLimits
	s.MaxProcesses = l.limits().MaxProcesses
	s.OnOutput = func(p []byte) { send(text.next(p)) }
	return s, func() { send(text.last()) }
}

func toolCallEnd(o tool.Outcome) event.ToolCallEnd {
	end := event.ToolCallEnd{
		CallID: o.Call.ID, Name: o.Call.Name, IsError: o.Result.IsError, Result: o.Result.Text(),
		Truncated: o.Truncated, Steps: o.Steps, Output: o.Output, Changes: o.Changes,
		DurationMS: o.Duration.Milliseconds(), Failure: o.Failure, Resolved: o.Resolved,
	}
	if o.Err != nil {
		end.ErrorKind = string(o.Err.Kind)
	}
	return end
}

// refuse returns the outcome of a call that does not run.
func (l *loop) refuse(c call, kind tool.ErrorKind, message string) tool.Outcome {
	return tool.Outcome{
		Call: c.ToolCall,
		Result: llm.ToolResult{
			CallID: c.ID, Name: c.Name, Parts: []llm.Part{llm.Text(message)}, IsError: true,
		},
		Output:  event.InlineOutput([]byte(message)),
		Err:     &tool.Error{Kind: kind, Message: message},
		Started: l.clock.Now(),
	}
}

// afterTools takes the step that follows from the outcomes.
func (l *loop) afterTools(
	ctx context.Context, calls []call, outcomes []tool.Outcome,
) (ending, bool, error) {
	if ctx.Err() != nil {
		return stopped(ctx), true, nil
	}
	rounds, failed := l.account(ctx, calls, outcomes)
	if l.waits.Load() != nil {
		return ending{signal: SignalGiveUp, status: StatusAwaitingHuman}, true, nil
	}
	final := slices.IndexFunc(outcomes, func(o tool.Outcome) bool {
		return skipAfter(o, nil, "") != ""
	})
	var e ending
	var over bool
	var err error
	switch {
	case final < 0 && l.refused.Load():
		l.refused.Store(false)
		l.step(SignalRefused)
	case final < 0:
		l.step(SignalResults)
	case outcomes[final].Exit != nil:
		e, over, err = l.exit(ctx, *outcomes[final].Exit)
	case outcomes[final].Question != "":
		e, over, err = l.question(ctx, outcomes[final].Question)
	default:
		err := fmt.Errorf("agent: %w", outcomes[final].Err)
		return ending{SignalError, StatusEnvironmentError, err}, true, nil
	}
	if over || err != nil {
		return e, over, err
	}
	if err := l.detectLoop(calls); err != nil {
		return ending{}, false, err
	}
	switch {
	case final < 0:
		return l.learn(ctx, rounds, failed)
	case outcomes[final].Question != "":
		return l.learn(ctx, 0, failed) // the answer may have helped
	}
	return ending{}, false, nil
}

// exit ends the run by the exit tool.
func (l *loop) exit(ctx context.Context, x tool.Exit) (ending, bool, error) {
	l.res.Exit = &x
	switch x.Code {
	case 0:
		return l.complete(ctx)
	case 2:
		l.res.Question = x.Reason
		return ending{signal: SignalQuestion, status: StatusAwaitingHuman}, true, nil
	case -1:
		return ending{signal: SignalDeadline, status: StatusGaveUpTime}, true, nil
	}
	return l.cannot(ctx, x)
}

// question gets the user's answer to text, or ends the run without one.
func (l *loop) question(ctx context.Context, text string) (ending, bool, error) {
	if l.answer == nil {
		l.res.Question = text
		return ending{signal: SignalQuestion, status: StatusAwaitingHuman}, true, nil
	}
	l.step(SignalQuestion)
	answer, err := l.answer(ctx, text)
	if ctx.Err() != nil {
		return stopped(ctx), true, nil
	}
	if err != nil {
		l.res.Question = text
		return ending{signal: SignalGiveUp, status: StatusAwaitingHuman}, true, nil
	}
	if err := l.recordText(session.TurnUser, answer); err != nil {
		return ending{}, false, err
	}
	l.history.failures.Forgive()
	l.send(event.UserInput{Text: answer})
	l.step(SignalAnswer)
	return ending{}, false, nil
}

// detectLoop warns a model that repeats its calls.
func (l *loop) detectLoop(calls []call) error {
	limits := l.limits()
	if limits.NoLoopDetection {
		return nil
	}
	d := &l.history.loops
	d.window = limits.LoopWindow
	found := false
	for _, c := range calls {
		if t, ok := l.tools.Get(c.Name); ok && t.Waits {
			continue
		}
		d.add(c.ToolCall)
		found = d.looping() || found
	}
	if !found {
		return nil
	}
	message := loopText(d.window)
	if err := l.recordText(session.TurnSteering, message); err != nil {
		return err
	}
	l.send(event.LoopDetection{Message: message})
	l.send(event.SteeringInjected{Text: message})
	return nil
}

// addToResult adds a call to the run's result, with shortened texts.
func (l *loop) addToResult(c call, o tool.Outcome) {
	args, text := shorten.Middle(
		c.Arguments,
		recordedText,
	), shorten.Middle(
		o.Result.Text(),
		recordedText,
	)
	l.res.ToolCalls = append(l.res.ToolCalls, ToolCallRecord{
		CallID: c.ID, Name: c.Name, Arguments: args, Result: text,
		Success: !o.Result.IsError, Started: o.Started, Duration: o.Duration,
	})
	if o.Failure != nil {
		l.res.Failures = append(l.res.Failures, *o.Failure)
	}
	for _, ch := range o.Changes {
		l.res.Changes = mergeChange(l.res.Changes, ch)
	}
}

// mergeChange adds a change to a list with one change a file, the sum of all changes of that file.
// The oldest backup has the file's first content.
func mergeChange(list []event.FileChange, ch event.FileChange) []event.FileChange {
	i := slices.IndexFunc(list, func(have event.FileChange) bool { return have.Path == ch.Path })
	switch {
	case i < 0:
		return append(list, ch)
	case list[i].Kind == event.FileCreated && ch.Kind == event.FileDeleted:
		return slices.Delete(list, i, i+1)
	case list[i].Kind == event.FileCreated:
	case list[i].Kind == event.FileDeleted && ch.Kind == event.FileCreated:
		list[i].Kind = event.FileModified
	default:
		list[i].Kind = ch.Kind
	}
	if list[i].Kind != event.FileCreated && list[i].Backup == "" {
		list[i].Backup = ch.Backup
	}
	return list
}
