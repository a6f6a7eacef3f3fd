// Package recording replays sessions that package session has stored.
//
// [Open] reads a recorded session with its sub-agents. [Session.NewClient] returns a client that
// answers the requests of a new session with the recorded answers, in order, without a key or a
// network; tools run as always. [Session.Play] also takes the results of tools from the recording,
// so that nothing runs and two replays have the same events.
//
// # Requests
//
// A request must equal the recorded one, as the journal determines it: the model, the reasoning
// effort, the system prompt, the tools and the messages. Of a request for a summary the journal has
// the answer alone. The recorded [Session.Surroundings] make the system prompt of the new session
// that of the recorded one. A request that differs is an *llm.Error of llm.KindReplay around a
// *[MissError], with the nearest recorded request and the difference.
//
// # Normalizers
//
// The texts of messages, but not the system prompt and the tools, are compared after these
// replacements, in this order:
//
//	working directory  the recorded and the present one
//	ids                UUIDs, such as those of sessions and runs
//	temporary paths    names like those of mktemp below /tmp, /var/tmp, /private/var/folders, the
//	                   Temp directory of Windows
//	dates              2026-01-02, with or without a time, and those of ls and date
//	durations          with a decimal point or after "in", "after" or "took": 0.012s, in 45 ms
//	images             the text that a model without image input gets for an image
//
// # Limits of a replay
//
// The journal does not have everything. Messages of [agent.Session.Steer] are not sent again, nor
// is the pace of an answer or an empty answer; failed requests that were sent again are not
// recorded. Secrets are recorded as markers. With recorded tools sub-agents do not run, since what
// they reported is recorded, and [agent.Config.Verify] does not apply.
package recording
