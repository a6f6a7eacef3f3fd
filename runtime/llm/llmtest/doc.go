// Package llmtest is a strict model server for tests and demonstrations: it speaks Responses, Chat
// Completions, Messages and streamGenerateContent over real HTTP on the loopback interface, and
// answers what a function of the test says.
//
//	srv := llmtest.NewServer(t, llmtest.Sequence(
//		llmtest.Use(llmtest.Call{Name: "shell", Arguments: `{"command":"ls"}`}),
//		llmtest.Say("Done."),
//	))
//	client, err := openai.New(openai.Config{BaseURL: srv.URL(), APIKey: srv.Key(), HTTPClient: srv.Client()})
//
// The same [Brain] serves all wire formats. [Play] makes one of a script of package replay. A
// [Fault] in a [Reply] makes the server misbehave, as real ones do: errors, cut and slow streams,
// odd framing.
//
// # Strictness
//
// A request must be one that the real servers accept, and more: no unknown field, known roles,
// sound schemas, each tool call answered exactly once, reasoning returned as it was given. What
// breaks a rule is answered with status 400 and recorded; [NewServer] fails the test for it, unless
// the test takes it with [Server.TakeViolations].
package llmtest
