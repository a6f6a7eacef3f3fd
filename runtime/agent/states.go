package agent

import "fmt"

// State is where a run is.
type State string

// States of a run. Completed, Failed, Aborted and TimedOut are final.
const (
	StateIdle         State = "idle"
	StatePreparing    State = "preparing"
	StateModelRunning State = "model_running"
	StateToolRunning  State = "tool_running"
	// StateReflecting: the host's check looks at what the model believes to be done.
	StateReflecting State = "reflecting"
	// StateAwaitingHuman: the model asked the user. Without anybody to ask, a run ends here.
	StateAwaitingHuman State = "awaiting_human"
	StateCompleted     State = "completed"
	StateFailed        State = "failed"
	StateAborted       State = "aborted"
	StateTimedOut      State = "timed_out"
)

// Signal is what makes a run change its state.
type Signal string

// Signals.
const (
	SignalStart     Signal = "start"
	SignalPrepared  Signal = "prepared"
	SignalToolCalls Signal = "tool_calls"
	SignalResults   Signal = "results"
	// SignalContinue: there is something new to tell the model although it had no call.
	SignalContinue Signal = "continue"
	// SignalFinal: the model is done.
	SignalFinal Signal = "final"
	// SignalCheck: the model says it is done, and the host checks.
	SignalCheck    Signal = "check"
	SignalPassed   Signal = "passed"
	SignalRejected Signal = "rejected"
	SignalQuestion Signal = "question"
	SignalAnswer   Signal = "answer"
	SignalGiveUp   Signal = "give_up"
	SignalLimit    Signal = "limit"
	SignalError    Signal = "error"
	SignalAbort    Signal = "abort"
	SignalDeadline Signal = "deadline"
)

// transitions is the whole state machine.
var transitions = map[State]map[Signal]State{
	StateIdle: {
		SignalStart: StatePreparing,
	},
	StatePreparing: {
		SignalPrepared: StateModelRunning,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateModelRunning: {
		SignalToolCalls: StateToolRunning,
		SignalContinue:  StateModelRunning,
		SignalFinal:     StateCompleted,
		SignalCheck:     StateReflecting,
		SignalLimit:     StateFailed,
		SignalError:     StateFailed,
		SignalAbort:     StateAborted,
		SignalDeadline:  StateTimedOut,
	},
	StateToolRunning: {
		SignalResults:  StateModelRunning,
		SignalQuestion: StateAwaitingHuman,
		SignalFinal:    StateCompleted,
		SignalCheck:    StateReflecting,
		SignalGiveUp:   StateFailed,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateReflecting: {
		SignalPassed:   StateCompleted,
		SignalContinue: StateModelRunning,
		SignalRejected: StateModelRunning,
		SignalGiveUp:   StateFailed,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateAwaitingHuman: {
		SignalAnswer:   StateModelRunning,
		SignalGiveUp:   StateAwaitingHuman,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
}

// Transition is one step of a run.
type Transition struct {
	From   State  `json:"from"`
	Signal Signal `json:"signal"`
	To     State  `json:"to"`
}

// TransitionError means that a signal came in a state that has no step for it.
type TransitionError struct {
	State  State
	Signal Signal
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("agent: signal %q has no meaning in state %q", e.Signal, e.State)
}

// machine walks through the table and remembers the way.
type machine struct {
	state State
	steps []Transition
}

func (m *machine) signal(s Signal) (Transition, error) {
	to, ok := transitions[m.state][s]
	if !ok {
		return Transition{}, &TransitionError{State: m.state, Signal: s}
	}
	t := Transition{From: m.state, Signal: s, To: to}
	m.state = to
	m.steps = append(m.steps, t)
	return t, nil
}
