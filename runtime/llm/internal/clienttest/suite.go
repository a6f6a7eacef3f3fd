package clienttest

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Run tests a client against the contract of llm.Client and the common behaviour of all clients of
// this module.
func Run(t *testing.T, w Wire) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Wire)
	}{
		{"configuration", testConfiguration},
		{"addresses and keys", testAddresses},
		{"variables are not read", testVariables},
		{"same request, same bytes", testSameBytes},
		{"no tool calls", testNoToolCalls},
		{"invalid UTF-8 is replaced", testInvalidUTF8},
		{"unsendable", testUnsendable},
		{"the request is not modified", testNotModified},
		{"answer", testAnswer},
		{"finish", testFinish},
		{"calls", testCalls},
		{"framing", testFraming},
		{"large events", testLargeEvents},
		{"broken", testBroken},
		{"refused", testRefused},
		{"retry after", testRetryAfter},
		{"a storm is survived", testStorm},
		{"wrong key", testWrongKey},
		{"key in an error", testKeyInError},
		{"network", testNetwork},
		{"idle", testIdle},
		{"cancel", testCancel},
		{"iteration sends", testIteration},
		{"break closes the connection", testBreak},
		{"connection is used again", testReuse},
		{"many sessions at once", testSessions},
		{"proxy", testProxy},
		{"redirect", testRedirect},
		{"flood", testFlood},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

// checkError fails the test unless err has the kind, the status and the provider of the wire, and
// text in its one-line message.
func (w Wire) checkError(t *testing.T, err error, kind llm.ErrorKind, status int, text string) {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Status != status || e.Provider != w.Provider {
		t.Fatalf("got %#v; want kind %s with status %d of %s", err, kind, status, w.Provider)
	}
	if !strings.Contains(e.Error(), text) || strings.ContainsAny(e.Error(), "\x1b\n\r\u202e") ||
		len(e.Error()) > 2200 {
		t.Errorf("the text is %q, want %q in it", e, text)
	}
}

// atOnce retries without a wait.
func atOnce(c llm.Client, retries int) llm.Client {
	return llm.Retry(c, llm.RetryPolicy{MaxRetries: retries, Rand: func() float64 { return 0 }})
}
