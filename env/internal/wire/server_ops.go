package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxOps is how many changes are remembered once they have ended.
const maxOps = 1024

// op is a change. Its outcome is valid once done is closed.
type op struct {
	done   chan struct{}
	record endRecord
	cutOff bool // the request did not arrive whole
}

// ops are the changes in progress and the last ones that have ended.
type ops struct {
	mu    sync.Mutex
	byID  map[string]*op
	ended []string // the oldest first, from next on and around
	next  int
}

func (t *ops) init() { t.byID = make(map[string]*op) }

// begin returns the change with the given id. If it is not known, it is a new one, to be made by the caller.
func (t *ops) begin(p *peer, id string) (o *op, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.byID[id]; o != nil {
		return o, false, nil
	}
	if !p.current() {
		return nil, false, errCut
	}
	o = &op{done: make(chan struct{})}
	t.byID[id] = o
	return o, true, nil
}

// get returns the change with the given id; nil if it is not known.
func (t *ops) get(id string) *op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// end notes that a change has ended. The oldest is forgotten.
func (t *ops) end(id string, o *op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(o.done)
	if len(t.ended) < maxOps {
		t.ended = append(t.ended, id)
		return
	}
	delete(t.byID, t.ended[t.next])
	t.ended[t.next] = id
	t.next = (t.next + 1) % maxOps
}

// changer makes a change and returns the value of its answer.
type changer func(ctx context.Context, r *http.Request, q query) (any, error)

// change makes a handler of a changer. A change that has begun goes on, whatever becomes of the request; one that lacks a
// part of its content fails.
func (p *peer) change(h changer) handler {
	return func(r *http.Request, a *reply) error {
		id := r.Header.Get(opHeader)
		if !validID(id) {
			return errMalformed
		}
		q, err := parseQuery(r)
		if err != nil {
			return err
		}
		o, fresh, err := p.s.ops.begin(p, id)
		switch {
		case err != nil:
			return err
		case fresh:
			p.perform(h, r, q, o)
			p.s.ops.end(id, o)
		default:
			if err := o.wait(r.Context()); err != nil {
				return err
			}
		}
		record := o.record
		return a.last(frameEnd, &record, func() { record.Error = shorten(record.Error) })
	}
}

// perform makes a change and notes what came of it.
func (p *peer) perform(h changer, r *http.Request, q query, o *op) {
	slot, err := p.s.gate.enter(r.Context())
	if err != nil {
		o.cutOff, o.record.Error = true, toWireError(err)
		return
	}
	defer slot.leave()
	body := &wholeBody{ReadCloser: r.Body}
	r.Body = readCloser{slot.reader(body), r.Body}
	var value any
	err = guard(func() (err error) {
		value, err = h(context.WithoutCancel(r.Context()), r, q)
		return err
	})
	o.cutOff = err != nil && body.cut.Load()
	o.record.Error = toWireError(err)
	if value != nil {
		encoded, err := json.Marshal(value)
		o.record.Value = encoded
		if err != nil {
			o.record.Error = toWireError(err)
		}
	}
}

// wait waits for the end of a change.
func (o *op) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	}
}

// op tells what became of a change.
func (p *peer) op(r *http.Request, a *reply) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	o := p.s.ops.get(id)
	if o == nil {
		a.value = opAnswer{}
		return nil
	}
	if err := o.wait(r.Context()); err != nil {
		return err
	}
	a.value = opAnswer{Known: true, CutOff: o.cutOff, Outcome: &o.record}
	return nil
}

// wholeBody is the body of a request, and knows whether it was cut off.
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
