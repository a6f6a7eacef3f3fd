// Package clienttest checks what every client of a model server promises, whatever the wire that it
// speaks.
//
// One call runs the whole suite:
//
//	func TestClient(t *testing.T) {
//		clienttest.Run(t, clienttest.Wire{
//			New:   func(cfg clienttest.Config) (llm.Client, error) { return mywire.New(mywire.Config(cfg)) },
//			Model: "some-model", Path: "/v1/answers", …
//		})
//	}
//
// Every case is a subtest of its own, such as "cancel/in_a_text", and depends on no other. The
// server is that of package llmtest, which refuses requests that a real one would not take. What is
// peculiar to a wire is tested in its own package, with the means of [Wire] where they fit. That no
// goroutine is left is checked there, too, when all tests have ended.
package clienttest
