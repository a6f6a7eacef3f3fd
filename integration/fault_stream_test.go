package integration_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// streamFault is a way in which an answer can arrive. With again it is incomplete, and the request
// is sent once more.
type streamFault struct {
	fault llmtest.Fault
	again bool
}

// streamFaults are those of all wires.
var streamFaults = map[string]streamFault{
	"cut before the first event": {llmtest.Fault{Cut: llmtest.AtStart}, true},
	"cut in a token":             {llmtest.Fault{Cut: llmtest.AtText}, true},
	"cut in arguments":           {llmtest.Fault{Cut: llmtest.AtArguments}, true},
	"cut after whole arguments":  {llmtest.Fault{Cut: llmtest.AtEnd}, true},
	"end in a token":             {llmtest.Fault{End: llmtest.AtText}, true},
	"end in arguments":           {llmtest.Fault{End: llmtest.AtArguments}, true},
	"end after whole arguments":  {llmtest.Fault{End: llmtest.AtEnd}, true},
	"error in a token": {llmtest.Fault{
		Fail: llmtest.AtText, Code: "server_error", Message: "oops",
	}, true},
	"error in arguments": {llmtest.Fault{
		Fail: llmtest.AtArguments, Code: "server_error", Message: "oops",
	}, true},
	"error after whole arguments": {llmtest.Fault{
		Fail: llmtest.AtEnd, Code: "server_error", Message: "oops",
	}, true},
	"reset":                        {llmtest.Fault{Reset: true}, true},
	"no gzip":                      {llmtest.Fault{Gzip: true}, true},
	"content length far too small": {llmtest.Fault{Length: -1200}, true},
	"cut in arguments, bytes, CRLF": {llmtest.Fault{
		Cut: llmtest.AtArguments, OneByte: true, CRLF: true, Comments: true,
	}, true},
	"cut in a token, long event":   {llmtest.Fault{Cut: llmtest.AtText, Pad: 1 << 20}, true},
	"content length too large":     {llmtest.Fault{Length: 50}, false},
	"bytes one by one":             {llmtest.Fault{OneByte: true}, false},
	"CRLF":                         {llmtest.Fault{CRLF: true}, false},
	"comments":                     {llmtest.Fault{Comments: true}, false},
	"bytes, CRLF, comments":        {llmtest.Fault{OneByte: true, CRLF: true, Comments: true}, false},
	"event of a megabyte":          {llmtest.Fault{Pad: 1 << 20}, false},
	"event of a megabyte, CRLF":    {llmtest.Fault{Pad: 1 << 20, CRLF: true, Comments: true}, false},
	"nothing after the last event": {llmtest.Fault{NoDone: true}, false},
}

// proveBrokenStreams has a good answer, then an answer that arrives badly, with a call that must
// run exactly if it is complete.
func proveBrokenStreams(t *testing.T, w wire) {
	each := llm.Usage{Input: 100, Output: 10}
	reply := func(text string, calls ...llmtest.Call) llmtest.Reply {
		return llmtest.Reply{Text: text, Calls: calls, Usage: each}
	}
	faults := maps.Clone(streamFaults)
	for name, fault := range w.broken {
		faults[name] = streamFault{fault, true}
	}
	for name, tt := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faulty := reply("This is the answer that arrives badly.", shell("echo faulty >> counter"),
				shell("echo faulty too >> counter"))
			faulty.Fault = tt.fault
			replies := []llmtest.Reply{reply("", shell("echo first >> counter")), faulty}
			want := "first\nfaulty\nfaulty too\n"
			if tt.again {
				replies = append(replies, reply("This is the answer that arrives.",
					shell("echo again >> counter")))
				want = "first\nagain\n"
			}
			s := wireSession(t, w, llmtest.Sequence(append(replies, reply("done"))...))
			res := s.submit("go")
			if got := s.read("counter"); got != want {
				t.Errorf("the commands that ran are %q, want %q", got, want)
			}
			usage := llm.Usage{Input: 3 * each.Input, Output: 3 * each.Output}
			if res.Usage != usage || s.Usage() != usage || res.ModelCalls != 3 || res.Final != "done" {
				t.Errorf("usage %+v, of the session %+v, after %d answers", res.Usage, s.Usage(),
					res.ModelCalls)
			}
			retries := data[event.Retry](s)
			if len(retries) > 0 != tt.again || len(retries) > 1 ||
				len(s.server.Requests()) != len(replies)+1 {
				t.Errorf("%d requests, retries %+v", len(s.server.Requests()), retries)
			}
			if !tt.again {
				return
			}
			if !bytes.Equal(s.request(1).Body, s.request(2).Body) {
				t.Error("the request was not sent again as it was")
			}
			if bytes.Contains(s.request(3).Body, []byte("badly")) || bytes.Contains(s.request(3).Body,
				[]byte("faulty")) {
				t.Error("the next request holds the partial answer")
			}
			for _, e := range data[event.ToolCallStart](s) {
				if strings.Contains(e.Arguments, "faulty") {
					t.Errorf("a call of the partial answer began: %+v", e)
				}
			}
			for _, e := range readClosed(t, s) {
				if strings.Contains(e, "faulty") {
					t.Errorf("the journal holds the partial answer: %s", e)
				}
			}
		})
	}
	t.Run("silence in arguments", func(t *testing.T) {
		t.Parallel()
		silent := llmtest.Use(shell("echo never >> counter"), shell("echo never >> counter"))
		silent.Fault = llmtest.Fault{Hang: llmtest.AtArguments}
		srv := llmtest.NewServer(t, w.brain(llmtest.Sequence(silent,
			llmtest.Use(shell("echo once >> counter")), llmtest.Text("done"))))
		client, err := w.client(srv, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s := wireSession(t, w, nil, func(c *agent.Config) { c.Client = client })
		s.submit("go")
		if got := s.read("counter"); got != "once\n" || len(srv.Requests()) != 3 {
			t.Errorf("the commands that ran are %q, after %d requests", got, len(srv.Requests()))
		}
	})
}

// readClosed closes a session and returns the data of its journal.
func readClosed(t *testing.T, s *session) []string {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range readJournal(t, s.Dir()) {
		all = append(all, string(e.Data))
	}
	return all
}

// proveCutAnswers has answers that end at the output limit: the text stays, the calls do not run.
func proveCutAnswers(t *testing.T, w wire) {
	cut := func(text string, calls ...llmtest.Call) llmtest.Reply {
		return llmtest.Reply{
			Text: text, Calls: calls, Reasoning: "I think about it.", Finish: llm.FinishLength,
		}
	}
	t.Run("continued", func(t *testing.T) {
		t.Parallel()
		s := wireSession(t, w, llmtest.Sequence(
			cut("One, two", shell("echo cut >> counter")), cut(""),
			llmtest.Use(shell("echo whole >> counter")), cut("Three, "), llmtest.Text("four."),
		))
		res := s.submit("count")
		if got := s.read("counter"); got != "whole\n" || res.Final != "Three, four." {
			t.Errorf("the commands that ran are %q, the answer is %q", got, res.Final)
		}
		last := s.request(4)
		texts := make([]string, 0, len(last.Messages))
		for _, m := range last.Messages {
			texts = append(texts, string(m.Role)+": "+m.Text())
		}
		if got := strings.Join(texts, "\n"); strings.Count(got, "cut off at the output limit") != 3 ||
			!strings.Contains(got, "assistant: One, two") || !strings.Contains(got, "assistant: Three, ") {
			t.Errorf("the last request holds %s", got)
		}
	})
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		s := wireSession(t, w, llmtest.Sequence(cut("One, "), cut("two, "), cut("three")))
		res, err := s.Submit(t.Context(), "count")
		if err != nil || res.Status != agent.StatusLimit || res.Limit != "output_tokens" ||
			res.Final != "One, two, three" {
			t.Errorf("ended with %s by %q and %q, %v", res.Status, res.Limit, res.Final, err)
		}
	})
}
