package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// restore makes a new session continue a record, and gives each call without a result one. Started
// describes the session from now on.
func (s *Session) restore(r *session.Record, started session.Started) error {
	if len(r.Surroundings) > 0 {
		if err := json.Unmarshal(r.Surroundings, &s.surroundings); err != nil {
			return fmt.Errorf("agent: resume the session: the surroundings in its journal: %w", err)
		}
	}
	resumed := session.Resumed{Started: started, TornBytes: r.Torn}
	for _, c := range r.Calls {
		if c.Result == nil && r.Waiting == nil {
			resumed.Interrupted = append(resumed.Interrupted, c.ID)
		}
	}
	err := s.store.Append(session.TypeResumed, resumed)
	if err != nil {
		return fmt.Errorf("agent: store the session: %w", err)
	}
	s.history.restore(r, s.registry)
	s.budget.restore(r.Spent, r.Models)
	s.agents.next = r.Agents
	s.planner.restore(r)
	if r.Waiting != nil {
		s.history.waiting = &waiting{asked: *r.Waiting, calls: r.Calls}
	} else if err := s.interrupt(r.Calls); err != nil {
		return err
	}
	n := len(r.Runs)
	if n == 0 {
		return nil // the model knows nothing yet
	}
	s.notes = append(s.notes, resumedText(r.Runs[n-1]))
	before := r.Runs[n-1].In
	if s.cfg.Env != nil && (before.Backend != started.Backend || before.WorkDir != started.WorkDir) {
		s.notes = append(s.notes, movedText(s.cfg.Env.Info()))
	}
	return nil
}

// interrupt gives the calls of an answer that have no result one, in the journal and the history.
func (s *Session) interrupt(calls []session.OpenCall) error {
	if len(calls) == 0 {
		return nil
	}
	turn, err := answerCalls(s.store, s.cfg.Clock, calls, func(c session.OpenCall) string {
		return interruptedText(c.Started)
	})
	if err != nil {
		return fmt.Errorf("agent: store the session: %w", err)
	}
	s.history.add(turn)
	return nil
}

// answerCalls stores a result for each call without one, an error with a text, and returns the turn
// of all results.
func answerCalls(
	store session.Store, clock llm.Clock, calls []session.OpenCall,
	text func(session.OpenCall) string,
) (session.Turn, error) {
	turn := session.Turn{Kind: session.TurnToolResults, Time: clock.Now()}
	for _, c := range calls {
		if c.Result != nil {
			turn.Results = append(turn.Results, *c.Result)
			continue
		}
		text := text(c)
		result := llm.ToolResult{
			CallID: c.ID, Name: c.Name, Parts: []llm.Part{llm.Text(text)}, IsError: true,
		}
		err := store.Append(session.TypeToolResult, session.ToolResult{
			RunID: c.RunID, ModelCall: c.ModelCall, Position: c.Position, Result: result,
			ErrorKind: string(tool.KindCanceled), OutputSize: int64(len(text)),
		})
		if err != nil {
			return turn, err
		}
		turn.Results = append(turn.Results, result)
	}
	return turn, store.Sync()
}

// takeNotes returns the notes for the next input.
func (s *Session) takeNotes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}

// restore makes the history that of a record. The tools tell which calls wait.
func (h *history) restore(r *session.Record, tools *tool.Registry) {
	h.turns, h.prompt, h.compacted, h.title = r.Turns, r.Prompt, r.Compacted, r.Title
	for _, id := range r.Pruned {
		h.pruned[id] = true
	}
	for _, id := range r.CallIDs {
		h.callIDs[id] = true
	}
	h.titled = slices.ContainsFunc(r.Runs, func(run session.Run) bool { return run.Ended != nil })
	h.restoreFailures(r, tools)
	h.loops.window = DefaultLoopWindow
	for i, t := range r.Turns {
		if t.Kind == session.TurnAssistant && t.Usage.Total() > 0 && !r.Shortened {
			h.contextTokens, h.counted = t.Usage.Total(), i+1
		}
		for _, p := range t.Parts {
			if p.ToolCall == nil {
				continue
			}
			if known, ok := tools.Get(p.ToolCall.Name); ok && known.Waits {
				continue
			}
			if r.Waiting == nil || i < len(r.Turns)-1 { // those that wait count when they have run
				h.loops.add(*p.ToolCall)
			}
			h.count(*p.ToolCall)
		}
	}
}

// restoreFailures takes over the open failures of a record, with the arguments of their calls.
func (h *history) restoreFailures(r *session.Record, tools *tool.Registry) {
	calls := make(map[string]llm.ToolCall)
	for _, t := range r.Conversation {
		for _, p := range t.Parts {
			if p.ToolCall != nil {
				calls[p.ToolCall.ID] = *p.ToolCall
			}
		}
	}
	for _, f := range r.Failures {
		if !f.Resolved {
			t, _ := tools.Get(f.Tool)
			h.failures.Restore(t, calls[f.CallID], f.Failure)
		}
	}
}

// warnTorn tells about a journal whose end was lost.
func (s *Session) warnTorn(r *session.Record) error {
	if r == nil || r.Torn == 0 {
		return nil
	}
	return s.emit("", event.Warning{Code: "journal_torn", Message: fmt.Sprintf(
		"the last entry of the journal was incomplete, and is left out (%d bytes)", r.Torn)})
}
