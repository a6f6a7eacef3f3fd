package server

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// modelClient reads a ring like a client behind HTTP/2: bytes that were taken out may be lost on
// the way, but never more than ringKeep.
type modelClient struct {
	t      *testing.T
	ring   *ring
	number uint64
	taken  int64 // of this answer
	got    int64 // by the client, which checks each byte
}

func (m *modelClient) take(size int) int {
	p := make([]byte, size)
	n, err := m.ring.take(m.number, p)
	if err != nil {
		m.t.Fatalf("take: %v", err)
	}
	if !bytes.Equal(p[:n], wiretest.Sequence(m.taken, n)) {
		m.t.Fatalf("the bytes from %d on are wrong", m.taken)
	}
	m.taken += int64(n)
	return n
}

// resume makes a new answer at what has arrived.
func (m *modelClient) resume() {
	m.number++
	if err := m.ring.attach(m.number, m.got); err != nil {
		m.t.Fatalf("resume at %d, taken %d: %v", m.got, m.taken, err)
	}
	m.taken = m.got
}

// TestRingAgainstModel produces, takes, loses and resumes at random, beside a producer.
func TestRingAgainstModel(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		total := int64(random.IntN(4 * ringSize))
		woken := make(chan struct{}, 1)
		r := newRing(func() { signal(woken) })
		var producer sync.WaitGroup
		producer.Go(func() {
			sizes := rand.New(rand.NewPCG(seed, 2))
			for at := int64(0); at < total; {
				n := int(min(total-at, int64(sizes.IntN(200<<10))))
				if written, err := r.Write(wiretest.Sequence(at, n)); written != n || err != nil {
					t.Errorf("write: %d, %v", written, err)
				}
				at += int64(n)
			}
		})
		m := &modelClient{t: t, ring: r}
		m.resume()
		for m.got < total {
			for range random.IntN(20) {
				m.take(1 + random.IntN(maxOutput))
			}
			// Some of the taken bytes arrive; the rest is on its way, or is lost.
			onTheWay := int64(random.IntN(ringKeep + 1))
			if random.IntN(3) == 0 {
				onTheWay = 0
			}
			m.got = max(m.got, m.taken-onTheWay)
			if random.IntN(4) == 0 {
				m.resume()
			}
			if m.taken-m.got > ringKeep {
				t.Fatal("the model keeps more on its way than a connection can")
			}
			r.mu.Lock()
			if held := r.end - r.start; held > ringSize || len(r.buf) > ringSize {
				t.Fatalf("%d bytes held in %d", held, len(r.buf))
			}
			blocked, exhausted := r.end-r.start == ringSize, r.next == r.end
			r.mu.Unlock()
			if exhausted && !blocked && m.taken < total {
				<-woken
			}
			if blocked && exhausted {
				t.Fatal("the producer waits, and nothing is left to take")
			}
		}
		producer.Wait()
		if r.total() != total {
			t.Errorf("total is %d, want %d", r.total(), total)
		}
	}
}

func TestRingOffsets(t *testing.T) {
	r := newRing(func() {})
	const produced = ringKeep + 1000
	if _, err := r.Write(wiretest.Sequence(0, produced)); err != nil {
		t.Fatal(err)
	}
	if err := r.attach(1, 0); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for taken < produced-10 {
		n, err := r.take(1, make([]byte, min(1<<16, produced-10-taken)))
		if err != nil {
			t.Fatal(err)
		}
		taken += n
	}
	first := int64(taken - ringKeep)
	for _, c := range []struct {
		name   string
		offset int64
		held   bool
	}{
		{"before what is held", first - 1, false},
		{"the beginning", 0, false},
		{"negative", -1, false},
		{"behind what was handed out", int64(taken) + 1, false},
		{"behind the end", produced + 1, false},
		{"what was handed out last", int64(taken), true},
		{"the first that is held", first, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := r.attach(2, c.offset)
			if held := err == nil; held != c.held || (!held && !errors.Is(err, errNotHeld)) {
				t.Errorf("attach gives %v", err)
			}
		})
	}
	if _, err := r.take(1, make([]byte, 1)); !errors.Is(err, errReplaced) {
		t.Errorf("an answer that was replaced takes on: %v", err)
	}
}

func TestRingBlocksWhenFull(t *testing.T) {
	wiretest.NoLeaks(t)
	r := newRing(func() {})
	done := make(chan int, 1)
	go func() {
		n, _ := r.Write(wiretest.Sequence(0, 2*ringSize))
		done <- n
	}()
	wiretest.Eventually(t, "the ring is full", func() bool { return r.total() == ringSize })
	if err := r.attach(1, 0); err != nil {
		t.Fatal(err)
	}
	// What is taken is kept: the producer goes on only when more than ringKeep has been taken.
	for taken := 0; taken < ringKeep; {
		n, err := r.take(1, make([]byte, min(maxOutput, ringKeep-taken)))
		if err != nil {
			t.Fatal(err)
		}
		taken += n
	}
	if r.total() != ringSize {
		t.Fatal("the ring has forgotten what the client may still lack")
	}
	if _, err := r.take(1, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	wiretest.Eventually(t, "the producer goes on", func() bool { return r.total() == ringSize+100 })
	r.abandon()
	if n := <-done; n != ringSize+100 {
		t.Errorf("%d bytes were written", n)
	}
	if n, err := r.Write([]byte("x")); n != 0 || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a write to an abandoned ring: %d, %v", n, err)
	}
}

func TestRingMemory(t *testing.T) {
	for _, c := range []struct {
		name           string
		written, limit int
	}{
		{"nothing", 0, 0},
		{"a line", 80, ringMin},
		{"a page", 4000, 8 << 10},
		{"much", ringSize, ringSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRing(func() {})
			if _, err := r.Write(make([]byte, c.written)); err != nil {
				t.Fatal(err)
			}
			if len(r.buf) > c.limit {
				t.Errorf("%d bytes of memory for %d", len(r.buf), c.written)
			}
		})
	}
}
