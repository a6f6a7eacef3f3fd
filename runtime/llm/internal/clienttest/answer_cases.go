package clienttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

func testAnswer(t *testing.T, w Wire) {
	_, c := w.Connect(t, llmtest.Sequence(w.Reply()))
	resp, err := llm.Complete(t.Context(), c, w.Request())
	if err != nil {
		t.Fatal(err)
	}
	w.checkReply(t, resp)
}

func testFinish(t *testing.T, w Wire) {
	for _, f := range []llm.FinishReason{llm.FinishStop, llm.FinishLength, llm.FinishContentFilter} {
		_, c := w.Connect(t, llmtest.Sequence(llmtest.Reply{Text: "x", Finish: f}))
		resp, err := llm.Complete(t.Context(), c, w.Request())
		if err != nil || resp.Finish != f {
			t.Errorf("got %q, %v; want %q", resp.Finish, err, f)
		}
	}
}

func testCalls(t *testing.T, w Wire) {
	var many []llmtest.Call
	for i := range llm.MaxToolCalls {
		many = append(many, llmtest.Call{
			ID: fmt.Sprint("c", i), Name: "shell", Arguments: fmt.Sprintf(`{"command":"echo %d"}`, i),
		})
	}
	for name, tt := range map[string]struct {
		calls []llmtest.Call
		other bool // the arguments are no object
	}{
		"malformed arguments": {calls: []llmtest.Call{{
			ID: "a", Name: "shell", Arguments: `{"command": "unfinished`,
		}}, other: true},
		"empty arguments": {calls: []llmtest.Call{{ID: "a", Name: "shell"}}},
		"wrong types": {calls: []llmtest.Call{{
			ID: "a", Name: "shell", Arguments: `[1, "x", null]`,
		}}, other: true},
		"equal ids": {calls: []llmtest.Call{
			{ID: "a", Name: "shell", Arguments: "{}"},
			{ID: "a", Name: "shell", Arguments: `{"command":"b"}`},
		}},
		"missing ids": {calls: []llmtest.Call{
			{NoID: true, Name: "shell", Arguments: "{}"},
			{NoID: true, Name: "shell", Arguments: `{"command":"b"}`},
		}},
		"as many as allowed": {calls: many},
		"as long as allowed": {calls: []llmtest.Call{longCall(llm.MaxArguments)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := w.Connect(t, llmtest.Sequence(llmtest.Use(tt.calls...)))
			resp, err := llm.Complete(t.Context(), c, w.Request())
			if tt.other && w.Objects {
				w.checkError(t, err, llm.KindStream, 200, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []llm.ToolCall
			for _, call := range tt.calls {
				if call.Arguments == "" && w.Objects {
					call.Arguments = "{}"
				}
				want = append(want, llm.ToolCall{ID: call.ID, Name: call.Name, Arguments: call.Arguments})
			}
			if diff := cmp.Diff(want, resp.Message.ToolCalls()); diff != "" {
				t.Errorf("calls (-want +got):\n%.2000s", diff)
			}
		})
	}
}

// The framing of a stream does not change the answer.
func testFraming(t *testing.T, w Wire) {
	for name, fault := range map[string]llmtest.Fault{
		"1-byte chunks":            {OneByte: true},
		"CRLF":                     {CRLF: true},
		"comments":                 {Comments: true},
		"all of it":                {OneByte: true, CRLF: true, Comments: true, Interleave: true},
		"1 MB event":               {Pad: 1 << 20},
		"mixed pieces of calls":    {Interleave: true},
		"nothing after the end":    {NoDone: true},
		"Content-Length too large": {Length: 100},
		"slow":                     {Pace: 1},
	} {
		t.Run(name, func(t *testing.T) {
			reply := w.Reply()
			reply.Fault = fault
			_, c := w.Connect(t, llmtest.Sequence(reply))
			resp, err := llm.Complete(t.Context(), c, w.Request())
			if err != nil {
				t.Fatal(err)
			}
			w.checkReply(t, resp)
		})
	}
}

// The line limits of libraries differ from the limit of an event.
func testLargeEvents(t *testing.T, w Wire) {
	large := strings.Repeat("x", 15<<20)
	resp, err := llm.Complete(t.Context(), w.Raw(t, w.Stream(large)), w.Request())
	if err != nil || len(resp.Message.Text()) != len(large) {
		t.Errorf("got %d bytes, %v", len(resp.Message.Text()), err)
	}
	_, err = llm.Complete(t.Context(), w.Raw(t, w.Stream(large+large)), w.Request())
	w.checkError(t, err, llm.KindAnswerTooLarge, 200, "16 MiB")
}

// broken are faults in streams.
func broken() map[string]Failure {
	faults := map[string]Failure{
		"Content-Length too small": {Fault: llmtest.Fault{Length: -900}, Kind: llm.KindStream},
		"not really compressed":    {Fault: llmtest.Fault{Gzip: true}, Kind: llm.KindStream},
		"error in a text": {llmtest.Fault{
			Fail: llmtest.AtText, Code: "server_error", Message: "sorry",
		}, llm.KindServer, "sorry"},
		"rate limit in arguments": {llmtest.Fault{
			Fail: llmtest.AtArguments, Code: "rate_limit_exceeded", Message: "slow down",
		}, llm.KindRateLimit, "slow down"},
		"overload at the start": {llmtest.Fault{
			Fail: llmtest.AtStart, Message: "We are currently overloaded.",
		}, llm.KindOverloaded, "overloaded"},
	}
	for _, at := range []llmtest.Point{
		llmtest.AtStart, llmtest.AtText, llmtest.AtArguments, llmtest.AtEnd,
	} {
		faults["cut at "+string(at)] = Failure{Fault: llmtest.Fault{Cut: at}, Kind: llm.KindStream}
		faults["ends at "+string(at)] = Failure{Fault: llmtest.Fault{End: at}, Kind: llm.KindStream}
	}
	return faults
}

// An incomplete stream is an error, never half an answer, and the next attempt returns the whole
// one.
func testBroken(t *testing.T, w Wire) {
	for _, table := range []map[string]Failure{broken(), w.Broken} {
		for name, tt := range table {
			t.Run(name, func(t *testing.T) {
				reply := w.Reply()
				reply.Fault = tt.Fault
				srv, c := w.Connect(t, llmtest.Sequence(reply, reply, w.Reply()))
				_, err := llm.Complete(t.Context(), c, w.Request())
				w.checkError(t, err, tt.Kind, 200, tt.Text)
				resp, err := llm.Complete(t.Context(), atOnce(c, 0), w.Request())
				if err != nil {
					t.Fatal(err)
				}
				w.checkReply(t, resp)
				if n := len(srv.Requests()); n != 3 {
					t.Errorf("%d requests, want 3", n)
				}
			})
		}
	}
}
