package tool

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Tool is something a model can call.
type Tool struct {
	// Name, Description and Schema are what the model is told.
	llm.ToolSpec
	// ReadOnly says that a call changes nothing, so that it may run beside others and be repeated.
	ReadOnly bool
	// NeedsEnv says that the tool is not offered without an environment.
	NeedsEnv bool
	// NeedsShell says that the tool is not offered where the environment has no shell.
	NeedsShell bool
	// Waits says that the tool waits for something and is called again and again on purpose, so that
	// repeating it is no loop.
	Waits bool
	// Limit is how much of the output the model sees, unless the session's configuration says
	// otherwise.
	Limit Limit
	// Terminal says that Call.Out receives what was meant for a terminal; the model sees it as
	// [Sanitize] leaves it. All bytes stay in Outcome.Output.
	Terminal bool
	// Aliases are other names that models use for a parameter, with the parameter's own name. They are
	// renamed before the arguments are validated.
	Aliases map[string]string
	// Run executes a call whose arguments have been validated against Schema. An error becomes an
	// error result; its text is for the model. What Run wrote to call.Out comes before the error's
	// text.
	Run func(ctx context.Context, call *Call) (Result, error)
}

// Call is one call as a tool sees it.
type Call struct {
	ID   string
	Name string
	// Args is the JSON object that the model gave, validated.
	Args json.RawMessage
	// Env is where the tool acts; nil for tools that need none.
	Env env.Environment
	// Out receives output while the tool runs. All of it reaches TOOL_CALL_END; the model sees it cut
	// to the limit. Writes never fail for size.
	Out io.Writer
	// DefaultTimeout and MaxTimeout are for commands.
	DefaultTimeout, MaxTimeout time.Duration
	// Outputs finds the whole output of an earlier call by its ID, for names of the form output://ID;
	// nil if there are none. An unknown ID is fs.ErrNotExist.
	Outputs func(id string) (io.ReadCloser, error)
}

// Result is what a call gives besides what it wrote to Call.Out.
type Result struct {
	// Text is appended to what was written to Out.
	Text string
	// Images are shown to the model after the text.
	Images []llm.Image
	// IsError marks the result as a failure although Run returned no error, such as a command's
	// non-zero exit.
	IsError bool
	// Changes lists the files that the tool changed.
	Changes []event.FileChange
	// Exit asks the loop to end the run.
	Exit *Exit
	// Question asks the loop to wait for the user's answer.
	Question string
}

// Exit is how the model ends a run by itself.
type Exit struct {
	// Code is 0 for done, 1 for failed, 2 for "a human is needed", -1 for out of time.
	Code   int
	Reason string
}

// Keep says which part of a long output the model sees.
type Keep string

// Parts that can be kept.
const (
	KeepHead     Keep = "head"
	KeepTail     Keep = "tail"
	KeepHeadTail Keep = "head_tail"
)

// Limit bounds what the model sees of an output. Characters, which are Unicode code points, are cut
// first, lines after.
type Limit struct {
	// Chars is the largest number of characters; zero means the default of 30,000.
	Chars int `json:"chars,omitempty"`
	// Lines is the largest number of lines; zero means no limit.
	Lines int `json:"lines,omitempty"`
	// Keep is the part to keep; empty means head and tail.
	Keep Keep `json:"keep,omitempty"`
}

// Spool keeps outputs that are too long for memory.
type Spool interface {
	// Create makes a file for the output of the call id, which may be any text, since a model's server
	// chose it. The caller closes the file.
	Create(id string) (SpoolFile, error)
}

// SpoolFile is one output being kept.
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
	Err     error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Outcome is a finished call.
type Outcome struct {
	Call llm.ToolCall
	// Result is what the model sees.
	Result llm.ToolResult
	// Output is everything the call produced.
	Output event.Output
	// Truncated says that Result shows less than Output.
	Truncated bool
	Changes   []event.FileChange
	Exit      *Exit
	Question  string
	// Err is set if Result.IsError; it tells the kind of failure.
	Err      *Error
	Started  time.Time
	Duration time.Duration
}
