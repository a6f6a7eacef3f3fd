// Package agent runs a model with tools until a task is done.
//
// An [Agent] is made once from a [Config]: a client, a profile, an environment, a place to keep
// sessions. It makes sessions. A [Session] holds a history and takes inputs; each input is one run
// of the loop: ask the model, run the tools it calls, again, until it answers without a call. The
// loop knows the dependencies and the input of its run and nothing else.
//
// # States
//
// A run moves through the states of [State] along one table of (state, signal) → state; a pair that
// the table lacks is a defect and ends the run. The steps taken are part of the [Result]. A session
// is idle, processing, awaiting input or closed, beside that.
//
// # History
//
// Every entry is in the session's journal before the session acts on it. Every tool call of a
// recorded answer gets exactly one result, whatever happens. Equal entries make byte-identical
// requests.
//
// # Events
//
// What happens is told as events, in one order, to sinks that the loop waits for and to subscribers
// that it does not wait for.
package agent
