package agent

import (
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// State is a state of a run.
type State string

// States of a run. Completed, Failed, Aborted and TimedOut are final.
const (
	StateIdle      State = "idle"
	StatePreparing State = "preparing"
	// StatePlanning: the model is to make a plan.
	StatePlanning     State = "planning"
	StateModelRunning State = "model_running"
	StateToolRunning  State = "tool_running"
	// StateReflecting: Verify checks a task that the model reports as completed, or the model looks
	// for the cause of its failures.
	StateReflecting State = "reflecting"
	// StateReplanning: the model gets its failures and the order to go on in another way.
	StateReplanning State = "replanning"
	// StateAwaitingHuman: the model has a question for the user, without whose answer the run ends, or
	// the user has to approve a call.
	StateAwaitingHuman State = "awaiting_human"
	// StateReporting: the run ends, and the model writes its final answer.
	StateReporting State = "reporting"
	StateCompleted State = "completed"
	StateFailed    State = "failed"
	StateAborted   State = "aborted"
	StateTimedOut  State = "timed_out"
)

// Signal is the reason of a step from one state to the next.
type Signal string

// Signals.
const (
	SignalStart    Signal = "start"
	SignalPrepared Signal = "prepared"
	// SignalPlan: the input is prepared, and has no plan yet.
	SignalPlan Signal = "plan"
	// SignalReply: a human has decided about the call with which the last run ended.
	SignalReply     Signal = "reply"
	SignalToolCalls Signal = "tool_calls"
	SignalResults   Signal = "results"
	// SignalContinue: after an answer without a call, or a new plan, the model gets another request;
	// or nobody helps a run that fails.
	SignalContinue Signal = "continue"
	// SignalFinal: the model completed the task.
	SignalFinal Signal = "final"
	// SignalCheck: the model reports a completed task, which Verify checks.
	SignalCheck    Signal = "check"
	SignalPassed   Signal = "passed"
	SignalRejected Signal = "rejected"
	SignalQuestion Signal = "question"
	SignalAnswer   Signal = "answer"
	// SignalApproval: a human has to approve a call.
	SignalApproval Signal = "approval"
	SignalApproved Signal = "approved"
	// SignalRefused: a human refused a call, and the model gets the results of the answer.
	SignalRefused Signal = "refused"
	// SignalReflect: calls went on failing, or the model cannot do the task.
	SignalReflect Signal = "reflect"
	// SignalReplan: the model has found a cause, or a check has.
	SignalReplan Signal = "replan"
	// SignalReport: the run ends without an answer, for which the model gets one more request.
	SignalReport   Signal = "report"
	SignalGiveUp   Signal = "give_up"
	SignalLimit    Signal = "limit"
	SignalError    Signal = "error"
	SignalAbort    Signal = "abort"
	SignalDeadline Signal = "deadline"
)

// answerSteps follow an answer of the model.
var answerSteps = map[Signal]State{
	SignalToolCalls: StateToolRunning,
	SignalContinue:  StateModelRunning,
	SignalFinal:     StateCompleted,
	SignalCheck:     StateReflecting,
	SignalReflect:   StateReflecting,
	SignalQuestion:  StateAwaitingHuman,
	SignalReport:    StateReporting,
	SignalGiveUp:    StateFailed,
	SignalLimit:     StateFailed,
	SignalError:     StateFailed,
	SignalAbort:     StateAborted,
	SignalDeadline:  StateTimedOut,
}

// transitions is the whole state machine.
var transitions = map[State]map[Signal]State{
	StateIdle: {SignalStart: StatePreparing},
	StatePreparing: {
		SignalPrepared: StateModelRunning,
		SignalPlan:     StatePlanning,
		SignalReply:    StateToolRunning,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StatePlanning:     answerSteps,
	StateModelRunning: answerSteps,
	StateToolRunning: {
		SignalResults:  StateModelRunning,
		SignalQuestion: StateAwaitingHuman,
		SignalApproval: StateAwaitingHuman,
		SignalFinal:    StateCompleted,
		SignalCheck:    StateReflecting,
		SignalReflect:  StateReflecting,
		SignalReport:   StateReporting,
		SignalGiveUp:   StateFailed,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateReflecting: {
		SignalPassed:   StateCompleted,
		SignalContinue: StateModelRunning,
		SignalRejected: StateModelRunning,
		SignalReplan:   StateReplanning,
		SignalLimit:    StateFailed,
		SignalReport:   StateReporting,
		SignalGiveUp:   StateFailed,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateReplanning: {
		SignalContinue: StateModelRunning,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateReporting: {
		SignalFinal:    StateCompleted,
		SignalPassed:   StateCompleted,
		SignalLimit:    StateFailed,
		SignalGiveUp:   StateFailed,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
	StateAwaitingHuman: {
		SignalAnswer:   StateModelRunning,
		SignalContinue: StateModelRunning,
		SignalApproved: StateToolRunning,
		SignalRefused:  StateModelRunning,
		SignalGiveUp:   StateAwaitingHuman,
		SignalError:    StateFailed,
		SignalAbort:    StateAborted,
		SignalDeadline: StateTimedOut,
	},
}

// CanTransition reports whether the state machine has a step from one state to another.
func CanTransition(from, to State) bool {
	for _, next := range transitions[from] {
		if next == to {
			return true
		}
	}
	return false
}

// Transition is one step of a run.
type Transition struct {
	From   State  `json:"from"`
	Signal Signal `json:"signal"`
	To     State  `json:"to"`
	// Time is that of Config.Clock.
	Time time.Time `json:"time"`
}

func (t Transition) event() event.Status {
	return event.Status{From: string(t.From), Signal: string(t.Signal), To: string(t.To)}
}

// TransitionError reports a signal in a state that has no step for it.
type TransitionError struct {
	State  State
	Signal Signal
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("agent: no step for signal %q in state %q", e.Signal, e.State)
}

// machine follows the table and records its transitions.
type machine struct {
	state       State
	now         func() time.Time
	transitions []Transition
}

func (m *machine) signal(s Signal) (Transition, error) {
	to, ok := transitions[m.state][s]
	if !ok {
		return Transition{}, &TransitionError{State: m.state, Signal: s}
	}
	t := Transition{From: m.state, Signal: s, To: to, Time: m.now()}
	m.state = to
	m.transitions = append(m.transitions, t)
	return t, nil
}
