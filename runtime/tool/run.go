package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
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
	// MaxProcesses is env.Command.MaxProcesses of commands; zero means no limit.
	MaxProcesses int
	// Limits override the limits of tools by name. A zero field keeps the tool's own value; negative
	// Lines remove the limit of lines.
	Limits map[string]Limit
	// Cache keeps results of tools that read; nil keeps none.
	Cache *Cache
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

// Run runs one call: look up, validate, ask for permission, take the result from the cache or keep
// a backup and execute, check the result, truncate it. It always returns an outcome whose Result
// answers the call; every failure is an error result. If ctx ends, Run still waits for the tool, so
// that nothing of the call runs after Run has returned.
func (r *Registry) Run(ctx context.Context, s Scope, c llm.ToolCall) Outcome {
	started := time.Now()
	o := Outcome{Call: c, Started: started, Steps: []event.ToolStep{event.StepLookUp}}
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
	limit = limit.over(s.Limits[c.Name])
	rec := newRecorder(c.ID, limit, mode, s.Spool, s.Redactor, s.OnOutput)
	x := execution{entry: e, scope: s, call: c, limit: limit, out: rec}
	result, failure := Result{}, (*Error)(nil)
	if known {
		var args json.RawMessage
		if args, failure = x.prepare(ctx); failure == nil && x.earlier == nil {
			result, failure = x.execute(ctx, args)
			if failure == nil {
				failure = e.checkResult(result)
			}
		}
		o.Steps = append(o.Steps, x.steps...)
	} else {
		names := cmp.Or(strings.Join(r.Names(), ", "), "none")
		failure = errorf(KindUnknownTool, "unknown tool %s (available tools: %s)", shown(c.Name), names)
	}
	if x.earlier != nil {
		o.Result, o.Output, o.Truncated = x.earlier.Result, x.earlier.Output, x.earlier.Truncated
		o.Result.CallID = c.ID
		o.Duration = time.Since(started)
		return o
	}
	trailer := result.Text
	switch {
	case failure != nil:
		trailer = strings.TrimPrefix(trailer+"\n"+failure.Message, "\n")
	case result.IsError:
		failure = &Error{Kind: KindOther, Message: result.Text}
	}
	o.Steps = append(o.Steps, event.StepCheck)
	var text string
	o.Output, text, o.Truncated = rec.finish(s.Redactor.Text(trailer), s.Outputs != nil)
	if o.Truncated {
		o.Steps = append(o.Steps, event.StepTruncate)
	}
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
	if failure == nil && x.keep != nil {
		x.keep(o)
	}
	return o
}

// checkResult returns the failure of a result that does not fit the schema of results.
func (e entry) checkResult(r Result) *Error {
	if e.output == nil || r.IsError {
		return nil
	}
	doc, err := decode([]byte(r.Text))
	if err != nil {
		return errorf(KindOther, "the result of %s %w", e.tool.Name, err)
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return errorf(KindOther, "the result of %s is no JSON object", e.tool.Name)
	}
	if err := e.output.validate(object); err != nil {
		return errorf(KindOther, "the result of %s does not fit its schema:\n%w", e.tool.Name, err)
	}
	return nil
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

// execution is the part of a call between the look-up and its result.
type execution struct {
	entry
	scope Scope
	call  llm.ToolCall
	limit Limit
	out   *recorder

	steps []event.ToolStep
	// earlier is the outcome of an equal call, if that was found; else keep, unless it is nil, gets
	// the outcome of this one.
	earlier *Outcome
	keep    func(Outcome)
}

// prepare validates the arguments, asks for permission, and looks for an earlier outcome.
func (x *execution) prepare(ctx context.Context) (args json.RawMessage, failure *Error) {
	defer x.recovered(ctx, &failure)
	s := x.scope
	x.step(event.StepValidate)
	args, failure = parseArguments(x.tool, x.schema, x.call.Arguments)
	if failure != nil {
		return nil, failure
	}
	if x.tool.NeedsEnv && s.Env == nil {
		return nil, errorf(KindEnvironment, "the tool %s needs an environment, which this session "+
			"does not have", x.call.Name)
	}
	if ctx.Err() != nil {
		return nil, errorf(KindCanceled, "the call was not started: %w", context.Cause(ctx))
	}
	if s.Permit != nil {
		x.step(event.StepPermission)
		if err := s.Permit(ctx, x.tool, args); err != nil {
			return nil, classify(ctx, err)
		}
	}
	if x.tool.cached() {
		if x.earlier, x.keep = s.Cache.get(x.tool, args, x.limit); x.earlier != nil {
			x.step(event.StepCache)
		}
	}
	return args, nil
}

// recovered, deferred, turns a panic into a failure.
func (x *execution) recovered(ctx context.Context, failure **Error) {
	if p := recover(); p != nil {
		text := x.scope.Redactor.Text(fmt.Sprint(p))
		x.scope.logger().ErrorContext(ctx, "panic in a tool", "tool", x.call.Name, "call", x.call.ID,
			"panic", text, "stack", string(debug.Stack()))
		*failure = errorf(KindPanic, "the tool %s panicked (%s); its work may be half done",
			x.call.Name, cutRunes(text, 200))
	}
}

// step records a step.
func (x *execution) step(s event.ToolStep) { x.steps = append(x.steps, s) }

// retryPauses are the pauses before a tool runs again.
var retryPauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// again reports whether a tool that failed may run again, and waits before. A tool that only reads
// may after a failure of the environment, and one that changes one file while another process is
// in the way, since it has changed nothing then. No command runs again, and no tool with output.
func (x *execution) again(
	ctx context.Context, args json.RawMessage, e *Error, try int,
) bool {
	gone := errors.Is(e.Err, env.ErrGone) || errors.Is(e.Err, fs.ErrClosed)
	busy := errors.Is(e.Err, env.ErrBusy)
	switch {
	case try == len(retryPauses), x.tool.Class == policy.ClassShell, gone, x.out.written() > 0:
		return false
	case busy && !x.tool.ReadOnly && len(x.tool.Requests(args)) != 1: // a part may be done
		return false
	case !busy && (!x.tool.cached() || e.Kind != KindEnvironment):
		return false
	}
	pause := time.NewTimer(retryPauses[try])
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// execute runs the tool with validated arguments.
func (x *execution) execute(
	ctx context.Context, args json.RawMessage,
) (result Result, failure *Error) {
	defer x.recovered(ctx, &failure)
	s := x.scope
	if !x.tool.cached() && !x.tool.Waits {
		defer s.Cache.Changing()()
	}
	if s.Starting != nil {
		if err := s.Starting(); err != nil {
			return Result{}, classify(ctx, err)
		}
	}
	call := &Call{
		ID: x.call.ID, Name: x.call.Name, Args: args, Env: s.Env, Out: x.out, Outputs: s.Outputs,
		Redactor:       s.Redactor,
		DefaultTimeout: cmp.Or(max(s.DefaultTimeout, 0), DefaultTimeout),
		MaxTimeout:     cmp.Or(max(s.MaxTimeout, 0), MaxTimeout),
		MaxProcesses:   s.MaxProcesses,
	}
	defer func() { x.step(event.StepExecute) }()
	if s.Backups != nil && s.Env != nil && !x.tool.ReadOnly {
		kept := newBackupEnv(s.Env, s.Backups)
		call.Env = kept
		defer func() {
			if kept.addTo(result.Changes) {
				x.step(event.StepBackup)
			}
		}()
	}
	var done func(context.Context)
	call.Env, done = s.Reads.over(call.Env, x.tool, args)
	for try := 0; ; try++ {
		var err error
		failure = nil
		if result, err = x.tool.Run(ctx, call); err == nil {
			break
		}
		failure = classify(ctx, err)
		if len(result.Changes) > 0 || !x.again(ctx, args, failure, try) {
			break
		}
		x.step(event.StepRetry)
	}
	if failure == nil || failure.Kind == KindShellExit {
		done(ctx)
	}
	return result, failure
}
