package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// strikes is the number of failing rounds in a row after which the model looks for the cause.
	strikes = 3
	// helpTime bounds the wait for the answer of a person.
	helpTime = 30 * time.Second
)

// errNoHelp ends the wait for a person.
var errNoHelp = fmt.Errorf("nobody answered within %s", helpTime)

// judge adds the failure signal to the outcome of a call of t, and tells the model of it what to do
// next, or adds the failures that a success makes obsolete. An executor may have done so before.
func (l *loop) judge(ctx context.Context, c call, t tool.Tool, o *tool.Outcome) {
	defer func() {
		if o.Failure != nil {
			l.history.failures.Failed(failure.CallOf(t, c.ToolCall, o.Failure))
		}
	}()
	switch {
	case o.Failure != nil:
		return
	case o.Err == nil && o.Resolved != nil:
		return
	case o.Err == nil:
		o.Resolved = l.history.failures.Resolves(failure.CallOf(t, c.ToolCall, nil))
		return
	}
	e := *o.Err
	e.Message = l.scope.Redactor.Text(e.Message)
	f := failure.OfCall(c.ToolCall, &e, o.Result.Text(), o.Started)
	if errors.Is(o.Err, errRefused) {
		f.Source = event.FailureUser
	}
	o.Failure = &f
	if o.Err.Kind == tool.KindCanceled {
		return // its result says what to do
	}
	if past := failure.Similar(f, l.pastFailures(ctx)); past != nil {
		f.Past = &event.PastFailure{
			SessionID: past.SessionID, Remedy: l.scope.Redactor.Text(past.Remedy),
		}
	}
	parts := slices.Clone(o.Result.Parts)
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].Kind == llm.PartText {
			parts[i].Text = strings.TrimSuffix(parts[i].Text, "\n") + "\n" + failure.Advice(f, l.offered)
			break
		}
	}
	o.Result.Parts = parts
}

// note records a failure that belongs to no call.
func (l *loop) note(ctx context.Context, f event.Failure) error {
	l.noteProgress(ctx, []event.Failure{f})
	l.res.Failures = append(l.res.Failures, f)
	l.history.failures.Note(f)
	l.send(event.FailureSignal{Failure: f})
	return l.store.Append(session.TypeFailure, f)
}

// account adds the outcomes of calls to the failures of the session. It returns the number of
// failing rounds in a row, and the failures.
func (l *loop) account(
	ctx context.Context, calls []call, outcomes []tool.Outcome,
) (rounds int, failed []event.Failure) {
	var round failure.Round
	for i, c := range calls {
		o := outcomes[i]
		// Not one that waits, whose result is of an earlier run, or that ends the run.
		if o.Result.CallID == "" || c.result != nil || o.Exit != nil || o.Question != "" {
			continue
		}
		t, _ := l.tools.Get(c.Name)
		round = append(round, failure.CallOf(t, c.ToolCall, o.Failure))
		if o.Failure == nil {
			l.progress = true
		} else if o.Failure.Kind != string(tool.KindCanceled) {
			failed = append(failed, *o.Failure)
		}
	}
	rounds = l.history.failures.Add(round)
	l.noteProgress(ctx, failed)
	return rounds, failed
}

// learn follows a round of calls. After a failure the model gets the open ones again, and after
// strikes it has to find the cause. It gets its open plan again, too.
func (l *loop) learn(
	ctx context.Context, rounds int, failed []event.Failure,
) (ending, bool, error) {
	open := l.history.failures.Open()
	if rounds >= strikes && len(open) > 0 && l.limits().MaxReplans >= 0 {
		return l.strike(ctx, rounds, open[len(open)-1])
	}
	if e, over, err := l.askPermission(ctx, failed); over || err != nil {
		return e, over, err
	}
	var texts []string
	if len(failed) > 0 {
		texts = append(texts, l.history.failures.Recite())
	}
	if l.plans() {
		texts = append(texts, l.planner.recite())
	}
	text := strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n\n")
	if text == "" {
		return ending{}, false, nil
	}
	if err := l.recordText(session.TurnSteering, text); err != nil {
		return ending{}, false, err
	}
	l.send(event.SteeringInjected{Text: text})
	return ending{}, false, nil
}

// strike follows that many failing rounds in a row: the model finds the cause and makes a new plan.
// If that has been tried often enough a person may help, or the run ends.
func (l *loop) strike(
	ctx context.Context, rounds int, last event.Failure,
) (ending, bool, error) {
	if l.replans < l.limits().MaxReplans {
		return l.replan(ctx, l.withFailures(strikeText(rounds, last)))
	}
	if l.answer != nil {
		if helped, e, over, err := l.help(ctx, helpText(rounds, last)); helped || over || err != nil {
			return e, over, err
		}
	}
	err := &RepeatedFailuresError{
		Kind: last.Kind, Rounds: rounds, Replans: l.replans, Message: last.Learning,
	}
	return ending{SignalGiveUp, StatusRepeatedFailures, fmt.Errorf("agent: %w", err)}, true, nil
}

// askPermission asks a person about the first call that failed since only a person can permit it,
// until nobody answers. A call that a person or a rule refused has its decision.
func (l *loop) askPermission(
	ctx context.Context, failed []event.Failure,
) (e ending, over bool, err error) {
	i := slices.IndexFunc(failed, func(f event.Failure) bool {
		return f.Strategy == event.StrategyAskUser && f.Source != event.FailureUser
	})
	if i < 0 || l.answer == nil || l.nobody {
		return ending{}, false, nil
	}
	helped, e, over, err := l.help(ctx, permissionText(failed[i]))
	l.nobody = !helped
	return e, over, err
}

// withFailures adds to a text what the model has to know of its open failures.
func (l *loop) withFailures(text string) string {
	if open := l.history.failures.Recite(); open != "" {
		return text + "\n\n" + open
	}
	return text
}

// help asks a person for advice, for helpTime, and reports whether there is an answer for the
// model.
func (l *loop) help(
	ctx context.Context, question string,
) (helped bool, e ending, over bool, err error) {
	l.step(SignalQuestion)
	limited, cancel := context.WithTimeoutCause(ctx, helpTime, errNoHelp)
	answer, failed := l.answer(limited, question)
	cancel()
	switch {
	case ctx.Err() != nil:
		return false, stopped(ctx), true, nil
	case failed != nil || strings.TrimSpace(answer) == "":
		l.step(SignalContinue)
		return false, ending{}, false, nil
	}
	if err := l.recordText(session.TurnUser, answer); err != nil {
		return false, ending{}, false, err
	}
	l.send(event.UserInput{Text: answer})
	l.step(SignalAnswer)
	l.replans = 0
	l.history.failures.Forgive()
	return true, ending{}, false, nil
}

// mayReplan reports whether the model gets another chance before the run ends: not if it has done
// nothing since the last one.
func (l *loop) mayReplan() bool {
	return l.replans < l.limits().MaxReplans && (l.replans == 0 || l.progress)
}

// replan has the model find the cause of its failures, in a request without tools, and then go on
// with a new plan. The text why tells it what happened.
func (l *loop) replan(ctx context.Context, why string) (ending, bool, error) {
	l.replans++
	l.progress = false
	l.history.failures.Forgive()
	if l.machine.state != StateReflecting {
		l.step(SignalReflect)
	}
	if e, over, err := l.makeRoom(ctx); over || err != nil {
		return e, over, err
	}
	steer := func(text string) error {
		l.send(event.SteeringInjected{Text: text})
		return l.recordText(session.TurnSteering, text)
	}
	if err := steer(reflectText(why)); err != nil {
		return ending{}, false, err
	}
	final := l.res.Final
	if e, over, err := l.reflect(ctx); over || err != nil {
		return e, over, err
	}
	l.res.Final, l.partial, l.cuts = final, "", 0
	l.step(SignalReplan)
	if err := steer(replanText(l.plans())); err != nil {
		return ending{}, false, err
	}
	l.step(SignalContinue)
	return ending{}, false, nil
}

// reflect gets the cause from the model. A conversation that is too long for that is shortened
// once.
func (l *loop) reflect(ctx context.Context) (ending, bool, error) {
	l.noCalls, l.partial, l.cuts = true, "", 0
	defer func() { l.noCalls = false }()
	resp, err := l.stream(ctx)
	if err != nil {
		e := l.modelFailed(ctx, err)
		if e.status != StatusContextOverflow {
			return e, true, nil
		}
		l.settleUnanswered()
		before := l.nextTokens()
		if end, over, err := l.shorten(ctx, before/2, true); over || err != nil {
			return end, over, err
		}
		if l.nextTokens() >= before {
			return e, true, nil
		}
		if e, over := l.reserveNext(ctx); over {
			return e, true, nil
		}
		if resp, err = l.stream(ctx); err != nil {
			return l.modelFailed(ctx, err), true, nil
		}
	}
	l.answersSince++
	_, err = l.recordAnswer(withoutCalls(resp))
	return ending{}, false, err
}

// cannot follows the model's report that it cannot do the task.
func (l *loop) cannot(ctx context.Context, x tool.Exit) (ending, bool, error) {
	if err := l.note(ctx, failure.OfTask(x.Reason, l.clock.Now())); err != nil {
		return ending{}, false, err
	}
	if l.mayReplan() {
		l.res.Exit = nil
		return l.replan(ctx, l.withFailures(cannotText(x.Reason)))
	}
	err := fmt.Errorf("agent: %w", &TaskFailedError{Reason: x.Reason})
	return ending{SignalGiveUp, StatusTaskFailed, err}, true, nil
}
