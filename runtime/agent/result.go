package agent

import (
	"errors"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Status says how a run ended.
type Status string

// Statuses of a run.
const (
	// StatusCompleted: the model is done, and the host's check passed if there is one.
	StatusCompleted Status = "completed"
	// StatusTaskFailed: the model said that it cannot do the task.
	StatusTaskFailed Status = "task_failed"
	// StatusVerifyFailed: the host's check did not pass, in as many attempts as it had.
	StatusVerifyFailed Status = "verify_failed"
	// StatusLimit: a limit was reached; Result.Limit names it.
	StatusLimit Status = "limit_reached"
	// StatusAwaitingHuman: the model asked the user; the next input is the answer.
	StatusAwaitingHuman Status = "awaiting_human"
	// StatusModelError: the model could not be reached or refused.
	StatusModelError Status = "model_error"
	// StatusContextOverflow: the history is longer than the model's context.
	StatusContextOverflow Status = "context_overflow"
	// StatusEnvironmentError: the place where the tools act is gone.
	StatusEnvironmentError Status = "environment_error"
	// StatusInternalError: the session could not be kept, an event not be delivered, or the loop
	// failed.
	StatusInternalError Status = "internal_error"
	// StatusAborted: the host ended the run.
	StatusAborted Status = "aborted"
	// StatusTimedOut: the run's time was over.
	StatusTimedOut Status = "timed_out"
	// StatusGaveUpTime: the model itself ended the run because its time was over.
	StatusGaveUpTime Status = "timed_out_by_model"
)

// Errors of sessions.
var (
	// ErrClosed means that the session is closed.
	ErrClosed = errors.New("the session is closed")
	// ErrBusy means that the session works on another input.
	ErrBusy = errors.New("the session is busy")
	// ErrAborted is the cause of what an abort ended.
	ErrAborted = errors.New("aborted")
	// ErrTimeLimit is the cause of what Limits.MaxDuration ended.
	ErrTimeLimit = errors.New("the run's time is over")
)

// Result tells how a run ended and what it did.
type Result struct {
	SessionID, RunID string
	Status           Status
	// Final is the model's last text.
	Final string
	// Err is what ended the run; nil if Status is completed, task_failed, limit_reached,
	// awaiting_human or timed_out_by_model.
	Err error
	// Limit names the limit that ended the run: "turns", "tool_rounds", "tool_calls" or "tokens".
	Limit string
	// Exit is set if the model ended the run with the exit tool.
	Exit *tool.Exit
	// Question is what the model asked, with status awaiting_human.
	Question string
	// Usage sums the tokens of this run, and ModelCalls counts those of its own agent.
	Usage      llm.Usage
	ModelCalls int
	// Turns counts the entries of the session so far.
	Turns     int
	ToolCalls []ToolCallRecord
	Failures  []Failure
	// Changes lists the files that tools reported as changed, one entry a file. What commands change
	// is not in it.
	Changes []event.FileChange
	// Agents are the sub-agents that worked in this run, in the order in which they ended; one that
	// worked on several tasks comes several times. Their tokens are in Usage, and their changes in
	// Changes.
	Agents []event.AgentResult
	// Steps is the way through the state machine.
	Steps    []Transition
	Started  time.Time
	Duration time.Duration
}

// ToolCallRecord is one tool call of a run.
type ToolCallRecord struct {
	CallID    string        `json:"call_id"`
	Name      string        `json:"name"`
	Arguments string        `json:"arguments"`
	Result    string        `json:"result"`
	Success   bool          `json:"success"`
	Started   time.Time     `json:"started"`
	Duration  time.Duration `json:"duration"`
}

// FailureSource says where a failure came from.
type FailureSource string

// Sources of failures.
const (
	FailureTool       FailureSource = "tool"
	FailureValidation FailureSource = "validation"
	FailureTimeout    FailureSource = "timeout"
	FailureVerify     FailureSource = "verify"
	FailureModel      FailureSource = "model"
)

// Failure is something that went wrong in a run and was told to the model.
type Failure struct {
	Source    FailureSource `json:"source"`
	Kind      string        `json:"kind"`
	Message   string        `json:"message"`
	Tool      string        `json:"tool,omitempty"`
	Arguments string        `json:"arguments,omitempty"`
	Time      time.Time     `json:"time"`
}

// runEndedEntry is the record of a run in the journal.
type runEndedEntry struct {
	RunID      string              `json:"run_id"`
	Status     Status              `json:"status"`
	Limit      string              `json:"limit,omitempty"`
	Error      string              `json:"error,omitempty"`
	Exit       *tool.Exit          `json:"exit,omitempty"`
	Usage      llm.Usage           `json:"usage"`
	ModelCalls int                 `json:"model_calls"`
	Agents     []event.AgentResult `json:"agents,omitempty"`
	Steps      []Transition        `json:"steps"`
	DurationMS int64               `json:"duration_ms"`
}

func (r Result) entry() runEndedEntry {
	e := runEndedEntry{
		RunID: r.RunID, Status: r.Status, Limit: r.Limit, Exit: r.Exit, Usage: r.Usage,
		ModelCalls: r.ModelCalls,
		Agents:     r.Agents, Steps: r.Steps, DurationMS: r.Duration.Milliseconds(),
	}
	if r.Err != nil {
		e.Error = r.Err.Error()
	}
	return e
}
