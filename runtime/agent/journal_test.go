package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// entriesOf returns the data of the entries of one type.
func entriesOf[T any](t *testing.T, r *recorder, typ string) (list []T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.typ != typ {
			continue
		}
		var data T
		if err := json.Unmarshal([]byte(e.data), &data); err != nil {
			t.Fatal(err)
		}
		list = append(list, data)
	}
	return list
}

// TestJournalHasStates looks at the journal of a run that goes on, and then at all of it.
func TestJournalHasStates(t *testing.T) {
	rec := &recorder{}
	steps := func() []session.State { return entriesOf[session.State](t, rec, session.TypeState) }
	var during []session.State
	work := newTool("work", true, func(context.Context, *tool.Call) (tool.Result, error) {
		during = steps()
		return tool.Result{}, nil
	})
	cfg := config(&model{answers: []answer{calls(call("a", "work", nil)), {text: "done"}}}, work)
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	res := submit(t, newSession(t, cfg), "go")
	var want []session.State
	for _, s := range res.Transitions {
		want = append(want, session.State{RunID: res.RunID, Status: event.Status{
			From: string(s.From), Signal: string(s.Signal), To: string(s.To),
		}})
	}
	if diff := cmp.Diff(want, steps()); diff != "" || len(want) != 5 {
		t.Errorf("the steps in the journal (-taken +stored):\n%s", diff)
	}
	if diff := cmp.Diff(want[:3], during); diff != "" {
		t.Errorf("the steps before the end of a call (-taken +stored):\n%s", diff)
	}
}

// TestJournalHasTimesOfSteps moves the clock in each request and in each call.
func TestJournalHasTimesOfSteps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start
	wait := func(context.Context, llm.Request) { now = now.Add(time.Minute) }
	work := newTool("work", false, func(context.Context, *tool.Call) (tool.Result, error) {
		now = now.Add(time.Hour)
		return tool.Result{}, nil
	})
	rec := &recorder{}
	cfg := config(&model{answers: []answer{
		{calls: []llm.ToolCall{call("a", "work", nil)}, before: wait}, {text: "done", before: wait},
	}}, work)
	cfg.Clock = &movable{&now}
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	res := submit(t, newSession(t, cfg), "go")
	want := []time.Duration{0, 0, time.Minute, time.Hour + time.Minute, time.Hour + 2*time.Minute}
	var got, stored []time.Duration
	for _, step := range res.Transitions {
		got = append(got, step.Time.Sub(start))
	}
	for _, step := range entriesOf[session.RunEnded](t, rec, session.TypeRunEnded)[0].Transitions {
		stored = append(stored, step.Time.Sub(start))
	}
	if !slices.Equal(got, want) || !slices.Equal(stored, want) {
		t.Errorf("the steps are at %v, in the journal at %v, want %v", got, stored, want)
	}
}

// TestJournalHasChanges changes a file twice. Each result has its change, with the backup that has
// the content before.
func TestJournalHasChanges(t *testing.T) {
	dir, sessions := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "f"), "one")
	change := func(id, content string) answer {
		return calls(call(id, "write_file", object{"file_path": "f", "content": content}))
	}
	cfg := configIn(t, dir, &model{answers: []answer{change("a", "two"), change("b", "three")}},
		tool.WriteFile())
	cfg.Store, cfg.Backups, cfg.ReadFirst = session.OnDisk(sessions), true, false
	s := newSession(t, cfg)
	submit(t, s, "go")
	var backups []string
	for e, err := range session.Read(filepath.Join(s.Dir(), session.JournalName)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != session.TypeToolResult {
			continue
		}
		var r session.ToolResult
		if err := json.Unmarshal(e.Data, &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Changes) != 1 || r.Changes[0].Path != "f" ||
			r.Changes[0].Kind != event.FileModified {
			t.Fatalf("the result of %s has the changes %+v", r.Result.CallID, r.Changes)
		}
		content, err := os.ReadFile(r.Changes[0].Backup)
		if err != nil {
			t.Fatal(err)
		}
		backups = append(backups, string(content))
	}
	if !slices.Equal(backups, []string{"one", "two"}) {
		t.Errorf("the backups have %q", backups)
	}
}

// TestJournalHasFailures has a call and a check that fail. A long message is cut.
func TestJournalHasFailures(t *testing.T) {
	long := strings.Repeat("x", 5000)
	fails := newTool("fails", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, errors.New("start " + long + " end")
	})
	rec := &recorder{}
	cfg := configIn(t, t.TempDir(), &model{answers: []answer{calls(call("a", "fails", nil))}}, fails)
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	cfg.Verify = agent.Verify{Command: "exit 7", Attempts: 1}
	res, _ := newSession(t, cfg).Submit(t.Context(), "go")
	ended := entriesOf[session.RunEnded](t, rec, session.TypeRunEnded)
	if len(ended) != 1 || len(ended[0].Failures) != 2 || len(res.Failures) != 2 {
		t.Fatalf("the result has the failures %+v, the journal %+v", res.Failures, ended)
	}
	for i, f := range ended[0].Failures {
		want := res.Failures[i]
		want.Message, want.Time = f.Message, want.Time.Round(0)
		if !cmp.Equal(f, want) || f.Source != []event.FailureSource{"tool", "verify"}[i] ||
			f.Tool != []string{"fails", ""}[i] || f.CallID != []string{"a", ""}[i] {
			t.Errorf("the failure %+v is not %+v", f, want)
		}
	}
	if m := ended[0].Failures[0].Message; len(m) > 1100 || !strings.Contains(m, "start x") ||
		!strings.HasSuffix(m, "x end") {
		t.Errorf("the message is %q", m)
	}
	if m := ended[0].Failures[1].Message; m != res.Failures[1].Message || !strings.Contains(m, "7") {
		t.Errorf("the message of the check is %q", m)
	}
}

// retrying is a client whose first attempts fail.
type retrying struct {
	llm.Client
	// sent gets each request before it is answered.
	sent func()
}

func (r retrying) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		r.sent()
		again := llm.Delta{Kind: llm.DeltaRetry, Retry: &llm.RetryNotice{
			Attempt: 2, Delay: 3 * time.Second, Err: errors.New("busy"),
		}}
		if !yield(again, nil) {
			return
		}
		for d, err := range r.Client.Stream(ctx, req) {
			if !yield(d, err) {
				return
			}
		}
	}
}

// TestJournalHasRequests has the start of each request in the journal before it is sent, and each
// retry; so do requests for a summary.
func TestJournalHasRequests(t *testing.T) {
	rec := &recorder{}
	var n callLog
	m := &model{answers: []answer{
		calls(call("a", "look", nil)),
		{text: strings.Repeat("a word ", 2000)},
		{text: "more"},
		{text: "the summary"},
	}}
	var before []string
	client := retrying{m, func() {
		types := rec.types()
		before = append(before, types[len(types)-1])
	}}
	cfg := config(client, n.tool("look", true))
	cfg.Profile.ContextWindow = 0
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	ev := watch(&cfg)
	s := newSession(t, cfg)
	first, second := submit(t, s, "go"), submit(t, s, "go on")
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := func(run string, number int) session.ModelRequest {
		return session.ModelRequest{RunID: run, ModelCall: number, Model: "m"}
	}
	want := []session.ModelRequest{
		request(first.RunID, 1), request(first.RunID, 2), request(second.RunID, 1), request("", 0),
	}
	if got := entriesOf[session.ModelRequest](t, rec, session.TypeModelRequest); !slices.Equal(got,
		want) {
		t.Errorf("the requests are %+v, want %+v", got, want)
	}
	if !slices.Equal(before, slices.Repeat([]string{session.TypeModelRequest}, len(want))) {
		t.Errorf("the entries before the requests are %v", before)
	}
	got := entriesOf[session.Retry](t, rec, session.TypeRetry)
	for i, r := range want {
		notice := session.Retry{RunID: r.RunID, ModelCall: r.ModelCall, Retry: event.Retry{
			Attempt: 2, DelayMS: 3000, Error: "busy",
		}}
		if len(got) != len(want) || got[i] != notice {
			t.Fatalf("the retries are %+v", got)
		}
	}
	if ev.count(event.KindRetry) != len(want) {
		t.Errorf("%d events", ev.count(event.KindRetry))
	}
}

// TestUnstoredRetryEndsTheRun has a store that fails at a retry.
func TestUnstoredRetryEndsTheRun(t *testing.T) {
	for _, compact := range []bool{false, true} {
		m := &model{answers: []answer{{text: strings.Repeat("a word ", 2000)}, {text: "more"}}}
		store := &flakyStore{}
		cfg := config(retrying{m, func() {}})
		cfg.Profile.ContextWindow = 0
		cfg.Store = func(string) (session.Store, error) { return store, nil }
		s := newSession(t, cfg)
		if compact {
			submit(t, s, "go")
			submit(t, s, "go on")
		}
		store.at = session.TypeRetry
		var err error
		if compact {
			err = s.Compact(t.Context())
		} else {
			_, err = s.Submit(t.Context(), "go")
		}
		if !errors.Is(err, errDisk) {
			t.Errorf("compact %v: the error is %v", compact, err)
		}
	}
}
