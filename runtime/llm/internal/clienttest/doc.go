// Package clienttest checks the promises of every client of a model server, on any wire.
//
// One call runs the whole suite:
//
//	func TestClient(t *testing.T) {
//		clienttest.Run(t, clienttest.Wire{
//			New: func(cfg clienttest.Config) (llm.Client, error) {
//				return mywire.New(mywire.Config(cfg))
//			},
//			Model: "some-model", Path: "/v1/answers", …
//		})
//	}
//
// Every case is a subtest, such as "cancel/in_a_text", and depends on no other. The server is that
// of package llmtest, which rejects requests that a real one would reject. The package of a wire
// tests its peculiarities, with the helpers of [Wire], and that no goroutine is left after all
// tests.
package clienttest
