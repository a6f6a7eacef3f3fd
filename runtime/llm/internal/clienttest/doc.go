// Package clienttest checks a client of a model server against the contract of llm.Client.
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
// of package llmtest, which rejects requests that a real one would reject. The tests of the
// client's own package cover the particulars of its wire format, with the helpers of [Wire], and
// check that no goroutine is left after all tests.
package clienttest
