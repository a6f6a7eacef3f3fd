package recording

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// Session is a recorded session. Nobody changes it, so it may be used concurrently.
type Session struct {
	*session.Recording

	// agents are the recordings of all agents by the rest of their session's ID after that of the
	// root, which is empty for the root itself.
	agents map[string]*session.Recording
	// surroundings are those of the root; nil if the journal has none.
	surroundings *profile.Surroundings
}

// Open reads the session in a directory, and those of its sub-agents beside it. The session of a
// sub-agent cannot be replayed by itself, nor one without a run. Open leaves all files as they are.
func Open(dir string) (*Session, error) {
	dir, err := filepath.Abs(dir) // whose base is the ID, also of "."
	if err != nil {
		return nil, err
	}
	root, err := session.LoadRecording(dir)
	if err != nil {
		return nil, err
	}
	s := &Session{Recording: root, agents: map[string]*session.Recording{"": root}}
	switch {
	case root.Started.Parent != "":
		return nil, fmt.Errorf("session %s: it is that of a sub-agent; replay %s", root.ID,
			root.Started.Parent)
	case len(root.Runs) == 0 || len(root.Inputs[0]) == 0:
		return nil, fmt.Errorf("session %s: no run was recorded", root.ID)
	}
	if len(root.Surroundings) > 0 {
		if err := json.Unmarshal(root.Surroundings, &s.surroundings); err != nil {
			return nil, fmt.Errorf("session %s: its surroundings: %w", root.ID, err)
		}
	}
	beside, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	for _, e := range beside {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(dir))
		if !ok || rest == "" || agentSuffix(rest) != rest {
			continue
		}
		child, err := session.LoadRecording(filepath.Join(filepath.Dir(dir), e.Name()))
		if err == nil { // otherwise its requests are none of those that are recorded
			s.agents[rest] = child
		}
	}
	return s, nil
}

var suffix = lazyregexp.New(`(?:-agent(?:_\d+)+)+$`)

// agentSuffix returns the end of a session's ID that names a sub-agent; empty for a root.
func agentSuffix(id string) string { return suffix().FindString(id) }

// IsAgent reports whether the session with an ID is that of a sub-agent.
func IsAgent(id string) bool { return agentSuffix(id) != "" }

// Surroundings returns the recorded surroundings of the session, for agent.SessionOptions; nil if
// the journal has none.
func (s *Session) Surroundings() *profile.Surroundings { return s.surroundings }

// PastFailures returns the failures of earlier sessions that the session and its sub-agents were
// told of, for agent.Config.
func (s *Session) PastFailures(context.Context) (list []failure.Past) {
	for _, rec := range s.agents {
		for _, r := range rec.Results {
			if f := r.Failure; f != nil && f.Past != nil {
				list = append(list, failure.Past{Failure: *f, PastFailure: *f.Past})
			}
		}
	}
	return list
}

// workDir is the working directory of the first run; empty without an environment.
func (s *Session) workDir() string { return s.Runs[0].In.WorkDir }

// Model returns the model and the reasoning effort of the first request of a run, by its index in
// Runs; of a run without one, those at the start of the session.
func (s *Session) Model(run int) (model, effort string) {
	for _, x := range s.Exchanges {
		if x.Run == run && !x.Summary {
			return x.Prompt.Model, x.Prompt.ReasoningEffort
		}
	}
	return s.Started.Model, ""
}

// Input returns the input of a run, by its index in Runs: the text and the parts after it.
func (s *Session) Input(run int) agent.Input {
	var in agent.Input
	turns := s.Inputs[run]
	if verdict := s.Runs[run].Reply; verdict != "" {
		in.Reply = &agent.Reply{Verdict: agent.Verdict(verdict)}
	} else if len(turns) > 0 {
		in.Parts = turns[0].Parts
	}
	if len(in.Parts) > 0 && in.Parts[0].Kind == llm.PartText {
		in.Text, in.Parts = in.Parts[0].Text, in.Parts[1:]
	}
	in.Instructions = s.Runs[run].Instructions
	return in
}

// completes are the statuses of runs that end by themselves, so that a replay ends in the same way.
var completes = [...]agent.Status{
	agent.StatusCompleted, agent.StatusTaskFailed, agent.StatusVerifyFailed,
	agent.StatusAwaitingHuman, agent.StatusLimit, agent.StatusGaveUpTime,
	agent.StatusRepeatedFailures,
}

// cut returns the status of a run that something else has ended, such as a signal or the failure of
// a server; empty for other runs.
func cut(r session.Run) string {
	switch {
	case r.Ended == nil:
		return session.StatusInterrupted
	case slices.Contains(completes[:], agent.Status(r.Ended.Status)):
		return ""
	}
	return r.Ended.Status
}

// MissError is a request that differs from the recorded one.
type MissError struct {
	// Agent is the sub-agent that sent the request; empty for the root agent.
	Agent string
	// Number counts the requests of the agent from 1, and Recorded are those that are recorded.
	Number, Recorded int
	// Nearest is the number of the recorded request that is most like it; 0 if none is recorded.
	Nearest int
	// Diff is the unified difference between that one and the request. A long one is cut.
	Diff string
	// Reason describes a miss that is no difference; else it is empty.
	Reason string
}

// Error returns a line about the request, and then the lines of the difference.
func (e *MissError) Error() string {
	text := fmt.Sprintf("request %d", e.Number)
	if e.Agent != "" {
		text += " of " + e.Agent
	}
	switch {
	case e.Reason != "":
		text += ": " + e.Reason
	case e.Number > e.Recorded:
		text += fmt.Sprintf(": only %d are recorded", e.Recorded)
	default:
		text += " differs from the recorded one"
	}
	if e.Nearest > 0 && e.Nearest != e.Number {
		text += fmt.Sprintf("; the nearest is the recorded request %d", e.Nearest)
	}
	if e.Diff != "" {
		text += "\n" + e.Diff
	}
	return text
}
