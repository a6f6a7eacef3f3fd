package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// waiting is an answer with a call that waits for an approval. Calls of it without a result run, or
// get one, at the start of the next run.
type waiting struct {
	asked session.ApprovalAsked
	calls []session.OpenCall
}

func newWaiting(asked session.ApprovalAsked, calls []call, outcomes []tool.Outcome) *waiting {
	w := &waiting{asked: asked}
	for i, c := range calls {
		open := session.OpenCall{
			ToolCall: c.ToolCall, RunID: c.runID, ModelCall: c.modelCall, Position: c.position,
		}
		if outcomes[i].Result.CallID != "" {
			open.Result = &outcomes[i].Result
		}
		w.calls = append(w.calls, open)
	}
	return w
}

// openCalls returns the calls for another round.
func (w *waiting) openCalls() []call {
	calls := make([]call, len(w.calls))
	for i, c := range w.calls {
		calls[i] = call{
			ToolCall: c.ToolCall, arguments: c.Arguments, position: c.Position, original: c.ID,
			runID: c.RunID, modelCall: c.ModelCall, result: c.Result,
		}
	}
	return calls
}

// validateReply returns an error for an input with a Reply that cannot decide about a call.
func (s *Session) validateReply(in Input) error {
	s.mu.Lock()
	busy := s.state == SessionProcessing
	s.mu.Unlock()
	if busy {
		return fmt.Errorf("agent: %w", ErrBusy)
	}
	known := []Verdict{ApproveOnce, ApproveAlways, Refuse}
	w := s.history.waiting
	switch {
	case w == nil:
		return fmt.Errorf("agent: %w: no call waits for an approval", ErrConfig)
	case in.Text != "" || len(in.Parts) > 0:
		return fmt.Errorf("agent: %w: an input with a reply has no text", ErrConfig)
	case !slices.Contains(known, in.Reply.Verdict):
		return fmt.Errorf("agent: %w: the verdict %q is not one of %q", ErrConfig, in.Reply.Verdict,
			known)
	case in.Reply.Verdict == Refuse:
		return nil
	}
	if end := w.asked.Expires; !end.IsZero() && s.cfg.Clock.Now().After(end) {
		return fmt.Errorf("agent: %w: %w, which was at %s", ErrConfig, ErrExpired,
			end.Format(time.DateTime))
	}
	return nil
}

// dismiss gives the calls that wait results that say that they did not run.
func (l *loop) dismiss() error {
	w := l.history.waiting
	if w == nil {
		return nil
	}
	turn, err := answerCalls(l.store, l.clock, w.calls, func(c session.OpenCall) string {
		return unapprovedText(c.ID == w.asked.CallID)
	})
	if err != nil {
		return err
	}
	l.history.waiting = nil
	l.history.add(turn)
	return nil
}

// repliesTo reports whether the input of the run decides about a call.
func (l *loop) repliesTo(c call) bool {
	w := l.history.waiting
	return l.in.Reply != nil && w != nil && w.asked.CallID == c.ID
}

// cannotWait returns the reason why a call cannot wait for an approval; empty if it can.
func (l *loop) cannotWait(c call) string {
	switch {
	case l.agentID != "":
		return "a call of a sub-agent cannot wait for an approval"
	case c.arguments != c.Arguments:
		return "the call cannot wait for an approval, since the secret in its arguments is not stored"
	}
	return ""
}

// postpone makes a call wait for an approval, durably.
func (l *loop) postpone(
	ctx context.Context, t tool.Tool, a Approval, until time.Time, parts []event.PermissionPart,
) error {
	asked := session.ApprovalAsked{
		PermissionAsked: event.PermissionAsked{CallID: a.CallID, Tool: a.Tool, Parts: parts},
		Files:           l.fileStates(ctx, t, a.Arguments), Expires: until,
	}
	err := l.store.Append(session.TypeApprovalAsked, asked)
	if err == nil {
		err = l.store.Sync()
	}
	if err != nil {
		return err
	}
	l.waits.Store(&asked)
	l.res.Approval = &asked.PermissionAsked
	l.send(event.PermissionReplied{CallID: a.CallID, Answer: string(Postpone), By: byNobody})
	return ErrPostponed
}

// fileStates returns the states of the files that a call names to write or remove them.
func (l *loop) fileStates(
	ctx context.Context, t tool.Tool, args json.RawMessage,
) (states []session.FileState) {
	if t.Class != policy.ClassWrite || l.env == nil || t.Subjects == nil {
		return nil
	}
	for _, name := range t.Subjects(args) {
		states = append(states, session.FileState{Name: name, SHA256: l.hash(ctx, name)})
	}
	return states
}

// hash returns the SHA-256 of a file; empty if it cannot be read.
func (l *loop) hash(ctx context.Context, name string) string {
	f, err := l.env.Open(ctx, name)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkFiles returns an error if a file is not the one that a human has judged. Otherwise the
// session knows the files as read.
func (l *loop) checkFiles(ctx context.Context) error {
	var names []string
	for _, f := range l.history.waiting.asked.Files {
		if l.hash(ctx, f.Name) != f.SHA256 {
			return &tool.Error{Kind: tool.KindEditConflict, Message: outdatedText(f.Name)}
		}
		if f.SHA256 != "" {
			names = append(names, f.Name)
		}
	}
	l.scope.Reads.Add(ctx, l.env, names)
	return nil
}
