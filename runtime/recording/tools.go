package recording

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// tools answers calls with the recorded results.
type tools struct {
	calls   map[string]llm.ToolCall
	results map[string]session.ToolResult
	// waited are the calls that waited for an approval.
	waited []string
	// fail receives the differences.
	fail func(error)
}

func (s *Session) newTools(fail func(error)) *tools {
	t := &tools{
		calls: map[string]llm.ToolCall{}, results: map[string]session.ToolResult{}, fail: fail,
		waited: s.Waited,
	}
	for _, x := range s.Exchanges {
		for _, p := range x.Answer.Parts {
			if p.ToolCall != nil {
				t.calls[p.ToolCall.ID] = *p.ToolCall
			}
		}
	}
	for _, r := range s.Results {
		t.results[r.Result.CallID] = r
	}
	return t
}

// execute is an agent.ToolExecutor. It validates the arguments of a call and asks for permission,
// as a run does, but the result is the recorded one. Tools that concern the session or its user
// alone, such as exit, run.
func (t *tools) execute(
	ctx context.Context, registry *tool.Registry, s tool.Scope, c llm.ToolCall,
) tool.Outcome {
	recorded, ok := t.results[c.ID]
	if before := t.calls[c.ID]; !ok || before.Name != c.Name || before.Arguments != c.Arguments {
		return t.differs(c, fmt.Sprintf("the call %s of %s with the arguments %s is not recorded, or "+
			"without a result", c.ID, c.Name, c.Arguments))
	}
	known, _ := registry.Get(c.Name)
	played := known.Class != policy.ClassHuman
	if played {
		known.Run = func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{}, nil
		}
	}
	only, err := tool.NewRegistry(known)
	if err != nil {
		return t.differs(c, err.Error())
	}
	was := wasRefused(recorded)
	if strings.HasPrefix(recorded.Result.Text(), unasked) { // whoever can be asked now
		s.Permit = func(context.Context, tool.Tool, json.RawMessage) error {
			return &tool.Error{Kind: tool.KindPermission, Message: recorded.Result.Text()}
		}
	}
	s.Cache, s.Reads, s.Backups, s.Spool, s.Outputs = nil, nil, nil, nil, nil
	o := only.Run(ctx, s, c)
	if o.Err != nil && errors.Is(o.Err, agent.ErrPostponed) {
		return o
	}
	refused := o.Err != nil && o.Err.Kind == tool.KindPermission
	switch {
	case refused && !was:
		return t.differs(c, fmt.Sprintf("the call %s of %s is refused now; it was not when it was "+
			"recorded: %s", c.ID, c.Name, o.Result.Text()))
	case !refused && was:
		return t.differs(c, fmt.Sprintf("the call %s of %s is allowed now; it was refused when it was "+
			"recorded: %s", c.ID, c.Name, recorded.Result.Text()))
	case played || refused:
		fill(&o, recorded)
	}
	o.Duration = milliseconds(recorded.DurationMS)
	return o
}

// fill makes an outcome the recorded one.
func fill(o *tool.Outcome, r session.ToolResult) {
	text := r.Result.Text()
	o.Result, o.Err = r.Result, nil
	o.Failure, o.Resolved = r.Failure, r.Resolved
	if r.Result.IsError {
		o.Err = &tool.Error{Kind: tool.ErrorKind(r.ErrorKind), Message: text}
	}
	o.Truncated = r.OutputSize > int64(len(text))
	o.Output = event.Output{Size: r.OutputSize, SHA256: r.OutputSHA256}
	if !o.Truncated {
		o.Output = event.InlineOutput([]byte(text))
	}
}

// differs reports a difference, which is the result of the call, too.
func (t *tools) differs(c llm.ToolCall, message string) tool.Outcome {
	t.fail(errors.New(message))
	return tool.Outcome{
		Call: c, Err: &tool.Error{Kind: tool.KindOther, Message: message},
		Result: llm.ToolResult{IsError: true, Parts: []llm.Part{llm.Text(message)}},
	}
}

// unasked is the start of the result of a call that needed an approval which nobody could give; of
// one with a reason, somebody was to be asked.
const unasked = "This call needs the approval of the user, who cannot be asked; it was not run.\n"

// wasRefused reports whether a rule or a human refused a call. Tools have errors of that kind, too.
func wasRefused(r session.ToolResult) bool {
	if tool.ErrorKind(r.ErrorKind) != tool.KindPermission {
		return false
	}
	starts := []string{
		"The user refused this call", "This call needs the approval of the user",
		"A rule of the user denies this call",
	}
	return slices.ContainsFunc(starts, func(start string) bool {
		return strings.HasPrefix(r.Result.Text(), start)
	})
}

// approver returns the function that repeats the recorded approvals and refusals.
func (t *tools) approver() func(context.Context, agent.Approval) (agent.Reply, error) {
	return func(_ context.Context, a agent.Approval) (agent.Reply, error) {
		switch {
		case slices.Contains(t.waited, a.CallID):
			return agent.Reply{Verdict: agent.Postpone}, nil
		case wasRefused(t.results[a.CallID]):
			return agent.Reply{Verdict: agent.Refuse}, nil
		}
		return agent.Reply{Verdict: agent.ApproveOnce}, nil
	}
}
