package event

import "time"

// FailureSource is the source of a failure.
type FailureSource string

// Sources of failures.
const (
	// FailureTool: a tool that ran.
	FailureTool FailureSource = "tool"
	// FailureValidation: a call that no tool can run.
	FailureValidation FailureSource = "validation"
	FailureTimeout    FailureSource = "timeout"
	// FailureUser: a person, or a rule of the user, refused a call.
	FailureUser FailureSource = "user"
	// FailureModel: the model reported that it cannot do the task.
	FailureModel  FailureSource = "model"
	FailureVerify FailureSource = "verify"
)

// FailureClass tells what can be done about a failure.
type FailureClass string

// Classes of failures.
const (
	// ClassRetryable: the same call may succeed later.
	ClassRetryable FailureClass = "retryable"
	// ClassRecoverable: another call may succeed.
	ClassRecoverable FailureClass = "recoverable"
	// ClassPermission: only the user can allow the call.
	ClassPermission FailureClass = "permission"
	// ClassPermanent: no call can succeed.
	ClassPermanent FailureClass = "permanent"
)

// Strategy is the next step after a failure.
type Strategy string

// Strategies after failures.
const (
	StrategyRetry Strategy = "retry"
	// StrategyWait: another process is in the way; wait, and then retry.
	StrategyWait        Strategy = "wait"
	StrategyCorrect     Strategy = "correct"
	StrategyAlternative Strategy = "alternative"
	StrategyAskUser     Strategy = "ask_user"
	StrategyTerminate   Strategy = "terminate"
)

// Failure is a failure that a run survived, or the model's report that it cannot do the task. That
// of a call is in the call's ToolCallEnd; others are events.
type Failure struct {
	Source FailureSource `json:"source"`
	// Kind is the kind of the error, such as "shell_exit", "check_failed" for a check that did not
	// pass, or "task_failed".
	Kind     string       `json:"kind"`
	Class    FailureClass `json:"class"`
	Strategy Strategy     `json:"strategy"`
	// Message is that of the error, without output, and the start and the end of a long one; the model
	// got it whole.
	Message string `json:"message"`
	// ExitCode is that of a command that ended; missing otherwise.
	ExitCode *int `json:"exit_code,omitempty"`
	// Output is the end of what a command printed, of both its outputs.
	Output string `json:"output,omitempty"`
	// Tool, CallID and Arguments are those of the call. The keys of the arguments are in order, and
	// long ones are cut in their middle.
	Tool      string `json:"tool,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	// Learning is what to do or to know next time, in a sentence.
	Learning string `json:"learning,omitempty"`
	// Past is a similar failure of an earlier session; nil without one.
	Past *PastFailure `json:"past,omitempty"`
	Time time.Time    `json:"time"`
}

// PastFailure is a failure of an earlier session.
type PastFailure struct {
	SessionID string `json:"session_id"`
	// Remedy are the calls that helped, as the names of the tools and their arguments; empty without
	// any.
	Remedy string `json:"remedy,omitempty"`
}

// Retryable reports whether the same call may succeed later.
func (f Failure) Retryable() bool { return f.Class == ClassRetryable }

// FailureSignal is a failure that belongs to no call of a tool.
type FailureSignal struct{ Failure }

// Kind implements Data.
func (FailureSignal) Kind() Kind { return KindFailure }
