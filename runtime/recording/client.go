package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// Client answers requests with recorded answers. It is safe for concurrent use.
type Client struct {
	s   *Session
	dir string
	// ended is the kind of the error of a request after the end of a run that was cut.
	ended llm.ErrorKind

	mu    sync.Mutex
	lanes map[string]*lane
	miss  error
}

var _ llm.Client = (*Client)(nil)

// lane is the conversation of one agent.
type lane struct {
	rec *session.Recording
	// next is the index of the next exchange, and asked counts the requests.
	next, asked int
	// run is the first run whose end the conversation has not passed.
	run int
}

// NewClient returns a client for a new session that works in the directory dir, which replaces the
// recorded working directory in answers; empty keeps that.
func (s *Session) NewClient(dir string) *Client {
	c := &Client{s: s, dir: cmp.Or(dir, s.workDir()), ended: llm.KindReplay, lanes: map[string]*lane{}}
	for id, rec := range s.agents {
		c.lanes[id] = &lane{rec: rec}
	}
	return c
}

// Err returns the first miss, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.miss
}

// Remaining returns the number of recorded answers of the root agent that were not played.
func (c *Client) Remaining() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.s.Exchanges) - c.lanes[""].next
}

// fail keeps the first miss.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.miss == nil {
		c.miss = err
	}
}

// begin makes the client expect the requests of a run of the root agent.
func (c *Client) begin(run int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes[""].run = run
}

// Stream implements llm.Client.
func (c *Client) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if ctx.Err() != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.KindCanceled, Err: context.Cause(ctx)})
			return
		}
		answer, err := c.answer(req)
		if err != nil {
			e := &llm.Error{Kind: llm.KindReplay, Provider: "recording", Err: err}
			if errors.Is(err, errCut) {
				e.Kind = c.ended
			}
			yield(llm.Delta{}, e)
			return
		}
		for _, d := range c.deltas(answer) {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// errCut means that a run was cut here when it was recorded, which is no miss.
var errCut = errors.New("the recording of the run ends here")

// answer returns the recorded answer to a request.
func (c *Client) answer(req llm.Request) (session.Turn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := agentSuffix(req.SessionID)
	miss := &MissError{Agent: strings.TrimPrefix(id, "-")}
	l := c.lanes[id]
	if l == nil {
		l = &lane{rec: &session.Recording{Record: &session.Record{}}}
		c.lanes[id] = l
	}
	l.asked++
	if end := l.end(); end != "" {
		l.run++
		l.asked--
		return session.Turn{}, fmt.Errorf("%w: %s", errCut, end)
	}
	if l.next < len(l.rec.Exchanges) {
		x := l.rec.Exchanges[l.next]
		if l.matches(x, req, c) {
			l.next++
			l.run = max(l.run, x.Run)
			return x.Answer, nil
		}
	}
	miss.Number, miss.Recorded = l.asked, len(l.rec.Exchanges)
	c.describe(miss, l, req)
	if c.miss == nil {
		c.miss = miss
	}
	return session.Turn{}, miss
}

// end returns the status of the current run if it was cut, and all its answers are played.
func (l *lane) end() string {
	if l.run >= len(l.rec.Runs) || cut(l.rec.Runs[l.run]) == "" ||
		l.next < len(l.rec.Exchanges) && l.rec.Exchanges[l.next].Run <= l.run {
		return ""
	}
	return cut(l.rec.Runs[l.run])
}

func (l *lane) matches(x session.Exchange, req llm.Request, c *Client) bool {
	if x.Summary {
		return len(req.Tools) == 0 && len(req.Messages) == 1
	}
	return c.recorded(x) == render(req, c.dir)
}

// recorded returns a recorded request for comparisons.
func (c *Client) recorded(x session.Exchange) string {
	return render(x.Request(), c.s.workDir())
}

// describe adds the nearest recorded request to a miss.
func (c *Client) describe(miss *MissError, l *lane, req llm.Request) {
	if len(l.rec.Exchanges) == 0 {
		miss.Reason = "no request of this agent is recorded"
		return
	}
	if l.next < len(l.rec.Exchanges) && l.rec.Exchanges[l.next].Summary {
		miss.Reason = "a request for a summary of the conversation is recorded"
		return
	}
	present, best, nearest := render(req, c.dir), -1.0, ""
	for i, x := range l.rec.Exchanges {
		if x.Summary {
			continue
		}
		text := c.recorded(x)
		like := likeness(text, present)
		if like > best || like == best && i == l.next {
			best, nearest, miss.Nearest = like, text, i+1
		}
	}
	miss.Diff = difference(nearest, present)
}

// deltas returns the pieces of an answer.
func (c *Client) deltas(t session.Turn) []llm.Delta {
	here := func(text string) string { return replaceDir(text, c.s.workDir(), c.dir) }
	var out []llm.Delta
	done := &llm.Done{
		Finish: t.Finish, Usage: t.Usage, ResponseID: t.ResponseID, Model: t.Model,
	}
	if done.Finish == "" {
		done.Finish = llm.FinishStop
	}
	for i, p := range t.Parts {
		switch {
		case p.ToolCall != nil:
			call := *p.ToolCall
			call.Arguments = here(call.Arguments)
			out = append(out, llm.Delta{Kind: llm.DeltaToolCall, Index: i, Call: &call})
			done.Finish = llm.FinishToolCalls
		case p.Reasoning != nil:
			if p.Reasoning.Text != "" {
				out = append(out, llm.Delta{Kind: llm.DeltaReasoning, Text: p.Reasoning.Text})
			}
			if p.Reasoning.Provider != "" {
				out = append(out, llm.Delta{Kind: llm.DeltaPart, Part: &t.Parts[i]})
			}
		case p.Kind == llm.PartText:
			out = append(out, llm.Delta{Kind: llm.DeltaText, Text: here(p.Text)})
		default:
			out = append(out, llm.Delta{Kind: llm.DeltaPart, Part: &t.Parts[i]})
		}
	}
	return append(out, llm.Delta{Kind: llm.DeltaDone, Done: done})
}
