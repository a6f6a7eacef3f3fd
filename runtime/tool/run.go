package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const (
	// DefaultTimeout is the timeout of a command if neither the call nor the session sets one.
	DefaultTimeout = 10 * time.Second
	// MaxTimeout bounds the timeout of a command if the session does not.
	MaxTimeout = 10 * time.Minute
)

// Scope holds what a session provides to a call. The zero value is usable: without an environment,
// tools that need one return an error result.
type Scope struct {
	Env env.Environment
	// Spool stores outputs of more than event.InlineLimit bytes. Without one, only their start and end
	// reach the model, the rest is lost, and the result reports it.
	Spool Spool
	// Backups keeps the content of files before a tool writes or removes them; nil keeps nothing.
	Backups Backups
	// Reads, if set, makes tools fail to change files that the session has not read.
	Reads *Reads
	// Outputs opens the whole outputs of earlier calls; see Call.Outputs. Without it, results do not
	// mention them.
	Outputs func(id string) (io.ReadCloser, error)
	// DefaultTimeout and MaxTimeout bound commands; zero means the constants of these names.
	DefaultTimeout, MaxTimeout time.Duration
	// Limits override the limits of tools by name. A zero field keeps the tool's own value; negative
	// Lines remove the limit of lines.
	Limits map[string]Limit
	// Redactor replaces secrets in outputs, errors and panics; nil replaces none.
	Redactor *redact.Redactor
	// Permit, if set, gets each call with validated arguments; its error keeps the tool from running,
	// and is the result. Starting, if set, is called right before a tool runs, with the same effect.
	Permit   func(ctx context.Context, t Tool, args json.RawMessage) error
	Starting func() error
	// OnOutput receives the output of a tool while it runs, not sanitized. It must not keep the slice.
	// The tool waits for it. Calls of it do not overlap.
	OnOutput func([]byte)
	// Clock gives Outcome.Started; nil means the system's clock. Outcome.Duration is measured with a
	// monotonic clock.
	Clock interface{ Now() time.Time }
	// Logger receives panics in tools, with the stack, and failures to store outputs; nil discards
	// them.
	Logger *slog.Logger
}

func (s Scope) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger
}

// Run runs one call: look up, validate, ask for permission, execute, truncate, record. It always
// returns an outcome whose Result answers the call; every failure is an error result. If ctx ends,
// Run still waits for the tool, so that nothing of the call runs after Run has returned.
func (r *Registry) Run(ctx context.Context, s Scope, c llm.ToolCall) Outcome {
	started := time.Now()
	o := Outcome{Call: c, Started: started}
	if s.Clock != nil {
		o.Started = s.Clock.Now()
	}
	limit := Limit{}
	mode := cleanFile
	e, known := r.get(c.Name)
	if known {
		limit = e.tool.Limit
		if e.tool.Terminal {
			mode = cleanText
		}
	}
	rec := newRecorder(c.ID, limit.over(s.Limits[c.Name]), mode, s.Spool, s.Redactor, s.OnOutput)
	result, failure := Result{}, (*Error)(nil)
	if known {
		result, failure = e.execute(ctx, s, c, rec)
	} else {
		names := cmp.Or(strings.Join(r.Names(), ", "), "none")
		failure = errorf(KindUnknownTool, "unknown tool %s (available tools: %s)", shown(c.Name), names)
	}
	trailer := result.Text
	switch {
	case failure != nil:
		trailer = strings.TrimPrefix(trailer+"\n"+failure.Message, "\n")
	case result.IsError:
		failure = &Error{Kind: KindOther, Message: result.Text}
	}
	var text string
	o.Output, text, o.Truncated = rec.finish(s.Redactor.Text(trailer), s.Outputs != nil)
	if rec.lost != nil {
		s.logger().WarnContext(ctx, "the full output of a tool call was not kept",
			"tool", c.Name, "call", c.ID, "error", rec.lost)
	}
	o.Result = llm.ToolResult{
		CallID: c.ID, Name: c.Name, Parts: parts(text, result.Images),
		IsError: failure != nil,
	}
	o.Changes, o.Err = result.Changes, failure
	if failure == nil {
		o.Exit, o.Question = result.Exit, result.Question
	}
	o.Duration = time.Since(started)
	return o
}

// parts returns the parts of a result, at least one, because providers reject an empty result.
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

// execute validates the arguments and runs the tool. It turns a panic in either into an error.
func (e entry) execute(
	ctx context.Context, s Scope, c llm.ToolCall, out io.Writer,
) (result Result, failure *Error) {
	defer func() {
		if p := recover(); p != nil {
			text := s.Redactor.Text(fmt.Sprint(p))
			s.logger().ErrorContext(ctx, "panic in a tool", "tool", c.Name, "call", c.ID, "panic", text,
				"stack", string(debug.Stack()))
			text = cutRunes(text, 200)
			result, failure = Result{}, errorf(KindPanic,
				"the tool %s panicked (%s); its work may be half done", c.Name, text)
		}
	}()
	args, failure := parseArguments(e.tool, e.schema, c.Arguments)
	if failure != nil {
		return Result{}, failure
	}
	if e.tool.NeedsEnv && s.Env == nil {
		return Result{}, errorf(KindEnvironment, "the tool %s needs an environment, which this session "+
			"does not have", c.Name)
	}
	if ctx.Err() != nil {
		return Result{}, errorf(KindCanceled, "the call was not started: %w", context.Cause(ctx))
	}
	if s.Permit != nil {
		if err := s.Permit(ctx, e.tool, args); err != nil {
			return Result{}, classify(ctx, err)
		}
	}
	if s.Starting != nil {
		if err := s.Starting(); err != nil {
			return Result{}, classify(ctx, err)
		}
	}
	call := &Call{
		ID: c.ID, Name: c.Name, Args: args, Env: s.Env, Out: out, Outputs: s.Outputs,
		Redactor:       s.Redactor,
		DefaultTimeout: cmp.Or(max(s.DefaultTimeout, 0), DefaultTimeout),
		MaxTimeout:     cmp.Or(max(s.MaxTimeout, 0), MaxTimeout),
	}
	if s.Backups != nil && s.Env != nil && !e.tool.ReadOnly {
		kept := newBackupEnv(s.Env, s.Backups)
		call.Env = kept
		defer func() { kept.addTo(result.Changes) }()
	}
	var done func(context.Context)
	call.Env, done = s.Reads.over(call.Env, e.tool, args)
	result, err := e.tool.Run(ctx, call)
	if err != nil {
		failure = classify(ctx, err)
	}
	if failure == nil || failure.Kind == KindShellExit {
		done(ctx)
	}
	return result, failure
}
