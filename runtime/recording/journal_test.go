package recording_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/recording"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// busy is a client that sends each request again once.
type busy struct{ llm.Client }

func (b busy) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		again := llm.Delta{Kind: llm.DeltaRetry, Retry: &llm.RetryNotice{
			Attempt: 2, Delay: time.Second, Err: errors.New("busy"),
		}}
		if !yield(again, nil) {
			return
		}
		b.Client.Stream(ctx, req)(yield)
	}
}

// withoutFields removes the fields that older journals lack.
func withoutFields(t *testing.T, raw json.RawMessage) json.RawMessage {
	t.Helper()
	var data map[string]any
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	delete(data, "changes")
	delete(data, "failures")
	steps, _ := data["steps"].([]any)
	for _, step := range steps {
		delete(step.(map[string]any), "time")
	}
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestJournalWithoutRequests replays a journal, and the same one without the entries and fields
// that older journals lack.
func TestJournalWithoutRequests(t *testing.T) {
	var n looks
	dir := record(t, simple(busy{scripted(t, script)}, &n), "go")
	created := open(t, dir).Created
	older := filepath.Join(t.TempDir(), filepath.Base(dir))
	journal, err := session.Create(older, session.Options{
		Now: func() time.Time { return created },
	})
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for e, err := range session.Read(filepath.Join(dir, session.JournalName)) {
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]string{session.TypeModelRequest, session.TypeRetry}, e.Type) {
			left[e.Type]++
			continue
		}
		data := e.Data
		if e.Type == session.TypeToolResult || e.Type == session.TypeRunEnded {
			data = withoutFields(t, data)
		}
		if err := journal.Append(e.Type, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	if left[session.TypeModelRequest] != 3 || left[session.TypeRetry] != 3 {
		t.Errorf("the journal has %v", left)
	}
	var events []string
	for _, d := range []string{dir, older} {
		out, err := play(t, open(t, d), simple(nil, &n), recording.PlayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, out)
	}
	if events[0] != events[1] {
		t.Errorf("the events are\n%s\nand without the entries\n%s", events[0], events[1])
	}
}
