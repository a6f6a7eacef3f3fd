package agent

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// testHub returns a hub whose goroutines must have ended at the end of the test.
func testHub(t *testing.T) *hub {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	return newHub("s", time.Now, slog.New(slog.DiscardHandler))
}

func TestHubKeepsOneOrder(t *testing.T) {
	h := testHub(t)
	var a, b []int64
	h.addSink(func(e event.Event) error { a = append(a, e.Seq); return nil })
	remove := h.addSink(func(e event.Event) error { b = append(b, e.Seq); return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	remove()
	if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil {
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
	h.close(time.Second)
	if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil || len(a) != 801 {
		t.Errorf("an event after Close: %v", err)
	}
}

func TestFailingSinkIsReported(t *testing.T) {
	h := testHub(t)
	defer h.close(time.Second)
	broken := errors.New("broken")
	h.addSink(func(event.Event) error { return broken })
	h.addSink(func(event.Event) error { panic("no") })
	n := 0
	h.addSink(func(event.Event) error { n++; return nil })
	if err := h.emit(event.Origin{}, "r", event.TextStart{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if n != 1 {
		t.Error("the sink after a broken one got nothing")
	}
}

// TestSlowSubscriber blocks one subscriber during many events. A sink misses none, and the events
// and gaps of the subscriber add up to all.
func TestSlowSubscriber(t *testing.T) {
	h := testHub(t)
	const total = 100_000
	release := make(chan struct{})
	var got, missed, last int64
	h.subscribe(16, func(e event.Event) {
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
	h.addSink(func(event.Event) error { fast++; return nil })
	for range total {
		if err := h.emit(event.Origin{}, "r", event.TextDelta{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	h.close(10 * time.Second)
	if fast != total || missed == 0 || got+missed != total {
		t.Errorf("sink %d, subscriber got %d and missed %d of %d", fast, got, missed, total)
	}
}

func TestSubscriberEnds(t *testing.T) {
	h := testHub(t)
	h.subscribe(1, func(event.Event) { panic("no") })
	var mu sync.Mutex
	n := 0
	cancel := h.subscribe(8, func(event.Event) { mu.Lock(); defer mu.Unlock(); n++ })
	all := 0
	h.subscribe(100, func(event.Event) { all++ })
	for range 5 {
		if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	cancel()
	h.close(10 * time.Second)
	if all != 5 {
		t.Errorf("Close lost %d of 5 waiting events", 5-all)
	}
	h.subscribe(1, func(event.Event) { t.Error("an event after Close") })
	if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil {
		t.Fatal(err)
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	h := testHub(t)
	release := make(chan struct{})
	h.subscribe(1, func(event.Event) { <-release })
	if err := h.emit(event.Origin{}, "r", event.TextStart{}); err != nil {
		t.Fatal(err)
	}
	h.close(time.Millisecond)
	close(release)
	h.close(10 * time.Second)
}
