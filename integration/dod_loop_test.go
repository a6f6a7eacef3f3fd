package integration_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// loopProofs prove 9.1, 9.6, 9.7 and 9.11.
var loopProofs = map[string]func(*testing.T){
	"9.1.1": func(t *testing.T) {
		s := newSession(t, textBrain("hello"))
		if s.ID() == "" || s.State() != agent.SessionIdle {
			t.Errorf("session %q is %s", s.ID(), s.State())
		}
		start := data[event.SessionStart](s)
		if len(start) != 1 || start[0].Profile != "openai" || start[0].Backend != backendOf(t) ||
			start[0].WorkDir != s.env.Info().WorkDir {
			t.Errorf("the session began with %+v", start)
		}
	},
	"9.1.2": proveInputs,
	"9.1.3": proveInputs,
	"9.1.4": func(t *testing.T) {
		if agent.DefaultMaxToolRounds != 200 {
			t.Errorf("the default is %d", agent.DefaultMaxToolRounds)
		}
		s := newSession(t, endless(shell("true")),
			func(c *agent.Config) { c.Limits.NoLoopDetection = true })
		res, err := s.Submit(t.Context(), "go on")
		if err != nil || res.Status != agent.StatusLimit || res.Limit != "tool_rounds" ||
			len(res.ToolCalls) != 200 {
			t.Errorf("ended with %s by %q after %d calls, %v", res.Status, res.Limit, len(res.ToolCalls),
				err)
		}
		if s.State() != agent.SessionIdle {
			t.Errorf("the session is %s", s.State())
		}
	},
	"9.1.5": func(t *testing.T) {
		s := newSession(t, textBrain("yes"), func(c *agent.Config) { c.Limits.MaxTurns = 2 })
		s.submit("one")
		s.submit("two")
		res, err := s.Submit(t.Context(), "three")
		if err != nil || res.Status != agent.StatusLimit || res.Limit != "turns" ||
			len(s.server.Requests()) != 2 {
			t.Errorf("ended with %s by %q, %v", res.Status, res.Limit, err)
		}
		if n := len(data[event.TurnLimit](s)); n != 1 {
			t.Errorf("%d events of a limit", n)
		}
	},
	"9.1.6": proveShutdown,
	"9.1.7": withFirst(proveLoopWarning),
	"9.1.8": proveInputs,
	"9.6.1": withFirst(proveSteeringMidTask),
	"9.6.2": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Text("one"), llmtest.Text("two")))
		s.FollowUp("and then this")
		if res := s.submit("first this"); res.Final != "two" {
			t.Errorf("%q", res.Final)
		}
		messages := s.request(1).Messages
		if got := messages[len(messages)-1].Text(); got != "and then this" ||
			len(data[event.ProcessingEnd](s)) != 2 {
			t.Errorf("the second request ends with %q", got)
		}
	},
	"9.6.3": withFirst(proveSteeringMidTask),
	"9.6.4": withFirst(proveSteeringMidTask),
	"9.7.1": withFirst(proveEffortChange),
	"9.7.2": func(t *testing.T) {
		var s *session
		s = newSession(t, func(r *llmtest.Request) llmtest.Reply {
			if r.Number == 0 {
				s.Update(func(x *agent.Settings) {
					x.ReasoningEffort, x.Model, x.CommandTimeout, x.Instructions = "low", "gpt-5.2-mini",
						100*time.Millisecond, "Be brief."
				})
				if err := s.UpdateLimits(func(l *agent.Limits) { l.MaxToolRounds = 2 }); err != nil {
					t.Error(err)
				}
			}
			return llmtest.Use(use("shell", map[string]any{"command": "sleep 60"}))
		}, func(c *agent.Config) { c.Settings.ReasoningEffort = "high" })
		res, err := s.Submit(t.Context(), "think")
		if err != nil || res.Status != agent.StatusLimit || res.ModelCalls != 2 {
			t.Errorf("ended with %s after %d model calls, %v", res.Status, res.ModelCalls, err)
		}
		first, second := s.request(0), s.request(1)
		if first.ReasoningEffort != "high" || second.ReasoningEffort != "low" ||
			second.Model != "gpt-5.2-mini" {
			t.Errorf("efforts %q and %q, model %q", first.ReasoningEffort, second.ReasoningEffort,
				second.Model)
		}
		if strings.Contains(first.System, "Be brief.") || !strings.Contains(second.System, "Be brief.") {
			t.Error("the user's override did not change with the second request")
		}
		wantContains(t, "the result", s.shown(1)[0], "100 ms")
	},
	"9.7.3": func(t *testing.T) {
		for _, effort := range []string{"low", "medium", "high", "", "xhigh"} {
			s := newSession(t, textBrain("yes"), func(c *agent.Config) {
				c.Settings.ReasoningEffort = effort
			})
			s.submit("think")
			body := string(s.request(0).Body)
			if want := fmt.Sprintf(`"effort":%q`, effort); strings.Contains(body, want) != (effort != "") ||
				effort == "" && strings.Contains(body, `"effort"`) {
				t.Errorf("effort %q: %s", effort, body)
			}
		}
	},
	"9.11.1": withFirst(proveToolErrors),
	"9.11.2": func(t *testing.T) { proveWaits(t, wires()[0]) },
	"9.11.3": func(t *testing.T) {
		s := newSession(t, func(*llmtest.Request) llmtest.Reply {
			return llmtest.Reply{Fault: llmtest.Fault{
				Status: 401, Code: "invalid_api_key", Message: "Incorrect API key",
			}}
		})
		res, err := s.Submit(t.Context(), "go")
		if res.Status != agent.StatusModelError || llm.KindOf(err) != llm.KindAuth ||
			len(s.server.Requests()) != 1 {
			t.Errorf("ended with %s, %v after %d requests", res.Status, err, len(s.server.Requests()))
		}
		if e := data[event.Error](s); len(e) != 1 || e[0].Code != "auth" ||
			s.State() != agent.SessionClosed {
			t.Errorf("events %+v, session %s", e, s.State())
		}
	},
	"9.11.4": func(t *testing.T) {
		t.Run("warnings", proveContext)
		onWires(t, proveOverflow)
	},
	"9.11.5": proveAbortOrder,
}

// proveInputs has inputs in sequence, each of which ends by an answer without calls.
func proveInputs(t *testing.T) {
	s := newSession(t, llmtest.Sequence(
		llmtest.Use(shell("echo one > f")), llmtest.Use(shell("cat f; echo two >> f")),
		llmtest.Text("first"), llmtest.Text("second"), llmtest.Use(shell("cat f")), llmtest.Text("third"),
	))
	if res := s.submit("write f"); res.Final != "first" || res.ModelCalls != 3 {
		t.Errorf("%q after %d model calls", res.Final, res.ModelCalls)
	}
	s.wantFile("f", "one\ntwo\n")
	wantContains(t, "the second result", s.shown(2)[0], "one")
	if res := s.submit("look"); res.Final != "second" || res.ModelCalls != 1 {
		t.Errorf("%q after %d model calls", res.Final, res.ModelCalls)
	}
	if res := s.submit("show f"); res.Final != "third" {
		t.Errorf("%q", res.Final)
	}
	if n := len(s.request(5).Messages); n != 11 {
		t.Errorf("the last request holds %d messages, want 11", n)
	}
}

// proveAbortOrder aborts while an answer streams in and while a command runs.
func proveAbortOrder(t *testing.T) {
	marker := "order-" + fmt.Sprint(time.Now().UnixNano())
	paced := llmtest.Reply{
		Text:  strings.Repeat("many words ", 2000),
		Fault: llmtest.Fault{Pace: 20 * time.Millisecond},
	}
	for name, brain := range map[string]llmtest.Brain{
		"stream":  func(*llmtest.Request) llmtest.Reply { return paced },
		"command": endless(shell("echo started; sh -c 'sleep 300; : " + marker + "'")),
	} {
		s := newSession(t, brain)
		w := watchFor(t, marker)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last atomic.Pointer[event.Event] // set when Close returns, which waits for observers
		s.Subscribe(10_000, func(e event.Event) {
			switch e.Kind() {
			case event.KindTextDelta:
				cancel()
			case event.KindToolOutputDelta:
				await(t, "the command", func() bool {
					return w.seen.Load() || runtime.GOOS != "linux"
				})
				cancel()
			}
			last.Store(&e)
		})
		res, err := s.Submit(ctx, "go")
		if res.Status != agent.StatusAborted || !errors.Is(err, context.Canceled) ||
			s.State() != agent.SessionIdle {
			t.Errorf("%s: ended with %s, %v, session %s", name, res.Status, err, s.State())
		}
		if err := s.Close(); err != nil || s.State() != agent.SessionClosed {
			t.Errorf("%s: closed with %v, session %s", name, err, s.State())
		}
		kinds := s.kinds()
		if kinds[len(kinds)-1] != event.KindSessionEnd || kinds[len(kinds)-2] != event.KindProcessingEnd {
			t.Errorf("%s: events %v", name, kinds)
		}
		if end := last.Load(); end == nil || end.Kind() != event.KindSessionEnd {
			t.Errorf("%s: the observer's last event is %+v; events were not flushed", name, end)
		}
		if name == "command" {
			w.gone()
		}
	}
}

// proveContext has a context of 1000 tokens, of which a quarter is reserved for an answer, and an
// overflow of a conversation that is too short for a summary.
func proveContext(t *testing.T) {
	replies := []llmtest.Reply{}
	for _, used := range []int64{599, 600, 700, 400, 620} {
		r := llmtest.Use(use("shell", map[string]any{"command": "true"}))
		r.Usage = llm.Usage{Input: used - 200, CacheRead: 150, Output: 50}
		replies = append(replies, r)
	}
	replies = append(replies, llmtest.Reply{Fault: llmtest.Fault{
		Status: 400, Code: "context_length_exceeded", Message: "too long",
	}})
	s := newSession(t, llmtest.Sequence(replies...), func(c *agent.Config) {
		c.Profile.ContextWindow, c.Subagents.MaxDepth = 1000, -1
		c.Profile.Instructions, c.Profile.Tools = "Be brief.", c.Profile.Tools[3:4]
	})
	res, err := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusContextOverflow || llm.KindOf(err) != llm.KindContextLength ||
		s.State() != agent.SessionClosed {
		t.Errorf("ended with %s, %v, session %s", res.Status, err, s.State())
	}
	var codes []string
	for _, w := range data[event.Warning](s) {
		codes = append(codes, w.Code)
	}
	if want := []string{"context_usage", "context_usage", "context_overflow"}; !slices.Equal(codes,
		want) {
		t.Errorf("warnings %v, want %v", codes, want)
	}
}

// proveOverflow has a service with a shorter context than the profile. The service refuses the
// fifth request; the session makes one summary and tries once more. With again it refuses that try
// too.
func proveOverflow(t *testing.T, w wire) {
	for _, again := range []bool{false, true} {
		most, calls, refused, summaries := 0, 0, 0, 0
		s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
			if most == 0 {
				most = len(r.Body) + 70_000
			}
			summary := strings.Contains(r.System, "You summarize")
			switch {
			case len(r.Body) > most, again && refused > 0 && !summary:
				refused++
				return llmtest.Reply{Fault: w.tooLong}
			case summary:
				summaries++
				return llmtest.Text("THE SUMMARY")
			case calls == 5:
				return llmtest.Text("done")
			}
			calls++
			return llmtest.Use(shell(fmt.Sprintf("echo %d; printf '%%20000s' x", calls)))
		})
		res, err := s.Submit(t.Context(), "THE TASK")
		updates, warnings := data[event.ContextUpdated](s), data[event.Warning](s)
		if summaries != 1 || len(updates) != 1 || updates[0].Action != event.ContextCompacted ||
			len(warnings) == 0 || warnings[0].Code != "context_overflow" {
			t.Errorf("%d summaries, updates %+v, warnings %+v", summaries, updates, warnings)
		}
		if again {
			if res.Status != agent.StatusContextOverflow || llm.KindOf(err) != llm.KindContextLength ||
				refused != 2 || s.State() != agent.SessionClosed {
				t.Errorf("ended with %s, %v after %d refusals, session %s", res.Status, err, refused,
					s.State())
			}
			continue
		}
		if err != nil || res.Final != "done" || refused != 1 || len(res.ToolCalls) != 5 {
			t.Errorf("ended with %s, %v after %d refusals and %d calls", res.Status, err, refused,
				len(res.ToolCalls))
		}
		retried := s.request(len(s.server.Requests()) - 2)
		wantContains(t, "the second try", retried.Messages[0].Text(), "THE SUMMARY", "THE TASK")
	}
}
