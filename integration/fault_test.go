package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestFaults injects faults between the model, the loop, the tools and the user.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		run   func(*testing.T, func(*testing.T, wire))
		prove func(*testing.T, wire)
	}{
		{"F15_bytes_that_are_not_text", onWires, proveBytes},
		{"F16_control_sequences_for_the_model", onFirstWire, proveControl},
		{"F20_broken_streams", onWires, proveBrokenStreams},
		{"F20_cut_answers", onWires, proveCutAnswers},
		{"F21_waits_between_tries", onWires, proveWaits},
		{"F20_F21_storm_without_end", onWires, proveStorm},
		{"F20_F21_outage", onWires, proveOutage},
		{"F21_errors_that_are_not_retried", onWires, proveNoRetry},
		{"F21_deadline_of_the_run", onWires, proveDeadline},
		{"F21_longest_wait_of_the_program", onFirstWire, proveWaitOfProgram},
		{"F22_bad_calls", onWires, proveBadCalls},
		{"F22_unknown_names", onWires, proveNames},
		{"F22_ids", onWires, proveIDs},
		{"F22_two_hundred_calls", onWires, proveManyCalls},
		{"F22_long_arguments", onWires, proveLongArguments},
		{"F24_cancel_at_every_wait", onWires, proveCancel},
		{"F28_slow_and_panicking_subscribers", onFirstWire, proveSubscribers},
		{"F28_panicking_tool", onFirstWire, provePanickingTool},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, tt.prove) })
	}
}

// readJournal returns the entries of the session in dir, after a check that it is whole and ended.
func readJournal(t *testing.T, dir string) []journal.Entry {
	t.Helper()
	name := filepath.Join(dir, journal.JournalName)
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(raw) || !bytes.HasSuffix(raw, []byte("\n")) {
		t.Error("the journal is no text, or its last line has no end")
	}
	var entries []journal.Entry
	started, runs, last := 0, 0, ""
	for e, err := range journal.Read(name) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
		if e.Type != journal.TypeSnapshot { // which may come after the end
			last = e.Type
		}
		switch e.Type {
		case "run_started":
			runs++
		case "run_ended":
			runs--
		case "tool_started":
			started++
		case "tool_result":
			if started > 0 {
				started--
			}
		}
	}
	if runs != 0 || started != 0 || last != "session_ended" {
		t.Errorf("the journal of %d entries is not closed: %d runs and %d calls are open", len(entries),
			runs, started)
	}
	return entries
}

// lastRun returns the status of the last run in a journal.
func lastRun(t *testing.T, entries []journal.Entry) string {
	t.Helper()
	var end struct{ Status string }
	for _, e := range slices.Backward(entries) {
		if e.Type == "run_ended" {
			if err := json.Unmarshal(e.Data, &end); err != nil {
				t.Fatal(err)
			}
			return end.Status
		}
	}
	t.Error("the journal has no end of a run")
	return ""
}

// await waits until cond holds; event names it. A cluster may have no room for minutes. Between two
// looks it pauses as long as a look takes, which may start a process.
func await(t testing.TB, event string, cond func() bool) {
	t.Helper()
	const most = 10 * time.Minute
	for began := time.Now(); ; {
		look := time.Now()
		switch {
		case cond():
			return
		case time.Since(began) > most:
			t.Fatalf("%s did not happen", event)
		}
		time.Sleep(max(5*time.Millisecond, time.Since(look)))
	}
}

// lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// proveCancel ends the context of a run wherever the run may be waiting.
func proveCancel(t *testing.T, w wire) {
	stop := errors.New("enough")
	tests := map[string]struct {
		reply  llmtest.Reply
		at     func(event.Event) bool
		change func(c *agent.Config, cancel func())
		now    bool
	}{
		"for the first byte": {reply: llmtest.Reply{Fault: llmtest.Fault{Delay: time.Hour}}, now: true},
		"in a stream": {
			reply: llmtest.Reply{
				Text:  "some text of several pieces",
				Fault: llmtest.Fault{Hang: llmtest.AtEnd},
			},
			at: func(e event.Event) bool { return e.Kind() == event.KindTextDelta },
		},
		"in arguments": {
			reply: llmtest.Reply{
				Text: "look", Calls: []llmtest.Call{shell("echo never > never"), shell("echo never > never")},
				Fault: llmtest.Fault{Hang: llmtest.AtArguments},
			},
			at: func(e event.Event) bool { return e.Kind() == event.KindTextDelta },
		},
		"before a retry": {
			reply:  llmtest.Reply{Fault: llmtest.TooMany("", "100")},
			at:     func(e event.Event) bool { return e.Kind() == event.KindRetry },
			change: func(c *agent.Config, _ func()) { c.Retry.Clock = nil },
		},
		"for a command": {
			reply: llmtest.Use(shell("echo on; sleep 1000"), shell("echo never > never")),
			at:    func(e event.Event) bool { return e.Kind() == event.KindToolOutputDelta },
		},
		"for a person": {
			reply: llmtest.Use(use("ask_user", map[string]any{"question": "why?"})),
			change: func(c *agent.Config, cancel func()) {
				c.Answer = func(ctx context.Context, _ string) (string, error) {
					cancel()
					<-ctx.Done()
					return "", ctx.Err()
				}
			},
		},
		"for the check": {
			reply: llmtest.Text("done"),
			change: func(c *agent.Config, cancel func()) {
				c.Verify.Command = "touch checking; sleep 1000"
				file := filepath.Join(c.Env.Info().WorkDir, "checking")
				go func() {
					for {
						if _, err := os.Stat(file); err == nil {
							cancel()
							return
						}
						time.Sleep(5 * time.Millisecond)
					}
				}()
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			end := func() { cancel(stop) }
			s := wireSession(t, w, func(*llmtest.Request) llmtest.Reply {
				if tt.now {
					end()
				}
				return tt.reply
			}, func(c *agent.Config) {
				if tt.change != nil {
					tt.change(c, end)
				}
				c.Sinks = append(c.Sinks, func(e event.Event) error {
					if tt.at != nil && tt.at(e) {
						end()
					}
					return nil
				})
			})
			res, err := s.Submit(ctx, "go")
			if res.Status != agent.StatusAborted || !errors.Is(err, agent.ErrAborted) || !errors.Is(err,
				stop) {
				t.Errorf("ended with %s, %v", res.Status, err)
			}
			if _, err := os.Stat(filepath.Join(s.dir, "never")); err == nil {
				t.Error("a call ran that must not")
			}
		})
	}
}

// proveSubscribers has a subscriber that blocks and another that panics; the loop goes on.
func proveSubscribers(t *testing.T, w wire) {
	var log lockedBuffer
	release := make(chan struct{})
	var got, missed, panics atomic.Int64
	s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
		if r.Number < 30 {
			return llmtest.Use(use("list_dir", map[string]any{"path": "."}))
		}
		return llmtest.Text("done")
	}, func(c *agent.Config) {
		c.Log, c.ObserverBuffer, c.Limits.NoLoopDetection = slog.New(slog.NewTextHandler(&log,
			nil)), 4, true
		c.Observers = []func(event.Event){
			func(event.Event) {
				panics.Add(1)
				panic("the subscriber exploded")
			},
			func(e event.Event) {
				<-release
				if gap, ok := e.Data.(event.Gap); ok {
					missed.Add(gap.Missed)
				} else {
					got.Add(1)
				}
			},
		}
	})
	if res := s.submit("go"); len(res.ToolCalls) != 30 {
		t.Errorf("%d calls", len(res.ToolCalls))
	}
	all := int64(len(s.kinds()))
	close(release)
	await(t, "the delivery of the other events",
		func() bool { return got.Load()+missed.Load() >= all })
	if got.Load()+missed.Load() != all || missed.Load() < all/2 {
		t.Errorf("%d events came and %d were missed, of %d", got.Load(), missed.Load(), all)
	}
	await(t, "the log of the panic", func() bool {
		return strings.Contains(log.String(), "the subscriber exploded")
	})
	if panics.Load() != 1 {
		t.Errorf("the subscriber that panicked was called %d times", panics.Load())
	}
	wantContains(t, "the log", log.String(), "the subscriber exploded", "goroutine",
		"proveSubscribers")
	for _, shown := range s.shown(30) {
		if strings.Contains(shown, "exploded") {
			t.Errorf("the model is shown %q", shown)
		}
	}
}

// provePanickingTool has tools that panic between tools that do not.
func provePanickingTool(t *testing.T, w wire) {
	explode := func(name string, readOnly bool) tool.Tool {
		x := custom(name, "")
		x.ReadOnly = readOnly
		x.Run = func(_ context.Context, c *tool.Call) (tool.Result, error) {
			_, _ = c.Out.Write([]byte("so far\n"))
			panic("boom in " + name)
		}
		return x
	}
	var log lockedBuffer
	calls := []llmtest.Call{
		use("list_dir", map[string]any{"path": "."}), use("peek", map[string]any{"target": "x"}),
		use("list_dir", map[string]any{"path": "."}),
		use("poke", map[string]any{"target": "x"}), shell("echo still here"),
	}
	s := wireSession(t, w, llmtest.Sequence(llmtest.Use(calls...), llmtest.Text("I go on")),
		func(c *agent.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Tools = []tool.Tool{explode("peek", true), explode("poke", false)}
		})
	if res := s.submit("go"); res.Final != "I go on" || len(res.ToolCalls) != 5 {
		t.Errorf("%+v", res)
	}
	shown := s.shown(1)
	if len(shown) != 5 {
		t.Fatalf("%d results", len(shown))
	}
	wantContains(t, "the result after the panics", shown[4], "still here")
	for i, name := range map[int]string{1: "peek", 3: "poke"} {
		wantContains(t, "the result", shown[i], "so far\n",
			"the tool "+name+" panicked (boom in "+name+")")
		wantContains(t, "the log", log.String(), "boom in "+name)
	}
	wantContains(t, "the log", log.String(), "goroutine", "provePanickingTool")
	kinds := map[string]string{}
	for _, e := range data[event.ToolCallEnd](s) {
		kinds[e.Name] = e.ErrorKind
	}
	if kinds["peek"] != string(tool.KindPanic) || kinds["poke"] != string(tool.KindPanic) ||
		kinds["list_dir"] != "" {
		t.Errorf("kinds of errors: %v", kinds)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	outside := s.request(1).Body
	for _, e := range s.events {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		outside = append(outside, b...)
	}
	for _, e := range readJournal(t, s.Dir()) {
		outside = append(outside, e.Data...)
	}
	if bytes.Contains(outside, []byte("goroutine ")) || bytes.Contains(outside, []byte("_test.go")) {
		t.Error("the stack is not in the log alone")
	}
}
