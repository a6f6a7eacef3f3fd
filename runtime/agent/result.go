package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Status is the outcome of a run.
type Status string

// Statuses of a run.
const (
	// StatusCompleted: the model completed the task, and Verify passed.
	StatusCompleted Status = "completed"
	// StatusTaskFailed: the model reported that it cannot do the task; the error is a
	// *TaskFailedError.
	StatusTaskFailed Status = "task_failed"
	// StatusRepeatedFailures: after Limits.MaxReplans new plans the calls of the model went on
	// failing; the error is a *RepeatedFailuresError.
	StatusRepeatedFailures Status = "repeated_failures"
	// StatusVerifyFailed: Verify did not pass in Verify.Attempts checks.
	StatusVerifyFailed Status = "verify_failed"
	// StatusLimit: a limit was reached; RunResult.Limit names it.
	StatusLimit Status = "limit_reached"
	// StatusAwaitingHuman: the model has a question for the user, and the next input is the answer, or
	// a call waits for an approval, and the next input has a Reply.
	StatusAwaitingHuman Status = "awaiting_human"
	// StatusModelError: a request to the model failed.
	StatusModelError Status = "model_error"
	// StatusContextOverflow: the history is longer than the model's context.
	StatusContextOverflow Status = "context_overflow"
	// StatusEnvironmentError: the environment does not exist any more, or cannot run the check.
	StatusEnvironmentError Status = "environment_error"
	// StatusInternalError: the store, a sink or the loop failed.
	StatusInternalError Status = "internal_error"
	// StatusAborted: Abort, Close or a cancelled context ended the run.
	StatusAborted Status = "aborted"
	// StatusTimedOut: the run reached Limits.MaxDuration or the deadline of its context.
	StatusTimedOut Status = "timed_out"
	// StatusGaveUpTime: the model ended the run for lack of time.
	StatusGaveUpTime Status = "timed_out_by_model"
)

// Errors of sessions.
var (
	// ErrClosed means that the session is closed.
	ErrClosed = errors.New("the session is closed")
	// ErrNoSession means that no open session has that ID.
	ErrNoSession = errors.New("no such session")
	// ErrIdle means that no run is there to get the message.
	ErrIdle = errors.New("the session is idle")
	// ErrBusy means that another run of the session has not ended.
	ErrBusy = errors.New("the session is busy")
	// ErrNotShorter means that a conversation cannot be made shorter.
	ErrNotShorter = errors.New("a summary does not make it shorter")
	// ErrAborted is the cause of an aborted run.
	ErrAborted = errors.New("aborted")
	// ErrPostponed means that a call, or one before it, waits for an approval after the end of its
	// run. It is the error of tool.Scope.Permit then.
	ErrPostponed = errors.New("the call waits for an approval")
	// ErrExpired means that the time for an approval is over.
	ErrExpired = errors.New("the time for the approval is over")
	// ErrTimeLimit is the cause of a run that reached Limits.MaxDuration.
	ErrTimeLimit = errors.New("the run's time is over")
)

// TaskFailedError is the error of a run whose model reported that it cannot do the task.
type TaskFailedError struct {
	// Reason is the model's.
	Reason string
}

func (e *TaskFailedError) Error() string {
	return "the model reports that it cannot do the task: " + e.Reason
}

// RepeatedFailuresError is the error of a run that ended because its calls went on failing.
type RepeatedFailuresError struct {
	// Kind is that of the last failures, and Rounds the number of failing rounds in a row.
	Kind   string
	Rounds int
	// Replans is the number of new plans that did not help, and Message the last failure.
	Replans int
	Message string
}

func (e *RepeatedFailuresError) Error() string {
	return fmt.Sprintf(
		"the last %d rounds of calls failed (%s), after %d new plans: %s",
		e.Rounds,
		e.Kind,
		e.Replans,
		e.Message,
	)
}

// RunResult is the result of a run.
type RunResult struct {
	SessionID, RunID string
	Status           Status
	// Final is the model's last text. Answers that the model continued after the output limit are one
	// text.
	Final string
	// Reported means that Final is the answer to the request of Config.FinalAnswer.
	Reported bool
	// Err is the error that ended the run; nil if Status is completed, limit_reached,
	// awaiting_human or timed_out_by_model.
	Err error
	// Limit names the limit that ended the run: "turns", "tool_rounds", "tool_calls", "tokens",
	// "cost", or "output_tokens", the limit of one answer, which cut three answers in a row.
	Limit string
	// Exit is set if the model ended the run with the exit tool.
	Exit *tool.Exit
	// Question is the model's question, with status awaiting_human.
	Question string
	// Approval is the call that waits for a decision, with status awaiting_human; nil without one.
	Approval *event.PermissionAsked
	// Undelivered are the messages of Session.Steer that came too late for the model.
	Undelivered []string
	// Usage sums the tokens of this run and its sub-agents, and CostUSD their prices; nil if the price
	// of a model is not known, and without answers. Models has the same for each model.
	Usage   llm.Usage
	CostUSD *float64
	Models  []event.ModelUsage
	// ModelCalls is without sub-agents.
	ModelCalls int
	// Turns counts the requests to the model of the session and its sub-agents so far, as
	// Limits.MaxTurns does.
	Turns     int
	ToolCalls []ToolCallRecord
	// Failures are those that the run survived, and the model's report that it cannot do the task;
	// the model got their messages. Those of sub-agents are not among them.
	Failures []event.Failure
	// Changes lists the files that tools changed, one change a file, without changes by commands.
	Changes []event.FileChange
	// Refused lists the calls of the run and its sub-agents that were refused, the first 100; empty in
	// the result of a sub-agent.
	Refused []event.Refusal
	// Agents lists the tasks of sub-agents in this run, in the order of their ends. Usage and Changes
	// include them.
	Agents []event.AgentResult
	// Plan is that of Session.Plan at the end.
	Plan plan.Plan
	// Transitions are those of the state machine, in order.
	Transitions []Transition
	Started     time.Time
	Duration    time.Duration
}

// recordedText bounds each text of a ToolCallRecord, in bytes, so that the memory of a long run
// does not grow with its outputs.
const recordedText = 2_000

// ToolCallRecord is one tool call of a run. Arguments and Result of more than 2,000 bytes are
// shortened in the middle; the event tool_call_end and the journal have them whole.
type ToolCallRecord struct {
	CallID    string        `json:"call_id"`
	Name      string        `json:"name"`
	Arguments string        `json:"arguments"`
	Result    string        `json:"result"`
	Success   bool          `json:"success"`
	Started   time.Time     `json:"started"`
	Duration  time.Duration `json:"duration"`
}

// storedMessage bounds the message of a failure in the last entry of a run, in bytes.
const storedMessage = 1000

func (r RunResult) entry() session.RunEnded {
	e := session.RunEnded{
		RunID: r.RunID, Status: string(r.Status), Limit: r.Limit, Exit: r.Exit, Usage: r.Usage,
		CostUSD: r.CostUSD, Models: r.Models, ModelCalls: r.ModelCalls, Agents: r.Agents,
		DurationMS: r.Duration.Milliseconds(),
	}
	for _, t := range r.Transitions {
		e.Transitions = append(e.Transitions, session.Transition{Status: t.event(), Time: t.Time})
	}
	for _, f := range r.Failures {
		f.Message = shorten.Middle(f.Message, storedMessage)
		e.Failures = append(e.Failures, f)
	}
	if r.Err != nil {
		e.Error = r.Err.Error()
	}
	return e
}

// closesSession reports whether the session ends with this run. A transient error of the model
// leaves it open.
func (r RunResult) closesSession() bool {
	switch r.Status {
	case StatusContextOverflow, StatusInternalError, StatusEnvironmentError:
		return true
	case StatusModelError:
		var e *llm.Error
		return !errors.As(r.Err, &e) || !e.Retryable()
	}
	return false
}
