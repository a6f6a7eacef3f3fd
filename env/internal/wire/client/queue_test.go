package client

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// TestQueue hands over pieces of many sizes.
func TestQueue(t *testing.T) {
	wiretest.NoLeaks(t)
	const total = 20 << 20
	for name, most := range map[string]int{
		"small pieces": 100, "large pieces": 64 << 10,
		"more than a window": wire.Window + wire.Window/2,
	} {
		t.Run(name, func(t *testing.T) {
			total := int64(min(total, 5000*most))
			q := newQueue()
			go func() {
				random := rand.New(rand.NewPCG(1, 2))
				for at := int64(0); at < total; {
					n := int(min(total-at, int64(random.IntN(most))))
					q.put(wiretest.Sequence(at, n))
					at += int64(n)
				}
				q.end()
			}()
			random := rand.New(rand.NewPCG(3, 4))
			for at, end := int64(0), false; !end; {
				var data []byte
				if data, end = q.take(); random.IntN(3) > 0 {
					q.mu.Lock() // what was taken stays as it is while more is put
					if q.held > max(wire.Window, most) || q.held < q.taken || len(data) == 0 && !end {
						t.Errorf("%d bytes are held, %d taken, %d given", q.held, q.taken, len(data))
					}
					q.mu.Unlock()
				}
				if !bytes.Equal(data, wiretest.Sequence(at, len(data))) {
					t.Fatalf("other bytes than were put at %d", at)
				}
				if at += int64(len(data)); end && at != total {
					t.Errorf("%d of %d bytes", at, total)
				}
			}
		})
	}
}

// TestQueueIsLeft ends a put that waits for room and a take that waits for data.
func TestQueueIsLeft(t *testing.T) {
	wiretest.NoLeaks(t)
	q := newQueue()
	if !q.put(make([]byte, wire.Window)) {
		t.Error("a window does not fit")
	}
	put := make(chan bool)
	go func() { put <- q.put([]byte("x")) }()
	q.close()
	if <-put {
		t.Error("something was put although nothing more is taken")
	}
	if data, end := q.take(); len(data) > 0 || !end {
		t.Errorf("%d bytes, end %t", len(data), end)
	}
	q = newQueue()
	ended := make(chan bool)
	go func() {
		_, end := q.take()
		ended <- end
	}()
	q.close()
	if !<-ended {
		t.Error("a take that waits has not ended")
	}
}
