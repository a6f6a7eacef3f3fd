package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// runTools runs the calls of an answer, records exactly one result for each, and says whether the
// run is over.
func (l *loop) runTools(ctx context.Context, calls []call) (ending, bool) {
	l.step(SignalToolCalls)
	l.rounds++
	outcomes, broke := l.execute(ctx, calls)
	results := make([]llm.ToolResult, len(outcomes))
	for i := range outcomes {
		results[i] = outcomes[i].Result
	}
	if err := l.record(Turn{Kind: TurnToolResults, Results: results}); err != nil {
		return broken(err), true
	}
	if broke != nil {
		return broken(broke), true
	}
	if e, over := l.afterTools(ctx, outcomes); over {
		return e, true
	}
	if err := l.detectLoop(calls); err != nil {
		return broken(err), true
	}
	return ending{}, false
}

// afterTools takes the step that follows from the results.
func (l *loop) afterTools(ctx context.Context, outcomes []tool.Outcome) (ending, bool) {
	if ctx.Err() != nil {
		return stopped(ctx), true
	}
	for _, o := range outcomes {
		switch {
		case o.Exit != nil:
			return l.exit(ctx, *o.Exit)
		case o.Question != "":
			return l.question(ctx, o.Question)
		case o.Err != nil && envGone(o.Err):
			return ending{SignalError, StatusEnvironmentError, fmt.Errorf("agent: %w", o.Err)}, true
		}
	}
	l.step(SignalResults)
	return ending{}, false
}

// exit ends the run as the model asked.
func (l *loop) exit(ctx context.Context, x tool.Exit) (ending, bool) {
	l.res.Exit = &x
	switch x.Code {
	case 0:
		return l.done(ctx)
	case 2:
		l.res.Question = x.Reason
		return ending{signal: SignalQuestion, status: StatusAwaitingHuman}, true
	case -1:
		return ending{signal: SignalDeadline, status: StatusGaveUpTime}, true
	}
	return ending{signal: SignalGiveUp, status: StatusTaskFailed}, true
}

// question puts a question to the user, or ends the run where nobody can be asked.
func (l *loop) question(ctx context.Context, text string) (ending, bool) {
	ask := l.s.agent.cfg.Ask
	if ask == nil {
		l.res.Question = text
		return ending{signal: SignalQuestion, status: StatusAwaitingHuman}, true
	}
	l.step(SignalQuestion)
	answer, err := ask(ctx, text)
	if ctx.Err() != nil {
		return stopped(ctx), true
	}
	if err != nil { // nobody answered; the machine is in the right state already
		l.res.Question = text
		return ending{signal: SignalGiveUp, status: StatusAwaitingHuman}, true
	}
	if err := l.record(Turn{Kind: TurnUser, Parts: []llm.Part{llm.Text(answer)}}); err != nil {
		return broken(err), true
	}
	l.emit(event.UserInput{Text: answer})
	l.step(SignalAnswer)
	return ending{}, false
}

// detectLoop warns a model that repeats itself.
func (l *loop) detectLoop(calls []call) error {
	limits := l.limits()
	if limits.NoLoopDetection {
		return nil
	}
	d := &l.s.loop
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
	note := tool.LoopNote(d.window)
	if err := l.record(Turn{Kind: TurnSteering, Parts: []llm.Part{llm.Text(note)}}); err != nil {
		return err
	}
	l.emit(event.LoopDetection{Message: note})
	l.emit(event.SteeringInjected{Text: note})
	return nil
}

// execute runs calls in order, consecutive read-only ones beside each other where the profile
// supports it. Calls that come after the end of the run, after a question or an exit, or after a
// failure to keep the session, get a result that says so.
func (l *loop) execute(ctx context.Context, calls []call) (outcomes []tool.Outcome, broke error) {
	limit, before := l.limits().MaxToolCalls, len(l.res.ToolCalls)
	for i := range calls {
		calls[i].overLimit = limit > 0 && before+i >= limit
	}
	outcomes = make([]tool.Outcome, len(calls))
	skip := ""
	for i := 0; i < len(calls); {
		n := 1
		if skip == "" && l.s.agent.cfg.Profile.SupportsParallelToolCalls {
			n = l.readOnlyRun(calls[i:])
		}
		if err := l.group(ctx, calls[i:i+n], outcomes[i:i+n], skip); err != nil && broke == nil {
			broke = err
		}
		for j := i; j < i+n; j++ {
			l.remember(calls[j], outcomes[j])
			switch o := outcomes[j]; {
			case broke != nil:
				skip = "the session could not be kept"
			case o.Exit != nil:
				skip = "the run ended before it"
			case o.Question != "":
				skip = "the user is asked first"
			case o.Err != nil && envGone(o.Err):
				skip = "the environment is gone"
			}
		}
		i += n
	}
	return outcomes, broke
}

// readOnlyRun counts the calls at the start of calls that may run beside each other; at least one.
func (l *loop) readOnlyRun(calls []call) int {
	n := 0
	for n < len(calls) {
		t, ok := l.tools.Get(calls[n].Name)
		if !ok || !t.ReadOnly {
			break
		}
		n++
	}
	return max(n, 1)
}

// group runs calls beside each other, at most Policy.MaxParallel at once.
func (l *loop) group(
	ctx context.Context, calls []call, outcomes []tool.Outcome, skip string,
) error {
	if len(calls) == 1 {
		var err error
		outcomes[0], err = l.one(ctx, calls[0], skip)
		return err
	}
	slots := make(chan struct{}, l.s.agent.cfg.Policy.MaxParallel)
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i := range calls {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i], errs[i] = l.one(ctx, calls[i], skip)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// one runs one call, keeps what the journal must hold, and tells of it. It may run beside others. A
// panic in it, such as one of the store, is an error, and the call has a result all the same.
func (l *loop) one(ctx context.Context, c call, skip string) (o tool.Outcome, broke error) {
	l.emitSafe(event.ToolCallStart{CallID: c.ID, Name: c.Name, Arguments: c.Arguments})
	_, err := guard(l.s.agent.cfg.Log, func() error {
		o, broke = l.carryOut(ctx, c, skip)
		return nil
	})
	if err != nil {
		broke = err
	}
	if o.Result.CallID == "" {
		o = l.refused(c, tool.KindCanceled, tool.NotRunNote("the session could not be kept"))
	}
	l.emitSafe(toolCallEnd(o))
	return o, broke
}

// carryOut runs a call between its entries in the journal, or refuses it.
func (l *loop) carryOut(ctx context.Context, c call, skip string) (o tool.Outcome, broke error) {
	t, _ := l.tools.Get(c.Name)
	offered := slices.Contains(l.offered, c.Name)
	switch {
	case c.duplicate:
		o = l.refused(c, tool.KindValidation, tool.DuplicateNote(c.original))
	case skip != "":
		o = l.refused(c, tool.KindCanceled, tool.NotRunNote(skip))
	case ctx.Err() != nil:
		o = l.refused(c, tool.KindCanceled, tool.NotRunNote("the run was stopped"))
	case !offered:
		o = l.refused(c, tool.KindUnknownTool, tool.NotOfferedNote(c.Name, l.offered))
	case c.overLimit:
		o = l.refused(c, tool.KindCanceled, tool.NotRunNote("the limit of tool calls is reached"))
	case t.ReadOnly:
		o = l.call(ctx, c)
	default:
		if err := l.keepStart(c); err != nil {
			return l.refused(c, tool.KindCanceled, tool.NotRunNote("the session could not be kept")), err
		}
		o = l.call(ctx, c)
	}
	return o, l.keepResult(c, o, offered && !t.ReadOnly)
}

// keepStart makes durable that a call begins which may change something.
func (l *loop) keepStart(c call) error {
	err := l.s.store.Append(entryToolStarted, toolStartedEntry{
		RunID: l.in.RunID, ModelCall: l.res.ModelCalls, Position: c.position, CallID: c.ID, Name: c.Name,
		Arguments: c.Arguments,
	})
	if err != nil {
		return err
	}
	return l.s.store.Sync()
}

func toolCallEnd(o tool.Outcome) event.ToolCallEnd {
	end := event.ToolCallEnd{
		CallID: o.Call.ID, Name: o.Call.Name, IsError: o.Result.IsError, Result: o.Result.Text(),
		Truncated: o.Truncated,
		Output:    o.Output, Changes: o.Changes, DurationMS: o.Duration.Milliseconds(),
	}
	if o.Err != nil {
		end.ErrorKind = string(o.Err.Kind)
	}
	return end
}

func (l *loop) keepResult(c call, o tool.Outcome, durable bool) error {
	e := toolResultEntry{
		RunID: l.in.RunID, ModelCall: l.res.ModelCalls, Position: c.position, Result: o.Result,
		OutputFile: o.Output.File, OutputSize: o.Output.Size, OutputSHA256: o.Output.SHA256,
		DurationMS: o.Duration.Milliseconds(),
	}
	if o.Err != nil {
		e.ErrorKind = string(o.Err.Kind)
	}
	if err := l.s.store.Append(entryToolResult, e); err != nil || !durable {
		return err
	}
	return l.s.store.Sync()
}

// refused is the outcome of a call that was not run.
func (l *loop) refused(c call, kind tool.ErrorKind, note string) tool.Outcome {
	return tool.Outcome{
		Call: c.ToolCall,
		Result: llm.ToolResult{
			CallID: c.ID, Name: c.Name, Parts: []llm.Part{llm.Text(note)}, IsError: true,
		},
		Output:  event.InlineOutput([]byte(note)),
		Err:     &tool.Error{Kind: kind, Message: note},
		Started: l.s.agent.cfg.Clock.Now(),
	}
}

// call runs a tool and passes on what it prints while it runs.
func (l *loop) call(ctx context.Context, c call) tool.Outcome {
	var text textStream
	tell := func(s string) {
		if s != "" {
			l.emitSafe(event.ToolOutputDelta{CallID: c.ID, Text: s})
		}
	}
	scope := l.scope()
	scope.OnOutput = func(p []byte) { tell(text.next(p)) }
	o := l.tools.Run(ctx, scope, c.ToolCall)
	tell(text.last())
	return o
}

func (l *loop) scope() tool.Scope {
	s := l.s
	cfg := &s.agent.cfg
	s.mu.Lock()
	settings := s.settings
	s.mu.Unlock()
	var backups tool.Backups
	if cfg.Backups {
		backups = s.store.Backups()
	}
	return tool.Scope{
		Env:            cfg.Env,
		Spool:          s.store.Spool(),
		Backups:        backups,
		Outputs:        s.store.OpenOutput,
		DefaultTimeout: settings.CommandTimeout,
		MaxTimeout:     settings.MaxCommandTimeout,
		Limits:         settings.ToolLimits,
		Clock:          cfg.Clock,
		Logger:         cfg.Log,
	}
}

// remember adds a call to the run's result.
func (l *loop) remember(c call, o tool.Outcome) {
	l.res.ToolCalls = append(l.res.ToolCalls, ToolCallRecord{
		CallID: c.ID, Name: c.Name, Arguments: c.Arguments, Result: o.Result.Text(),
		Success: !o.Result.IsError,
		Started: o.Started, Duration: o.Duration,
	})
	if o.Result.IsError {
		f := Failure{
			Source: FailureTool, Kind: string(tool.KindOther), Message: o.Result.Text(),
			Tool: c.Name, Arguments: c.Arguments, Time: o.Started,
		}
		if o.Err != nil {
			f.Kind = string(o.Err.Kind)
			switch o.Err.Kind {
			case tool.KindValidation, tool.KindUnknownTool:
				f.Source = FailureValidation
			case tool.KindShellTimeout:
				f.Source = FailureTimeout
			}
		}
		l.res.Failures = append(l.res.Failures, f)
	}
	for _, ch := range o.Changes {
		l.res.Changes = mergeChange(l.res.Changes, ch)
	}
}

// mergeChange adds a change to a list with one entry a file, which tells what all changes together
// did.
func mergeChange(list []event.FileChange, ch event.FileChange) []event.FileChange {
	// The oldest backup is the one of what was there before.
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

// emitSafe is emit for goroutines other than the loop's own.
func (l *loop) emitSafe(d event.Data) {
	if err := l.s.emit(l.in.RunID, d); err != nil {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		l.breakWith(err)
	}
}
