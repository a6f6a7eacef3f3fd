package event_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newHub() *event.Hub { return event.NewHub("s", nil, slog.New(slog.DiscardHandler)) }

func TestHubKeepsOneOrder(t *testing.T) {
	h := newHub()
	var a, b []int64
	h.AddSink(func(e event.Event) error { a = append(a, e.Seq); return nil })
	remove := h.AddSink(func(e event.Event) error { b = append(b, e.Seq); return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := h.Emit("r", event.TextStart{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	remove()
	if err := h.Emit("r", event.TextStart{}); err != nil {
		t.Fatal(err)
	}
	if len(a) != 801 || len(b) != 800 {
		t.Fatalf("sinks got %d and %d events", len(a), len(b))
	}
	for i, seq := range a {
		if seq != int64(i+1) {
			t.Fatalf("event %d has the number %d", i, seq)
		}
	}
	h.Close(time.Second)
	if err := h.Emit("r", event.TextStart{}); err != nil || len(a) != 801 {
		t.Errorf("an event after Close: %v", err)
	}
}

func TestFailingSinkIsReported(t *testing.T) {
	h := newHub()
	defer h.Close(time.Second)
	broken := errors.New("broken")
	h.AddSink(func(event.Event) error { return broken })
	h.AddSink(func(event.Event) error { panic("no") })
	n := 0
	h.AddSink(func(event.Event) error { n++; return nil })
	if err := h.Emit("r", event.TextStart{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if n != 1 {
		t.Error("the sink after a broken one got nothing")
	}
}

// TestSlowSubscriber blocks one subscriber during many events. A sink misses none, and the events
// and gaps of the subscriber add up to all.
func TestSlowSubscriber(t *testing.T) {
	h := newHub()
	const total = 100_000
	release := make(chan struct{})
	var got, missed, last int64
	h.Subscribe(16, func(e event.Event) {
		<-release
		if gap, ok := e.Data.(event.Gap); ok {
			missed += gap.Missed
		} else {
			got++
			if e.Seq <= last {
				t.Errorf("event %d after %d", e.Seq, last)
			}
		}
		last = e.Seq
	})
	fast := 0
	h.AddSink(func(event.Event) error { fast++; return nil })
	for range total {
		if err := h.Emit("r", event.TextDelta{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	h.Close(10 * time.Second)
	if fast != total || missed == 0 || got+missed != total {
		t.Errorf("sink %d, subscriber got %d and missed %d of %d", fast, got, missed, total)
	}
}

func TestSubscriberEnds(t *testing.T) {
	h := newHub()
	h.Subscribe(1, func(event.Event) { panic("no") })
	var mu sync.Mutex
	n := 0
	cancel := h.Subscribe(8, func(event.Event) { mu.Lock(); defer mu.Unlock(); n++ })
	all := 0
	h.Subscribe(100, func(event.Event) { all++ })
	for range 5 {
		if err := h.Emit("r", event.TextStart{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	cancel()
	h.Close(10 * time.Second)
	if all != 5 {
		t.Errorf("Close lost %d of 5 waiting events", 5-all)
	}
	h.Subscribe(1, func(event.Event) { t.Error("an event after Close") })
	if err := h.Emit("r", event.TextStart{}); err != nil {
		t.Fatal(err)
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	h := newHub()
	release := make(chan struct{})
	h.Subscribe(1, func(event.Event) { <-release })
	if err := h.Emit("r", event.TextStart{}); err != nil {
		t.Fatal(err)
	}
	h.Close(time.Millisecond)
	close(release)
	h.Close(10 * time.Second)
}
