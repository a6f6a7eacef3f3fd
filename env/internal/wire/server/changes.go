package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxChanges is how many changes are retained after their end.
	maxChanges = 8192
	// maxOutcome bounds the retained error of a change. A longer one is shortened.
	maxOutcome = 2 << 10
	// maxMarks bounds the number of clients with a mark.
	maxMarks = 4096
)

var (
	// errForgotten reports that a change may have been made.
	errForgotten = fmt.Errorf("%w: the server has forgotten the change", env.ErrUnknownOutcome)
	// errNotStarted is the outcome of a change whose outcome was requested before it started.
	errNotStarted = errors.New("the change was given up before it started")
)

// change is a change of files. Its outcome is valid once done is closed.
type change struct {
	done       chan struct{}
	record     wire.EndRecord
	cutOff     bool // the request did not arrive whole
	notStarted bool // it never starts
}

// changes are the changes in progress and the last ones that have ended.
type changes struct {
	mu    sync.Mutex
	byID  map[string]*change
	ended []string // the oldest first, from next on and around
	next  int
	// marks are the highest numbers of forgotten changes, by client: those up to it may have
	// been made. It has maxMarks entries at most.
	marks map[string]uint64
}

func (t *changes) init() {
	t.byID = make(map[string]*change)
	t.marks = make(map[string]uint64)
}

// changeNumber splits an id into the client's and its number in base 36. An id of another form is
// that of a client with one change.
func changeNumber(id string) (client string, number uint64) {
	if i := strings.LastIndexByte(id, '-'); i >= 0 {
		if n, err := strconv.ParseUint(id[i+1:], 36, 64); err == nil {
			return id[:i], n
		}
	}
	return id, 0
}

// forgotten reports whether a change that is not retained may have been made. The lock is held.
func (t *changes) forgotten(id string) bool {
	client, number := changeNumber(id)
	mark, ok := t.marks[client]
	return ok && number <= mark
}

// forget forgets a change. The lock is held.
func (t *changes) forget(id string) {
	delete(t.byID, id)
	client, number := changeNumber(id)
	if _, ok := t.marks[client]; !ok && len(t.marks) == maxMarks {
		// Any of them: only a client that reconnects in time needs its own.
		for other := range t.marks {
			delete(t.marks, other)
			break
		}
	}
	t.marks[client] = max(number, t.marks[client])
}

// start returns the change with the given id. A fresh one is made by the caller.
func (t *changes) start(p *peer, id string) (o *change, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.byID[id]; o != nil {
		return o, false, nil
	}
	switch {
	case !p.current():
		return nil, false, errCutOff
	case t.forgotten(id):
		return nil, false, errForgotten
	}
	o = &change{done: make(chan struct{})}
	t.byID[id] = o
	return o, true, nil
}

// outcome returns the change with the given id. A change that has not started never starts: its
// request may still be on its way when the client has reported that it was not made, or repeats it
// under another id.
func (t *changes) outcome(id string) (*change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.byID[id]; o != nil {
		return o, nil
	}
	if t.forgotten(id) {
		return nil, errForgotten
	}
	o := &change{
		done:   make(chan struct{}),
		record: wire.EndRecord{Error: wire.ToError(errNotStarted)}, notStarted: true,
	}
	t.byID[id] = o
	t.retain(id, o)
	return o, nil
}

// finish records the end of a change.
func (t *changes) finish(id string, o *change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retain(id, o)
}

// retain retains a change that has ended, and forgets the oldest. The lock is held.
func (t *changes) retain(id string, o *change) {
	close(o.done)
	if len(t.ended) < maxChanges {
		t.ended = append(t.ended, id)
		return
	}
	t.forget(t.ended[t.next])
	t.ended[t.next] = id
	t.next = (t.next + 1) % maxChanges
}

// changeFunc makes a change and returns the value of its response.
type changeFunc func(ctx context.Context, r *http.Request, q query) (any, error)

// change returns the handler of a changeFunc. A change that has started goes on without its
// connection; one without all of its content fails.
func (p *peer) change(h changeFunc) handler {
	return func(r *http.Request, a *response) error {
		id := r.Header.Get(wire.ChangeHeader)
		if !validID(id) {
			return errMalformed
		}
		q, err := parseQuery(r)
		if err != nil {
			return err
		}
		o, fresh, err := p.s.changes.start(p, id)
		if err != nil {
			return err
		}
		var record wire.EndRecord
		if fresh {
			record = p.perform(h, r, q, o)
			o.record = retained(record)
			p.s.changes.finish(id, o)
		} else {
			if err := o.wait(r.Context()); err != nil {
				return err
			}
			record = o.record
		}
		return a.finish(wire.FrameEnd, &record, func() { record.Error = shorten(record.Error) })
	}
}

// perform makes a change and returns its outcome.
func (p *peer) perform(h changeFunc, r *http.Request, q query, o *change) wire.EndRecord {
	slot, err := p.s.gate.acquire(r.Context())
	if err != nil {
		o.cutOff = true
		return wire.EndRecord{Error: wire.ToError(err)}
	}
	defer slot.release()
	body := &wholeBody{ReadCloser: r.Body}
	r.Body = readCloser{slot.reader(body), r.Body}
	var value any
	err = catchPanic(func() (err error) {
		value, err = h(context.WithoutCancel(r.Context()), r, q)
		return err
	})
	o.cutOff = err != nil && body.cut.Load()
	record := wire.EndRecord{Error: wire.ToError(err)}
	if value != nil {
		encoded, err := json.Marshal(value)
		record.Value = encoded
		if err != nil {
			record.Error = wire.ToError(err)
		}
	}
	return record
}

// retained returns an outcome in the form that is retained.
func retained(r wire.EndRecord) wire.EndRecord {
	if r.Error != nil {
		if encoded, err := json.Marshal(r.Error); err != nil || len(encoded) > maxOutcome {
			r.Error = shorten(r.Error)
		}
	}
	return r
}

// wait waits for the end of a change.
func (o *change) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	}
}

// outcome responds with the outcome of a change.
func (p *peer) outcome(r *http.Request, a *response) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	o, err := p.s.changes.outcome(id)
	if err != nil {
		return err
	}
	if err := o.wait(r.Context()); err != nil {
		return err
	}
	if o.notStarted {
		a.value = wire.ChangeOutcome{}
		return nil
	}
	a.value = wire.ChangeOutcome{Known: true, CutOff: o.cutOff, Outcome: &o.record}
	return nil
}

// wholeBody is the body of a request. It records whether it was cut off.
type wholeBody struct {
	io.ReadCloser
	cut atomic.Bool
}

func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.cut.Store(true)
	}
	return n, err
}

// readCloser is a body with another reader.
type readCloser struct {
	io.Reader
	io.Closer
}
