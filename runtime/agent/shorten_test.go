package agent_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// readFiles is a model that reads five files and answers, and counts the requests for summaries.
func readFiles(summaries *int) modelFunc {
	n := 0
	return func(req llm.Request) answer {
		if isSummary(req) {
			*summaries++
			return answer{text: "SUMMARY", usage: llm.Usage{Input: 100, Output: 10}}
		}
		if n++; n <= 5 {
			return calls(call("", "read", object{"path": fmt.Sprint("file", n)}))
		}
		return answer{text: "done"}
	}
}

// TestCompact summarizes an idle session, which goes on in a process after that.
func TestCompact(t *testing.T) {
	var summaries int
	dir := t.TempDir()
	cfg := config(readFiles(&summaries), reader(1500))
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(dir), 0
	ev := watch(&cfg)
	s := newSession(t, cfg)
	submit(t, s, "THE TASK")
	long := len(s.History())
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := s.History()
	text := list[0].Text()
	if len(list) >= long || summaries != 1 || s.State() != agent.SessionIdle ||
		!strings.Contains(text, "SUMMARY") || !strings.Contains(text, "THE TASK") ||
		!strings.Contains(text, "file1\n") {
		t.Errorf("%d turns of %d, %d summaries, %q", len(list), long, summaries, text)
	}
	var updates []event.ContextUpdated
	for _, e := range ev.all {
		if u, ok := e.Data.(event.ContextUpdated); ok {
			updates = append(updates, u)
		}
	}
	if len(updates) != 1 || updates[0].Action != event.ContextCompacted ||
		updates[0].After >= updates[0].Before || updates[0].Usage.Total() != 110 {
		t.Errorf("events %+v", updates)
	}
	checkPairs(t, list)
	if err := s.Compact(t.Context()); !errors.Is(err, agent.ErrNotShorter) || summaries != 1 {
		t.Errorf("again: %v, %d summaries", err, summaries)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := session.Load(filepath.Join(dir, s.ID()))
	if err != nil || len(r.Turns) != len(list) || r.Turns[0].Text() != text || r.Spent.Turns != 7 {
		t.Fatalf("the record has %d turns of %d, %+v, %v", len(r.Turns), len(list), r.Spent, err)
	}
	resumed := resume(t, cfg, filepath.Join(dir, s.ID()))
	if res := submit(t, resumed, "more"); res.Turns != 8 {
		t.Errorf("%d turns", res.Turns)
	}
}

// TestCompactFails has sessions that cannot be summarized. They stay as they are.
func TestCompactFails(t *testing.T) {
	down := &llm.Error{Kind: llm.KindServer, Message: "down"}
	for name, tt := range map[string]struct {
		summary answer
		turns   int
		want    error
		text    string
	}{
		"model":    {answer{err: down}, 0, down, "down"},
		"too long": {answer{text: words(9000)}, 0, agent.ErrNotShorter, "shorter"},
		"limit":    {answer{text: "SUMMARY"}, 6, nil, "the limit of turns"},
	} {
		t.Run(name, func(t *testing.T) {
			var summaries int
			read := readFiles(&summaries)
			m := modelFunc(func(req llm.Request) answer {
				if isSummary(req) {
					return tt.summary
				}
				return read(req)
			})
			cfg := config(m, reader(1500))
			cfg.Profile.ContextWindow, cfg.Limits.MaxTurns = 0, tt.turns
			s := newSession(t, cfg)
			submit(t, s, "go")
			before := len(s.History())
			err := s.Compact(t.Context())
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) ||
				!strings.Contains(err.Error(), tt.text) || len(s.History()) != before ||
				s.State() != agent.SessionIdle {
				t.Errorf("%v, %d turns of %d, %s", err, len(s.History()), before, s.State())
			}
			if tt.turns == 0 {
				submit(t, s, "go on")
			}
		})
	}
}

// TestCompactStates calls Compact in each state of a session.
func TestCompactStates(t *testing.T) {
	var s *agent.Session
	var busy error
	during := func(ctx context.Context, _ llm.Request) { busy = s.Compact(ctx) }
	m := &model{answers: []answer{
		{text: "ok", before: during},
		{text: "ok"},
		{text: "ok"},
		{text: "ok"},
		calls(call("e", "exit", nil)),
	}}
	s = newSession(t, config(m, exitTool(2, "which one?")))
	if err := s.Compact(t.Context()); !errors.Is(err, agent.ErrNotShorter) || len(m.requests) > 0 {
		t.Errorf("an empty session: %v", err)
	}
	submit(t, s, "go")
	if !errors.Is(busy, agent.ErrBusy) {
		t.Errorf("in a run: %v", busy)
	}
	submit(t, s, "go on")
	for range 3 {
		submit(t, s, "again")
	}
	if err := s.Compact(t.Context()); !errors.Is(err, agent.ErrNotShorter) ||
		s.State() != agent.SessionAwaitingInput || len(m.requests) != 5 {
		t.Errorf("with a question: %v, %s, %d requests", err, s.State(), len(m.requests))
	}
	_ = s.Close()
	if err := s.Compact(t.Context()); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestCloseDuringCompact closes a session, and steers it, in the request for a summary.
func TestCloseDuringCompact(t *testing.T) {
	for _, closes := range []bool{false, true} {
		var s *agent.Session
		closed := make(chan error, 1)
		summary := answer{text: "SUMMARY", before: func(ctx context.Context, _ llm.Request) {
			if err := s.Steer("be careful"); err != nil {
				t.Error(err)
			}
			if closes {
				go func() { closed <- s.Close() }()
				<-ctx.Done()
			}
		}}
		m := &model{answers: []answer{{text: words(4000)}, {text: "ok"}, summary}}
		cfg := config(m)
		cfg.Profile.ContextWindow = 0
		s = newSession(t, cfg)
		submit(t, s, "go")
		submit(t, s, "go on")
		err := s.Compact(t.Context())
		if closes {
			if cerr := <-closed; err == nil || cerr != nil || s.State() != agent.SessionClosed {
				t.Errorf("%v, %v, %s", err, cerr, s.State())
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		submit(t, s, "and now")
		if got := notes(s, "be careful"); len(got) != 1 {
			t.Errorf("%q", got)
		}
	}
}

// managerFunc is a function as a ContextManager.
type managerFunc func(c agent.Conversation) (agent.Shortening, error)

func (f managerFunc) Shorten(
	_ context.Context, c agent.Conversation,
) (agent.Shortening, error) {
	return f(c)
}

// TestContextManager has a manager that prunes the first output, and then replaces turns by a text.
func TestContextManager(t *testing.T) {
	var summaries int
	var sent []llm.Request
	read, dir := readFiles(&summaries), t.TempDir()
	m := modelFunc(func(req llm.Request) answer {
		if sent = append(sent, req); len(sent) == 5 { // the text is no answer of a model
			r, err := session.Load(filepath.Join(dir, "id1"))
			if err != nil || r.Spent.Turns != 4 || len(r.Models) != 1 {
				t.Errorf("in the run: %+v, %v", r, err)
			}
		}
		return read(req)
	})
	cfg := config(m, reader(100))
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(dir), 5000
	asked := 0
	cfg.Context = managerFunc(func(c agent.Conversation) (agent.Shortening, error) {
		asked++
		if c.Limit != 5000 || c.Tokens <= 0 || c.Refused || c.SessionID != "id1" {
			t.Errorf("the manager got %+v", c)
		}
		switch {
		case len(c.Turns) == 5 && len(c.Pruned) == 0:
			return agent.Shortening{Prune: []string{c.Turns[2].Results[0].CallID}}, nil
		case len(c.Turns) == 9:
			return agent.Shortening{Replace: 5, Text: "MY WORDS"}, nil
		}
		return agent.Shortening{}, nil
	})
	ev := watch(&cfg)
	s := newSession(t, cfg)
	submit(t, s, "THE TASK")
	if asked != 7 || summaries != 0 || ev.count(event.KindContextUpdated) != 2 {
		t.Errorf("asked %d times, %d summaries, %d events", asked, summaries,
			ev.count(event.KindContextUpdated))
	}
	if got := sent[2].Messages[2].Parts[0].ToolResult.Text(); !strings.Contains(got, "was removed") {
		t.Errorf("the output is %q", got)
	}
	first := sent[4].Messages[0].Text()
	if len(sent[4].Messages) != 5 || !strings.Contains(first, "MY WORDS") ||
		!strings.Contains(first, "THE TASK") || !strings.Contains(first, "file1\n") {
		t.Errorf("%d messages, the first is %q", len(sent[4].Messages), first)
	}
	checkPairs(t, s.History())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := session.Load(filepath.Join(dir, s.ID()))
	if err != nil || r.Turns[0].Text() != first || r.Spent.Turns != 6 || len(r.Models) != 1 ||
		r.Models[0].Answers != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	cfg.Context = nil
	resumed := resume(t, cfg, filepath.Join(dir, s.ID()))
	submit(t, resumed, "more")
	for i, msg := range sent[5].Messages {
		if got := sent[6].Messages[i].Text(); got != msg.Text() {
			t.Errorf("message %d was %q, and is %q", i, msg.Text(), got)
		}
	}
}

// TestContextManagerSummary has a manager that lets the model write a summary, when the server
// refuses a request.
func TestContextManagerSummary(t *testing.T) {
	var summaries, refusals int
	read := readFiles(&summaries)
	refused := false
	m := modelFunc(func(req llm.Request) answer {
		if len(req.Messages) == 9 && !refused {
			refused = true
			return answer{err: &llm.Error{Kind: llm.KindContextLength, Message: "too long"}}
		}
		return read(req)
	})
	cfg := config(m, reader(1500))
	cfg.Profile.ContextWindow = 0
	cfg.Context = managerFunc(func(c agent.Conversation) (agent.Shortening, error) {
		if !c.Refused {
			return agent.Shortening{}, nil
		}
		refusals++
		if c.Limit <= 0 || c.Limit > c.Tokens/2 {
			t.Errorf("limit %d of %d tokens", c.Limit, c.Tokens)
		}
		return agent.Shortening{Replace: 7}, nil
	})
	s := newSession(t, cfg)
	if res := submit(t, s, "go"); res.Final != "done" || summaries != 1 || refusals != 1 {
		t.Errorf("%q, %d summaries, %d refusals", res.Final, summaries, refusals)
	}
	checkPairs(t, s.History())
}

// TestInvalidShortening ends runs whose manager breaks the conversation, or fails.
func TestInvalidShortening(t *testing.T) {
	failure := errors.New("no idea")
	for name, tt := range map[string]struct {
		s    agent.Shortening
		err  error
		want string
	}{
		"unknown call":  {agent.Shortening{Prune: []string{"x"}}, nil, `"x" has no output`},
		"pruned before": {agent.Shortening{Prune: []string{"0"}}, nil, `"0" has no output`},
		"text only":     {agent.Shortening{Text: "x"}, nil, "replaces no turns"},
		"negative":      {agent.Shortening{Replace: -1}, nil, "-1 of 5"},
		"everything":    {agent.Shortening{Replace: 5, Text: "x"}, nil, "5 of 5"},
		"a result":      {agent.Shortening{Replace: 2, Text: "x"}, nil, "tool_results"},
		"error":         {agent.Shortening{Replace: 1, Text: "x"}, failure, "no idea"},
	} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			m := &model{answers: looks(5, llm.Usage{})}
			cfg := config(m, n.tool("look", true))
			cfg.Context = managerFunc(func(c agent.Conversation) (agent.Shortening, error) {
				switch {
				case len(c.Turns) < 5:
					return agent.Shortening{}, nil
				case name == "pruned before" && len(c.Pruned) == 0:
					return agent.Shortening{Prune: []string{"0"}}, nil
				}
				return tt.s, tt.err
			})
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			if res.Status != agent.StatusInternalError || err == nil ||
				!strings.Contains(err.Error(), tt.want) || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%s, %v", res.Status, err)
			}
			if len(m.requests) != 2 || len(s.History()) != 5 {
				t.Errorf("%d requests, %d turns", len(m.requests), len(s.History()))
			}
			checkPairs(t, s.History())
		})
	}
}

// TestSlowContextManager aborts a run while its manager waits for a human.
func TestSlowContextManager(t *testing.T) {
	m := &model{}
	cfg := config(m)
	var s *agent.Session
	cfg.Context = waiting(func() { s.Abort() })
	s = newSession(t, cfg)
	if res, _ := s.Submit(t.Context(), "go"); res.Status != agent.StatusAborted ||
		len(m.requests) > 0 {
		t.Errorf("%s after %d requests", res.Status, len(m.requests))
	}
}

// waiting is a ContextManager that calls a function and waits for the end of the run.
type waiting func()

func (w waiting) Shorten(ctx context.Context, _ agent.Conversation) (agent.Shortening, error) {
	w()
	<-ctx.Done()
	return agent.Shortening{}, ctx.Err()
}
