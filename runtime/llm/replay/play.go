package replay

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Player plays the turns of a script in order, each once. It is safe for concurrent use.
type Player struct {
	script *Script

	mu   sync.Mutex
	next int
}

// NewPlayer returns a Player at the first turn of s.
func NewPlayer(s *Script) *Player { return &Player{script: s} }

// Next returns the turn that answers req. If req does not meet the conditions of the turn, or after
// the last turn, it returns an *llm.Error of llm.KindReplay and does not advance.
func (p *Player) Next(req llm.Request) (Turn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.script
	if p.next >= len(s.Turns) {
		return Turn{}, mismatch("%s: no turn is left after the last of %d for a request with %s",
			s.Name, len(s.Turns), summary(req))
	}
	turn := s.Turns[p.next]
	if miss := turn.Expect.Check(req); miss != "" {
		return Turn{}, mismatch("%s:%d: turn %d %s", s.Name, turn.Line, p.next+1, miss)
	}
	p.next++
	return turn, nil
}

// Remaining returns the number of turns that have not been played.
func (p *Player) Remaining() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.script.Turns) - p.next
}

// modelOf returns the model of the answer to a request for model.
func (s *Script) modelOf(model string) string {
	if s.Model != "" {
		return s.Model
	}
	return model
}

func mismatch(format string, args ...any) *llm.Error {
	return &llm.Error{Kind: llm.KindReplay, Provider: "script", Message: fmt.Sprintf(format, args...)}
}

// summary describes the newest message of a request.
func summary(req llm.Request) string {
	if len(req.Messages) == 0 {
		return "no message"
	}
	m := req.Messages[len(req.Messages)-1]
	text := m.Text()
	for _, p := range m.Parts {
		if p.Kind == llm.PartToolResult && p.ToolResult != nil {
			text = p.ToolResult.Text()
		}
	}
	return fmt.Sprintf("a last message of role %s: %s", m.Role, excerpt(text))
}

// NewScript returns a Client that answers with the turns of s, in order.
func NewScript(s *Script) llm.Client { return &scriptClient{script: s, player: NewPlayer(s)} }

type scriptClient struct {
	script *Script
	player *Player
}

var _ llm.Client = (*scriptClient)(nil)

// Stream implements llm.Client.
func (c *scriptClient) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		turn, err := c.player.Next(req)
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if err := llm.SystemClock().Sleep(ctx, turn.Delay); err != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.KindCanceled, Provider: "script", Err: err})
			return
		}
		for _, d := range turn.deltas(c.script.modelOf(req.Model)) {
			if !yield(d, nil) {
				return
			}
		}
		if turn.Error != nil {
			e := *turn.Error
			yield(llm.Delta{}, &e)
		}
	}
}

// deltas returns the pieces of the answer; without DeltaDone for a turn with an error.
func (t Turn) deltas(model string) []llm.Delta {
	var out []llm.Delta
	for piece := range strings.SplitAfterSeq(t.Reasoning, " ") {
		if piece != "" {
			out = append(out, llm.Delta{Kind: llm.DeltaReasoning, Text: piece})
		}
	}
	for piece := range strings.SplitAfterSeq(t.Text, " ") {
		if piece != "" {
			out = append(out, llm.Delta{Kind: llm.DeltaText, Text: piece})
		}
	}
	for i, call := range t.Calls {
		out = append(out,
			llm.Delta{Kind: llm.DeltaToolCall, Index: i, Call: &llm.ToolCall{ID: call.ID, Name: call.Name}},
			llm.Delta{Kind: llm.DeltaArguments, Index: i, Text: call.Arguments})
	}
	if t.Error == nil {
		done := &llm.Done{
			Finish: t.Finish, Usage: t.Usage, ResponseID: fmt.Sprintf("turn_%d", t.Line),
			Model: model,
		}
		out = append(out, llm.Delta{Kind: llm.DeltaDone, Done: done})
	}
	return out
}
