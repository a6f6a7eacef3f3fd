// Package agent runs a model with tools until a task is done.
//
// [New] creates an [Agent] from a [Config]: a client, a profile, an environment, a store for
// sessions. Agent.Run does one task; Agent.NewSession starts a conversation. A [Session] holds a
// history and accepts inputs; each input is one run of the loop: send a request to the model, run
// the tools that it calls, repeat, until it answers without a call. The loop gets its inputs as
// parameters and owns no configuration. The way from Agent.Run to the Run function of a tool is
// eight calls.
//
// # States
//
// A run moves through the states of [State] along one table of (state, signal) → state; a pair that
// the table lacks is a defect and ends the run. The transitions are part of the [RunResult]. A
// session itself is idle, processing, awaiting input or closed.
//
// # History
//
// Every turn is in the session's journal before the session acts on it; runtime/session documents
// the journal. Every tool call of a recorded answer gets exactly one result, also after a failure.
// Equal histories make byte-identical requests.
//
// # Events
//
// The loop reports its work as events, in one order, to sinks that it waits for and to observers
// that it does not wait for.
package agent
