package tool

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const (
	// DefaultTimeout is how long a command may take if neither the call nor the session says.
	DefaultTimeout = 10 * time.Second
	// MaxTimeout is how long a command may take at most if the session does not say.
	MaxTimeout = 10 * time.Minute
)

// Scope is what a call runs in. The zero value is usable: without an environment, tools that need
// one give an error result.
type Scope struct {
	Env env.Environment
	// Spool keeps outputs of more than event.InlineLimit bytes. Without one, only their beginning and
	// end reach the model and the rest is lost, which the result says.
	Spool Spool
	// Backups keeps what files held before a tool wrote or removed them; nil keeps nothing.
	Backups Backups
	// Outputs finds whole outputs of earlier calls; see Call.Outputs. Without it the model is not told
	// of them.
	Outputs func(id string) (io.ReadCloser, error)
	// OutputID is the name under which this call's output is kept, in the spool and for Outputs; empty
	// means the call's ID. It should be unique in the session, which the ID of a call need not be.
	OutputID string
	// DefaultTimeout and MaxTimeout are for commands; zero means the constants of these names.
	DefaultTimeout, MaxTimeout time.Duration
	// Limits replace the limits of tools by name. A field that is zero keeps the tool's own value;
	// negative Lines lift the limit of lines.
	Limits map[string]Limit
	// OnOutput receives what a tool writes to Call.Out, while it runs, as it is: not sanitized. It
	// must not keep the slice. The tool waits for it. Calls of it do not overlap.
	OnOutput func([]byte)
	// Clock tells when the call began; nil means the system's. How long it took is measured on one
	// that never jumps.
	Clock interface{ Now() time.Time }
	// Logger is told of panics in tools, with the stack, and of outputs that could not be kept; nil
	// discards it.
	Logger *slog.Logger
}

func (s Scope) now() time.Time {
	if s.Clock == nil {
		return time.Now()
	}
	return s.Clock.Now()
}

func (s Scope) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger
}

// Run runs one call: look up, validate, execute, cut, record. It always returns an outcome whose
// Result answers the call; whatever goes wrong is an error result. If ctx ends, Run still waits for
// the tool, so that nothing it started goes on behind its back.
func (r *Registry) Run(ctx context.Context, s Scope, c llm.ToolCall) Outcome {
	o := Outcome{Call: c, Started: s.now()}
	began := time.Now()
	limit := Limit{}
	mode := cleanFile
	e, known := r.get(c.Name)
	if known {
		limit = e.tool.Limit
		if e.tool.Terminal {
			mode = cleanText
		}
	}
	id := s.OutputID
	if id == "" {
		id = c.ID
	}
	rec := newRecorder(id, limit.over(s.Limits[c.Name]), mode, s.Spool, s.OnOutput)
	var result Result
	var failure *Error
	if known {
		result, failure = e.execute(ctx, s, c, rec)
	} else {
		failure = r.unknown(c.Name)
	}
	trailer := result.Text
	switch {
	case failure != nil:
		trailer = strings.TrimPrefix(trailer+"\n"+failure.Message, "\n")
	case result.IsError:
		failure = &Error{Kind: KindOther, Message: result.Text}
	}
	var text string
	o.Output, text, o.Truncated = rec.finish(trailer, s.Outputs != nil)
	if rec.lost != nil {
		s.logger().WarnContext(ctx, "the full output of a tool call was not kept", "tool", c.Name, "call",
			c.ID, "error", rec.lost)
	}
	o.Result = llm.ToolResult{
		CallID: c.ID, Name: c.Name, Parts: parts(text, result.Images),
		IsError: failure != nil,
	}
	o.Changes, o.Err = result.Changes, failure
	if failure == nil {
		o.Exit, o.Question = result.Exit, result.Question
	}
	o.Duration = time.Since(began)
	return o
}

// parts makes the parts of a result; there is always one, because providers refuse an empty result.
func parts(text string, images []llm.Image) []llm.Part {
	if text == "" && len(images) == 0 {
		text = "[no output]"
	}
	var parts []llm.Part
	if text != "" {
		parts = append(parts, llm.Text(text))
	}
	for i := range images {
		parts = append(parts, llm.Part{Kind: llm.PartImage, Image: &images[i]})
	}
	return parts
}

func (r *Registry) unknown(name string) *Error {
	names := r.Names()
	if len(names) == 0 {
		return errorf(KindUnknownTool, "there is no tool %s; there are no tools", shown(name))
	}
	return errorf(KindUnknownTool, "there is no tool %s; the tools are %s", shown(name),
		strings.Join(names, ", "))
}

// execute validates the arguments and runs the tool. A panic in either is an error like any other.
func (e entry) execute(
	ctx context.Context, s Scope, c llm.ToolCall, out io.Writer,
) (result Result, failure *Error) {
	defer func() {
		if p := recover(); p != nil {
			s.logger().ErrorContext(ctx, "panic in a tool", "tool", c.Name, "call", c.ID, "panic", p,
				"stack", string(debug.Stack()))
			text := cutRunes(fmt.Sprint(p), 200)
			result, failure = Result{}, errorf(KindPanic,
				"the tool %s broke down (%s); what it had begun may be half done", c.Name, text)
		}
	}()
	args, failure := parseArguments(e.tool, e.schema, c.Arguments)
	if failure != nil {
		return Result{}, failure
	}
	if e.tool.NeedsEnv && s.Env == nil {
		return Result{}, errorf(KindEnvironment, "the tool %s needs an environment, and this session "+
			"has none", c.Name)
	}
	if ctx.Err() != nil {
		return Result{}, errorf(KindCanceled, "the call was not started: %w", context.Cause(ctx))
	}
	call := &Call{
		ID: c.ID, Name: c.Name, Args: args, Env: s.Env, Out: out, Outputs: s.Outputs,
		DefaultTimeout: s.DefaultTimeout, MaxTimeout: s.MaxTimeout,
	}
	if call.MaxTimeout <= 0 {
		call.MaxTimeout = MaxTimeout
	}
	if call.DefaultTimeout <= 0 {
		call.DefaultTimeout = DefaultTimeout
	}
	if s.Backups != nil && s.Env != nil && !e.tool.ReadOnly {
		kept := newBackupEnv(s.Env, s.Backups)
		call.Env = kept
		defer func() { kept.note(result.Changes) }()
	}
	result, err := e.tool.Run(ctx, call)
	if err != nil {
		return result, classify(ctx, err)
	}
	return result, nil
}
