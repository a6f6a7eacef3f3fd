// Package llmtest is a strict model server for tests and demonstrations. It serves Responses, Chat
// Completions, Messages and streamGenerateContent over HTTP on the loopback interface; a function
// of the test makes the answers.
//
//	srv := llmtest.NewServer(t, llmtest.Sequence(
//		llmtest.Use(llmtest.Call{Name: "shell", Arguments: `{"command":"ls"}`}),
//		llmtest.Text("Done."),
//	))
//	client, err := openai.New(openai.Config{
//		BaseURL: srv.URL(), APIKey: srv.Key(), HTTPClient: srv.Client(),
//	})
//
// The same [Brain] serves all wire formats. [Play] makes one of a script of package replay. A
// [Fault] in a [Reply] simulates the failures of real servers: errors, cut and slow streams,
// unusual framing.
//
// # Strictness
//
// The server accepts no request that a real one rejects, and is stricter: no unknown field, known
// roles, valid schemas, exactly one result for each tool call, unchanged reasoning. It answers a
// violation with status 400 and records it; [NewServer] fails the test for it, unless the test
// takes it with [Server.TakeViolations].
package llmtest
