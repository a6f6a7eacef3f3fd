package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// ContextManager decides how a conversation gets shorter. The loop carries its decisions out and
// records them in the journal, so that a resumed session has the same conversation. All sessions of
// an agent and their sub-agents share it, so implementations are safe for
// concurrent use.
type ContextManager interface {
	// Shorten returns a change of c, a conversation before its next request; the zero value changes
	// nothing. After a decision that only prunes it is called once more. An error, or an invalid
	// decision, ends the run with status internal_error. Shorten may take its time, such as for a
	// human, and returns when ctx ends.
	Shorten(ctx context.Context, c Conversation) (Shortening, error)
}

// Conversation is a conversation for a ContextManager, which changes nothing in it.
type Conversation struct {
	SessionID string
	// Turns are those of the next request, the newest last. Pruned has the IDs of the calls whose
	// outputs were removed, which Turns still has.
	Turns  []session.Turn
	Pruned map[string]bool
	// Tokens estimates the next request, and Limit is what leaves room for its answer; zero if the
	// context of the model is not known.
	Tokens, Limit int64
	// Refused means that the model's server has just refused the request as too long; Limit is half of
	// its tokens then. If nothing gets shorter, the run ends.
	Refused bool
}

// Shortening is a change of a conversation.
type Shortening struct {
	// Prune lists calls whose outputs are removed; a short text tells the model.
	Prune []string
	// Replace is the number of turns at the start that Text replaces. The next turn must be of kind
	// user or assistant, so that calls keep their results. The model sees Text as a summary, with the
	// words of the user, the names of files and the open failures. An empty Text lets
	// the model write the summary, which must make the conversation shorter.
	Replace int
	Text    string
}

// validate returns an error for a change of c that cannot be made.
func (s Shortening) validate(c Conversation) error {
	for _, id := range s.Prune {
		has := slices.ContainsFunc(c.Turns, func(t session.Turn) bool {
			return slices.ContainsFunc(t.Results, func(r llm.ToolResult) bool { return r.CallID == id })
		})
		if !has || c.Pruned[id] {
			return fmt.Errorf("the call %q has no output to remove", id)
		}
	}
	switch n := s.Replace; {
	case n == 0 && s.Text != "":
		return errors.New("the text replaces no turns")
	case n == 0:
		return nil
	case n < 0 || n >= len(c.Turns):
		return fmt.Errorf("%d of %d turns cannot be replaced; the last one stays", n, len(c.Turns))
	case !startsRound(c.Turns[n]):
		return fmt.Errorf("the first %d turns cannot be replaced: the next one, of kind %s, belongs to "+
			"them", n, c.Turns[n].Kind)
	}
	return nil
}

// startsRound reports whether t does not belong to the turns before it: results belong to an
// answer, and messages to the results before them.
func startsRound(t session.Turn) bool {
	return t.Kind == session.TurnAssistant || t.Kind == session.TurnUser
}

// whenFull is the ContextManager of agents without another one.
type whenFull struct{}

// Shorten prunes a conversation without room for an answer, if that is worth it, and then replaces
// all but its end by a summary, unless that end is nearly all: then the provider may find room for
// it.
func (whenFull) Shorten(_ context.Context, c Conversation) (Shortening, error) {
	if c.Limit <= 0 || c.Tokens <= c.Limit {
		return Shortening{}, nil
	}
	if ids, tokens := c.prunable(); tokens >= leastPruned {
		return Shortening{Prune: ids}, nil
	}
	n := len(c.Turns) - lastRounds(c.Turns, min(keptTokens, c.Limit/4))
	old := llm.Request{Messages: session.Messages(c.Turns[:n], c.Pruned)}
	if !c.Refused && approxTokens(old) < leastSummarized || n == 0 {
		return Shortening{}, nil
	}
	return Shortening{Replace: n}, nil
}

// Compact replaces all turns of an idle session but the newest rounds by a summary of the model, as
// the loop does when the context is full. The request counts in the limits of the session. The
// error wraps ErrNotShorter, ErrBusy, ErrClosed or that of the model, or names a limit; it leaves
// the conversation as it is. Abort and Close cancel Compact.
func (s *Session) Compact(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	state, err := s.enter(cancel)
	if err != nil {
		return err
	}
	defer func() {
		for _, message := range s.leave(state) { // for the next run
			s.steering.add(message)
		}
	}()
	l := s.newLoop(Input{})
	l.stop, l.next = cancel, s.currentSettings()
	err = catchPanic(s.cfg.Log, func() error { return l.compactNow(ctx) })
	l.settleUnanswered()
	return errors.Join(err, l.failure())
}

// compactNow replaces what it can by a summary.
func (l *loop) compactNow(ctx context.Context) error {
	if l.history.waiting != nil {
		return fmt.Errorf("agent: %w: a call waits for an approval", ErrBusy)
	}
	list := l.history.list()
	before := l.estimate(list)
	n := len(list) - lastRounds(list, min(keptTokens, before/8))
	old := llm.Request{Messages: session.Messages(list[:n], l.history.pruned)}
	// A single turn is the task or the last summary, and stays. A quarter less is the least progress.
	if n < 2 || approxTokens(old) < before/4 {
		return fmt.Errorf("agent: the conversation is short: %w", ErrNotShorter)
	}
	e, over, err := l.compact(ctx, len(list)-n, "")
	switch {
	case err != nil:
		return fmt.Errorf("agent: store the session: %w", err)
	case errors.Is(e.err, ErrNotShorter):
		return fmt.Errorf("agent: the conversation: %w", ErrNotShorter)
	case e.err != nil:
		return e.err
	case over:
		return fmt.Errorf("agent: the limit of %s is reached", l.res.Limit)
	}
	return l.store.Sync()
}
