package client

import (
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// queue is a bounded buffer of bytes between two goroutines. It holds one window at most.
type queue struct {
	mu     sync.Mutex
	change sync.Cond
	buf    []byte // a ring
	start  int    // the index of the first byte
	held   int    // the number of bytes
	taken  int    // the number of bytes of the last take, still held
	ended  bool   // put is not called any more
	closed bool   // take is not called any more
}

// queueMin is the first size of the buffer.
const queueMin = 4 << 10

func newQueue() *queue {
	q := &queue{}
	q.change.L = &q.mu
	return q
}

// put adds a copy of p when it has room for it. It reports false if the queue is closed.
func (q *queue) put(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.held > 0 && q.held+len(p) > wire.Window {
		q.change.Wait()
	}
	if q.closed {
		return false
	}
	if need := q.held + len(p); need > len(q.buf) {
		buf := make([]byte, max(need, queueMin, min(2*len(q.buf), wire.Window)))
		n := copy(buf, q.buf[q.start:min(q.start+q.held, len(q.buf))])
		copy(buf[n:], q.buf[:q.held-n])
		q.buf, q.start = buf, 0
	}
	end := (q.start + q.held) % len(q.buf)
	n := copy(q.buf[end:], p)
	copy(q.buf, p[n:])
	q.held += len(p)
	q.change.Signal()
	return true
}

// end marks the end of the bytes.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Signal()
}

// take waits for bytes and returns the next ones, and whether they are the last. They are valid
// until the next call.
func (q *queue) take() (data []byte, end bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken > 0 {
		q.start, q.held, q.taken = (q.start+q.taken)%len(q.buf), q.held-q.taken, 0
		q.change.Signal()
	}
	for q.held == 0 && !q.ended && !q.closed {
		q.change.Wait()
	}
	if q.closed {
		return nil, true
	}
	data = q.buf[q.start:min(q.start+q.held, len(q.buf))]
	q.taken = len(data)
	return data, q.ended && q.taken == q.held
}

// close discards the bytes and ends a take or put in progress.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.buf, q.start, q.held, q.taken = true, nil, 0, 0, 0
	q.change.Broadcast()
}
