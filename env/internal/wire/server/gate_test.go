package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func TestGateBounds(t *testing.T) {
	wiretest.NoLeaks(t)
	const size, operations = 3, 50
	g := newGate(size)
	var running, most atomic.Int32
	enter := func() {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
	}
	var all sync.WaitGroup
	for range operations {
		all.Go(func() {
			s, err := g.acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.release()
			for range 20 {
				enter()
				running.Add(-1)
				s.pause()
				s.resume()
			}
			enter()
			running.Add(-1)
		})
	}
	all.Wait()
	if most.Load() > size {
		t.Errorf("%d operations ran at once", most.Load())
	}
	if len(g) != 0 {
		t.Errorf("%d operations are still counted", len(g))
	}
}

// TestGateNetwork has an operation wait for the network, which delays no other.
func TestGateNetwork(t *testing.T) {
	wiretest.NoLeaks(t)
	g := newGate(1)
	s, err := g.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	never, stop := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := s.reader(never).Read(make([]byte, 1))
		read <- err
	}()
	wiretest.Within(t, "another operation enters", func() {
		other, err := g.acquire(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		other.release()
	})
	_ = stop.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if len(g) != 1 {
		t.Error("the operation did not enter again")
	}
	s.release()
	if len(g) != 0 {
		t.Error("the operation did not leave")
	}
}

// TestGateAbandonedReader: an operation may leave a reader behind in the network.
func TestGateAbandonedReader(t *testing.T) {
	wiretest.NoLeaks(t)
	g := newGate(1)
	s, err := g.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.pause()
	s.release()
	s.resume()
	if len(g) != 0 {
		t.Error("the operation entered after its end")
	}
}

func TestGateContext(t *testing.T) {
	g := newGate(1)
	s, err := g.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if _, err := g.acquire(ctx); !errors.Is(err, why) {
		t.Errorf("enter: %v", err)
	}
}

func TestNoGate(t *testing.T) {
	s, err := newGate(0).acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.pause()
	s.resume()
	if err := iotest.TestReader(s.reader(strings.NewReader("abc")), []byte("abc")); err != nil {
		t.Error(err)
	}
	s.release()
}
