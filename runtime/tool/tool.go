package tool

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Tool is a tool that a model can call.
type Tool struct {
	// ToolSpec is sent to the model: the name, the description and the JSON Schema of the arguments.
	llm.ToolSpec
	// ReadOnly marks a tool that changes nothing. Its calls may run concurrently and be repeated.
	ReadOnly bool
	// NeedsEnv marks a tool that is offered only with an environment.
	NeedsEnv bool
	// NeedsShell marks a tool that is offered only where the environment has a shell.
	NeedsShell bool
	// Waits marks a tool that waits for an event. Repeated calls of it are not counted as a loop.
	Waits bool
	// Limit bounds the output that the model sees. The session's configuration may override it.
	Limit Limit
	// Terminal marks a tool whose output is meant for a terminal. The model sees the output as
	// [Sanitize] returns it; Outcome.Output keeps all bytes.
	Terminal bool
	// Class is the class of the tool in policies; empty if it has none.
	Class string
	// Risk is the level of risk in policies; empty means that of the class, and for a tool without a
	// class policy.Safe if it is ReadOnly, else policy.Dangerous.
	Risk policy.Risk
	// Subjects returns what the patterns of rules are compared with, from validated arguments. With
	// nil, or without a subject, that is the text of the arguments.
	Subjects func(args json.RawMessage) []string
	// Aliases maps other names that models use for a parameter to the parameter's name. Arguments are
	// renamed before they are validated.
	Aliases map[string]string
	// Output is the JSON Schema of Result.Text, which is a JSON object then; nil means any text. A
	// result that does not fit is a failed call.
	Output json.RawMessage
	// Run executes a call whose arguments have been validated against Schema. An error becomes an
	// error result with its text, after the output that Run wrote to call.Out; the model reads both.
	Run func(ctx context.Context, call *Call) (Result, error)

	// proven is a schema that the tests of this package compile. A tool that still has it is
	// registered without compiling it.
	proven string
}

// Request returns what the rules of policies need to know about the tool.
func (t Tool) Request() policy.Request {
	risk := t.Risk
	if risk == "" && t.Class == "" && t.ReadOnly {
		risk = policy.Safe
	}
	return policy.Request{Tool: t.Name, Class: t.Class, Risk: risk}
}

// Requests returns the requests of a call with validated arguments, one for each subject.
func (t Tool) Requests(args json.RawMessage) []policy.Request {
	var subjects []string
	if t.Subjects != nil {
		subjects = t.Subjects(args)
	}
	if len(subjects) == 0 {
		subjects = []string{string(args)}
	}
	list := make([]policy.Request, len(subjects))
	for i, subject := range subjects {
		list[i] = t.Request()
		list[i].Subject = subject
	}
	return list
}

// Call is one tool call, as Run receives it.
type Call struct {
	ID   string
	Name string
	// Args is the JSON object with the arguments, validated.
	Args json.RawMessage
	// Env is the environment to act on; nil if the session has none.
	Env env.Environment
	// Out receives output while the tool runs. The event TOOL_CALL_END holds all of it; the model sees
	// as much as the limit allows. Writes do not fail because of their size.
	Out io.Writer
	// DefaultTimeout and MaxTimeout bound the commands that the tool runs, and so does MaxProcesses
	// unless it is zero; see env.Command.
	DefaultTimeout, MaxTimeout time.Duration
	MaxProcesses               int
	// Outputs opens the whole output of an earlier call by its ID, for names of the form output://ID;
	// nil if the session keeps none. The error for an unknown ID wraps fs.ErrNotExist.
	Outputs func(id string) (io.ReadCloser, error)
	// Redactor replaces secrets in the output and in errors after Run; nil replaces none. Tools that
	// change files put secrets back in place of their markers.
	Redactor *redact.Redactor
}

// restore returns content as a model wrote it with the secrets of the former content in place of
// their markers.
func (c *Call) restore(content, former string) (string, error) {
	restored, err := c.Redactor.Restore(content, former)
	if err != nil {
		return "", errorf(KindEditConflict, "nothing was changed: %w; leave it out, write another "+
			"value, or copy the secret with a command", err)
	}
	return restored, nil
}

// Result is the result of a call, besides the output in Call.Out.
type Result struct {
	// Text is appended to the output in Out.
	Text string
	// Images are shown to the model after the text.
	Images []llm.Image
	// IsError marks the result as a failure although Run returned no error.
	IsError bool
	// Changes lists the files that the tool changed.
	Changes []event.FileChange
	// Exit makes the loop end the run.
	Exit *Exit
	// Question makes the loop wait for the user's answer.
	Question string
}

// Exit is the end of a run that the model decided.
type Exit struct {
	// Code is 0 for done, 1 for failed, 2 if a human is needed, -1 if the time is over.
	Code   int
	Reason string
}

// Keep selects the part of a long output that the model sees.
type Keep string

// Parts that can be kept.
const (
	KeepHead     Keep = "head"
	KeepTail     Keep = "tail"
	KeepHeadTail Keep = "head_tail"
)

// Limit bounds the output that the model sees. Characters (Unicode code points) are cut first,
// then lines.
type Limit struct {
	// Chars is the largest number of characters; zero means the default of 30,000.
	Chars int `json:"chars,omitempty"`
	// Lines is the largest number of lines; zero means no limit.
	Lines int `json:"lines,omitempty"`
	// Keep is the part to keep; empty means head and tail.
	Keep Keep `json:"keep,omitempty"`
}

// Spool stores outputs that are too long for memory.
type Spool interface {
	// Create creates a file for the output of the call id. The caller closes the file. The provider
	// chooses id, so it may be any text.
	Create(id string) (SpoolFile, error)
}

// SpoolFile is one stored output.
type SpoolFile interface {
	io.WriteCloser
	// Name is the path of the file on the host.
	Name() string
	// Open opens the file for reading, also after Close.
	Open() (io.ReadCloser, error)
}

// ErrorKind classifies a failed call.
type ErrorKind string

// Kinds of failed calls.
const (
	KindUnknownTool  ErrorKind = "unknown_tool"
	KindValidation   ErrorKind = "validation"
	KindNotFound     ErrorKind = "not_found"
	KindPermission   ErrorKind = "permission_denied"
	KindEditConflict ErrorKind = "edit_conflict"
	KindShellExit    ErrorKind = "shell_exit"
	KindShellTimeout ErrorKind = "shell_timeout"
	KindPanic        ErrorKind = "panic"
	KindCanceled     ErrorKind = "canceled"
	KindEnvironment  ErrorKind = "environment"
	KindOther        ErrorKind = "error"
)

// Error is a failed call. Message is for the model.
type Error struct {
	Kind    ErrorKind
	Message string
	// ExitCode is that of a command that ended; nil otherwise.
	ExitCode *int
	Err      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Outcome is a finished call.
type Outcome struct {
	Call llm.ToolCall
	// Steps are those that the call went through, in their order.
	Steps []event.ToolStep
	// Result is the result for the model.
	Result llm.ToolResult
	// Output is everything the call produced.
	Output event.Output
	// Truncated reports that Result shows less than Output.
	Truncated bool
	Changes   []event.FileChange
	Exit      *Exit
	Question  string
	// Err is set if and only if Result.IsError.
	Err *Error
	// Failure and Resolved are for the session that made the call, as in event.ToolCallEnd.
	Failure  *event.Failure
	Resolved []string
	Started  time.Time
	Duration time.Duration
}
