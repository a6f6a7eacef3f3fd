package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// StepKind tells the steps of a trajectory apart.
type StepKind string

// Kinds of steps.
const (
	// StepInput is a text of the user, and StepSteering one of the program that the model took for
	// one.
	StepInput    StepKind = "input"
	StepSteering StepKind = "steering"
	// StepThought is reasoning, or the text of an answer with calls.
	StepThought StepKind = "thought"
	// StepAction is a call of a tool, and StepObservation its result.
	StepAction      StepKind = "action"
	StepObservation StepKind = "observation"
	// StepReflection is an answer in which the model looks for the cause of its failures.
	StepReflection StepKind = "reflection"
	// StepAnswer is an answer without calls.
	StepAnswer StepKind = "answer"
)

// Step is one step of a trajectory: what the model read, thought, did and saw, in order.
type Step struct {
	// Number counts from 1.
	Number int `json:"step"`
	// AgentID is the sub-agent of the step; empty for the root agent.
	AgentID string   `json:"agent_id,omitempty"`
	Kind    StepKind `json:"kind"`
	// Time is missing for an observation.
	Time time.Time `json:"time,omitzero"`
	Text string    `json:"text,omitempty"`
	// CallID, Tool and Arguments are those of the call, for actions and observations.
	CallID    string `json:"call_id,omitempty"`
	Tool      string `json:"tool,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	IsError   bool   `json:"is_error,omitempty"`
	// Failure is that of an observation that is an error.
	Failure *event.Failure `json:"failure,omitempty"`
}

// Trajectory returns the steps of all runs, also those that a summary stands for.
func (r *Record) Trajectory() []Step {
	failures := make(map[string]*event.Failure)
	for i := range r.Failures {
		failures[r.Failures[i].CallID] = &r.Failures[i].Failure
	}
	var list []Step
	add := func(s Step) {
		s.Number = len(list) + 1
		list = append(list, s)
	}
	for _, t := range r.Conversation {
		switch t.Kind {
		case TurnUser:
			add(Step{Kind: StepInput, Time: t.Time, Text: t.Text()})
		case TurnSteering:
			add(Step{Kind: StepSteering, Time: t.Time, Text: t.Text()})
		case TurnAssistant:
			for _, s := range answerSteps(t) {
				add(s)
			}
		case TurnToolResults:
			for _, res := range t.Results {
				s := Step{
					Kind: StepObservation, Text: res.Text(), CallID: res.CallID, Tool: res.Name,
					IsError: res.IsError,
				}
				if res.IsError {
					s.Failure = failures[res.CallID]
				}
				add(s)
			}
		}
	}
	return list
}

// answerSteps returns the steps of an answer.
func answerSteps(t Turn) (list []Step) {
	kind := StepAnswer
	switch {
	case t.Reflection:
		kind = StepReflection
	case len(llm.Message{Parts: t.Parts}.ToolCalls()) > 0:
		kind = StepThought
	}
	for _, p := range t.Parts {
		switch {
		case p.Reasoning != nil && p.Reasoning.Text != "":
			list = append(list, Step{Kind: StepThought, Time: t.Time, Text: p.Reasoning.Text})
		case p.ToolCall != nil:
			list = append(list, Step{
				Kind: StepAction, Time: t.Time, CallID: p.ToolCall.ID, Tool: p.ToolCall.Name,
				Arguments: p.ToolCall.Arguments,
			})
		case p.Kind == llm.PartText && p.Text != "":
			list = append(list, Step{Kind: kind, Time: t.Time, Text: p.Text})
		}
	}
	return list
}

// TrajectoryFormat is the format of the files of trajectories.
const TrajectoryFormat = "sandboxagent.trajectory/1"

// trajectoryHeader is the first line of a file.
type trajectoryHeader struct {
	Format    string `json:"format"`
	SessionID string `json:"session_id"`
	Steps     int    `json:"steps"`
}

// WriteTrajectory writes steps of a session as JSON Lines, after a line with the format.
func WriteTrajectory(w io.Writer, sessionID string, steps []Step) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(trajectoryHeader{TrajectoryFormat, sessionID, len(steps)}); err != nil {
		return err
	}
	for _, s := range steps {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// ReadTrajectory reads what WriteTrajectory has written. A file that was cut is an error.
func ReadTrajectory(r io.Reader) (sessionID string, steps []Step, err error) {
	dec := json.NewDecoder(bufio.NewReader(r))
	var h trajectoryHeader
	if err := dec.Decode(&h); err != nil {
		return "", nil, fmt.Errorf("read a trajectory: %w", err)
	}
	if h.Format != TrajectoryFormat {
		return "", nil, fmt.Errorf("read a trajectory: the format is %.50q, not %q", h.Format,
			TrajectoryFormat)
	}
	for {
		var s Step
		err := dec.Decode(&s)
		if errors.Is(err, io.EOF) && len(steps) == h.Steps {
			return h.SessionID, steps, nil
		}
		if err != nil {
			return "", nil, fmt.Errorf(
				"read a trajectory: after %d of %d steps: %w",
				len(steps),
				h.Steps,
				err,
			)
		}
		steps = append(steps, s)
	}
}
