package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Approval is a tool call that a human has to approve.
type Approval struct {
	// AgentID is the sub-agent that makes the call; empty for the root agent.
	AgentID string
	// WorkDir is the working directory of that agent; empty without an environment.
	WorkDir string
	CallID  string
	Tool    string
	// Arguments is the JSON object of the call.
	Arguments json.RawMessage
	// Steps are the parts of the call that no rule allows.
	Steps []policy.Step
	// Always are the rules that ApproveAlways adds to the session; nil if rules cannot allow this call
	// without others.
	Always []policy.Rule
}

// Reply is the answer to an Approval.
type Reply struct {
	Verdict Verdict
	// Message is the reason of a refusal, for the model; may be empty.
	Message string
	// Always, if not nil, replaces Approval.Always.
	Always []policy.Rule
	// Until is the time until which a postponed call may be approved; zero means no end.
	Until time.Time
}

// Verdict is the decision of a human about a call.
type Verdict string

// Verdicts.
const (
	ApproveOnce Verdict = "once"
	// ApproveAlways also allows what rules match, until Session.Revoke; never what a rule denies, and
	// commands only in the same working directory.
	ApproveAlways Verdict = "always"
	// Refuse refuses the call, and the calls after it in the same answer of the model do not run.
	Refuse Verdict = "deny"
	// AbortRun ends the run, as Session.Abort does.
	AbortRun Verdict = "abort"
	// Postpone ends the run with status awaiting_human. The call and those after it in the answer
	// wait, in the store too, for the next input: with Input.Reply they run or are refused, otherwise
	// none of them runs. A call with a secret in its arguments, which is not stored, and one of a
	// sub-agent cannot wait, and are refused.
	Postpone Verdict = "later"
)

// Who decided, in event.PermissionReplied.By.
const (
	byHuman  = "human"
	byRule   = "rule"
	byNobody = "nobody"
)

// errRefused is the cause of the error of a refused call.
var errRefused = errors.New("the call was refused")

// permissions are the approvals of a session and its sub-agents.
type permissions struct {
	approve func(context.Context, Approval) (Reply, error)
	timeout time.Duration
	abort   func() // ends the run of the root agent
	// base is the working directory of the root agent; empty without an environment.
	base string

	// asking has a value while a human is asked.
	asking chan struct{}
	mu     sync.Mutex
	// always are the rules that a human has added.
	always []grant
	// refused are the refusals of the current run of the root agent.
	refused []event.Refusal
}

// grant is a rule that a human has added for an agent in a working directory. A command means
// something else elsewhere.
type grant struct {
	policy.Rule

	workDir string
}

// maxRefusals bounds RunResult.Refused.
const maxRefusals = 100

func (p *permissions) addRefusal(r event.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refused) < maxRefusals {
		p.refused = append(p.refused, r)
	}
}

// takeRefusals returns the refusals since the last call of it.
func (p *permissions) takeRefusals() []event.Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.refused
	p.refused = nil
	return list
}

// grants returns the rules that a human has added and that hold for an agent in a working
// directory.
func (p *permissions) grants(workDir string) (list []policy.Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.always {
		if g.Permission != policy.ClassShell || g.workDir == workDir {
			list = append(list, g.Rule)
		}
	}
	return list
}

func (p *permissions) grant(rules []policy.Rule, workDir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rules {
		p.always = append(p.always, grant{r, workDir})
	}
}

// Revoke withdraws what ApproveAlways has allowed in the session and its sub-agents.
func (s *Session) Revoke() {
	s.permissions.mu.Lock()
	defer s.permissions.mu.Unlock()
	s.permissions.always = nil
}

// decide decides a call with validated arguments. The strictest decision about a subject counts.
func (l *loop) decide(
	rules *policy.Policy, t tool.Tool, c call, args json.RawMessage,
) policy.Decision {
	all := policy.Decision{Action: policy.Allow}
	decide := func(r policy.Request) {
		d := rules.Decide(r).Grant(l.permissions.grants(r.WorkDir))
		all.Action = policy.Stricter(all.Action, d.Action)
		all.Steps = append(all.Steps, d.Steps...)
	}
	for _, r := range t.Requests(args) {
		if l.env != nil {
			info := l.env.Info()
			r.WorkDir, r.Base = info.WorkDir, l.permissions.base
			if len(info.Shell) > 0 {
				r = r.WithShell(info.Shell[0])
			}
		}
		decide(r)
	}
	if c.repeats {
		decide(policy.Request{Class: policy.ClassRepeat, Subject: t.Name})
	}
	return all
}

// repeated is the number of equal calls in a row from which on ClassRepeat decides, too.
const repeated = 3

// markRepeats marks the calls of an answer that repeat those before them.
func (l *loop) markRepeats(calls []call) {
	h := l.history
	for i := range calls {
		if t, ok := l.tools.Get(calls[i].Name); ok && t.Waits {
			continue
		}
		calls[i].repeats = h.count(calls[i].ToolCall) >= repeated
	}
}

// markOpen marks the calls at the end of a counted answer that repeat those before them.
func (h *history) markOpen(calls []call) {
	n := h.equal
	for i := len(calls) - 1; i >= 0 && sign(calls[i].ToolCall) == h.last; i-- {
		calls[i].repeats = n >= repeated
		n--
	}
}

// count returns the number of calls in a row that equal c, with it.
func (h *history) count(c llm.ToolCall) int {
	if s := sign(c); s == h.last {
		h.equal++
	} else {
		h.last, h.equal = s, 1
	}
	return h.equal
}

// permit returns an error for a call that must not run, after it has asked a human if the rules say
// so.
func (l *loop) permit(ctx context.Context, t tool.Tool, c call, args json.RawMessage) error {
	p := l.permissions
	rules := l.mode.rulesOr(l.rules)
	replied := l.repliesTo(c)
	if rules == nil && !replied {
		return nil
	}
	d := policy.Decision{Action: policy.Allow}
	if rules != nil {
		d = l.decide(rules, t, c, args)
	}
	if d.Action == policy.Ask {
		select {
		case p.asking <- struct{}{}:
			defer func() { <-p.asking }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		d = l.decide(rules, t, c, args) // with the grants made meanwhile
	}
	switch {
	case d.Action == policy.Deny:
		return l.refuseCall(t, c, d.Steps, byRule, "")
	case replied: // the decision of the human counts, also if no rule asks any more
	case d.Action == policy.Allow:
		return nil
	case l.waits.Load() != nil:
		return ErrPostponed
	case l.refused.Load():
		return &tool.Error{Kind: tool.KindCanceled, Message: notRunText(skipRefused)}
	}
	l.send(event.PermissionAsked{CallID: c.ID, Tool: t.Name, Parts: l.parts(d.Steps)})
	if p.approve == nil && !replied {
		return l.refuseCall(t, c, d.Steps, byNobody, "")
	}
	l.step(SignalApproval)
	return l.getApproval(ctx, t, c, args, d.Steps)
}

// refuseCall records the refusal of a call with those steps, and returns its error.
func (l *loop) refuseCall(
	t tool.Tool, c call, steps []policy.Step, by, message string,
) error {
	message = l.scope.Redactor.Text(message)
	l.send(event.PermissionReplied{CallID: c.ID, Answer: string(Refuse), By: by, Message: message})
	l.permissions.addRefusal(event.Refusal{
		AgentID: l.agentID, CallID: c.ID, Tool: t.Name, By: by, Message: message,
		Parts: l.parts(steps),
	})
	return &tool.Error{
		Kind: tool.KindPermission, Message: refusedText(by, message, steps), Err: errRefused,
	}
}

// getApproval returns an error unless a human approves a call with those steps.
func (l *loop) getApproval(
	ctx context.Context, t tool.Tool, c call, args json.RawMessage, steps []policy.Step,
) error {
	p := l.permissions
	refuse := func(by, message string) error {
		l.refused.Store(true) // until the results of this answer are recorded
		return l.refuseCall(t, c, steps, by, message)
	}
	a := Approval{
		AgentID: l.agentID, CallID: c.ID, Tool: t.Name, Arguments: args, Steps: asked(steps),
		Always: policy.Exactly(steps),
	}
	if l.env != nil {
		a.WorkDir = l.env.Info().WorkDir
	}
	var reply Reply
	var err error
	replied := l.repliesTo(c)
	if replied {
		reply = *l.in.Reply
	} else {
		reply, err = p.ask(ctx, l.log, a)
	}
	switch {
	case ctx.Err() == nil && err == nil && reply.Verdict == AbortRun:
		l.send(event.PermissionReplied{CallID: c.ID, Answer: string(AbortRun), By: byHuman})
		p.abort()
		<-ctx.Done()
		return context.Cause(ctx)
	case ctx.Err() != nil:
		l.send(event.PermissionReplied{CallID: c.ID, Answer: string(AbortRun), By: byNobody})
		return context.Cause(ctx)
	case err != nil:
		return refuse(byNobody, err.Error())
	case reply.Verdict == Postpone:
		if reason := l.cannotWait(c); reason != "" {
			return refuse(byNobody, reason)
		}
		return l.postpone(ctx, t, a, reply.Until, l.parts(steps))
	case reply.Verdict == ApproveAlways:
		if reply.Always == nil {
			reply.Always = a.Always
		}
		workDir := ""
		if l.env != nil {
			workDir = l.env.Info().WorkDir
		}
		p.grant(reply.Always, workDir)
	case reply.Verdict != ApproveOnce:
		return refuse(byHuman, reply.Message)
	}
	l.step(SignalApproved)
	l.send(event.PermissionReplied{CallID: c.ID, Answer: string(reply.Verdict), By: byHuman})
	if replied {
		return l.checkFiles(ctx)
	}
	return nil
}

// ask gets the decision of a human in time: one that comes later does not count.
func (p *permissions) ask(ctx context.Context, log *slog.Logger, a Approval) (Reply, error) {
	if p.timeout <= 0 {
		return p.approve(ctx, a)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("nobody answered within %s",
		p.timeout))
	defer cancel()
	type answer struct {
		reply Reply
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		var got answer
		got.err = catchPanic(log, func() (err error) {
			got.reply, err = p.approve(ctx, a)
			return err
		})
		answered <- got
	}()
	select {
	case got := <-answered:
		if ctx.Err() == nil {
			return got.reply, got.err
		}
	case <-ctx.Done():
		select {
		case <-answered: // what the question printed is complete
		case <-time.After(time.Second):
		}
	}
	return Reply{}, context.Cause(ctx)
}

// asked returns the steps that are not allowed.
func asked(steps []policy.Step) []policy.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s policy.Step) bool {
		return s.Action == policy.Allow
	})
}

// parts returns the steps that are not allowed, for events, without secrets.
func (l *loop) parts(steps []policy.Step) []event.PermissionPart {
	list := []event.PermissionPart{}
	for _, s := range asked(steps) {
		p := event.PermissionPart{
			Permission: s.Permission, Subject: l.scope.Redactor.Text(s.Subject),
			Decision: string(s.Action), Reason: l.scope.Redactor.Text(s.Reason),
		}
		if s.Rule != nil {
			p.Rule, p.Source = s.Rule.String(), s.Rule.Source
		}
		list = append(list, p)
	}
	return list
}

// refusedText is the result of a call that was refused.
func refusedText(by, message string, steps []policy.Step) string {
	var b strings.Builder
	switch by {
	case byHuman:
		b.WriteString("The user refused this call; it was not run.")
	case byNobody:
		b.WriteString("This call needs the approval of the user, who cannot be asked; it was not run.")
	default:
		b.WriteString("A rule of the user denies this call; it was not run.")
	}
	if message != "" {
		fmt.Fprintf(&b, " The reason: %s", message)
	}
	if by != byHuman {
		for _, s := range asked(steps) {
			fmt.Fprintf(&b, "\n- %s %s: %s", s.Permission, s.Subject, s.Action)
			if s.Rule != nil {
				fmt.Fprintf(&b, ", by the rule %q", s.Rule.String())
			}
			if s.Reason != "" {
				fmt.Fprintf(&b, " (%s)", s.Reason)
			}
		}
	}
	b.WriteString("\nDo not look for a way around it. Do what is allowed, and report what is missing.")
	return b.String()
}
