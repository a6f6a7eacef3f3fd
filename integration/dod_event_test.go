package integration_test

import (
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// eventProofs prove 9.10.
var eventProofs = map[string]func(*testing.T){
	"9.10.1": proveEveryKind,
	"9.10.2": proveDelivery,
	"9.10.3": proveFullOutput,
	"9.10.4": func(t *testing.T) {
		s := newSession(t, textBrain("yes"))
		s.submit("one")
		s.submit("two")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		kinds := s.kinds()
		count := map[event.Kind]int{}
		for _, k := range kinds {
			count[k]++
		}
		if kinds[0] != event.KindSessionStart || kinds[len(kinds)-1] != event.KindSessionEnd ||
			kinds[len(kinds)-2] != event.KindProcessingEnd ||
			count[event.KindSessionStart] != 1 || count[event.KindSessionEnd] != 1 ||
			count[event.KindProcessingEnd] != 2 {
			t.Errorf("events %v", kinds)
		}
	},
}

// proveEveryKind makes all kinds of events, and checks the order of those that belong together.
func proveEveryKind(t *testing.T) {
	var s *session
	brain := func(r *llmtest.Request) llmtest.Reply {
		switch {
		case r.Number == 0:
			return llmtest.Reply{Fault: llmtest.Fault{Status: 503}}
		case r.Number == 1:
			if err := s.Steer("look left"); err != nil {
				t.Error(err)
			}
			reply := llmtest.Use(shell("echo out"))
			reply.Reasoning, reply.Text = "I think", "I run it"
			reply.Usage = llm.Usage{Input: 9000, Output: 10}
			return reply
		case r.Number < 14:
			return llmtest.Use(shell("false"))
		}
		return llmtest.Text("done")
	}
	s = newSession(t, brain, func(c *agent.Config) {
		c.Profile.ContextWindow = 10_000
		c.Limits.MaxToolRounds, c.Limits.MaxReplans = 14, -1
		c.Verify = agent.Verify{Command: "true"}
	})
	s.submit("go")
	res, err := s.Run(t.Context(), agent.Input{Text: "more", Limits: &agent.Limits{MaxTurns: 1}})
	if err != nil || res.Status != agent.StatusLimit {
		t.Fatalf("ended with %s, %v", res.Status, err)
	}
	if _, err := s.Submit(t.Context(), "again"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kinds := s.kinds()
	for _, want := range []event.Kind{
		event.KindSessionStart, event.KindSessionEnd, event.KindUserInput, event.KindProcessingEnd,
		event.KindTextStart, event.KindTextDelta,
		event.KindTextEnd, event.KindReasoningDelta, event.KindToolCallStart, event.KindToolOutputDelta,
		event.KindToolCallEnd,
		event.KindSteeringInjected, event.KindTurnLimit, event.KindLoopDetection, event.KindStatus,
		event.KindRetry, event.KindVerify, event.KindWarning,
	} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no event is a %s", want)
		}
	}
	inOrder(t, kinds, event.KindUserInput, event.KindRetry, event.KindTextStart, event.KindTextDelta,
		event.KindTextEnd, event.KindToolCallStart,
		event.KindToolOutputDelta, event.KindToolCallEnd, event.KindSteeringInjected,
		event.KindLoopDetection, event.KindVerify, event.KindProcessingEnd)
	failing := newSession(t, llmtest.Storm(1, llmtest.Fault{Status: 401}, textBrain("never")))
	if _, err := failing.Submit(t.Context(), "go"); err == nil ||
		len(data[event.Error](failing)) != 1 {
		t.Errorf("after an error: %v, %v", err, failing.kinds())
	}
}

// inOrder checks that want stands in kinds in this order, with anything between.
func inOrder(t *testing.T, kinds []event.Kind, want ...event.Kind) {
	t.Helper()
	rest := kinds
	for _, k := range want {
		i := slices.Index(rest, k)
		if i < 0 {
			t.Errorf("%s is not where it belongs in %v", k, kinds)
			return
		}
		rest = rest[i+1:]
	}
}

// proveDelivery receives events from an iterator, and by slow subscribers.
func proveDelivery(t *testing.T) {
	s := newSession(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Number%21 == 20 {
			return llmtest.Text("done")
		}
		return llmtest.Use(shell("echo hi"))
	}, func(c *agent.Config) { c.Limits.NoLoopDetection = true })

	var seen []int64
	var res agent.RunResult
	for e, err := range s.agent.RunStream(t.Context(), agent.Input{Text: "go", SessionID: s.ID()},
		&res) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.Seq)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] != seen[i-1]+1 {
			t.Fatalf("event %d follows event %d", seen[i], seen[i-1])
		}
	}
	if res.Status != agent.StatusCompleted || len(seen) < 100 {
		t.Errorf("ended with %s after %d events", res.Status, len(seen))
	}

	proveSubscribers(t, wires()[0])
}
