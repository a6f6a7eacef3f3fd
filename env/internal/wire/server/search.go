package server

import (
	"net/http"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/search"
)

const (
	// batchSize and batchTime bound how many bytes are collected, and for how long, before they are
	// sent.
	batchSize = 64 << 10
	batchTime = 50 * time.Millisecond
)

// batch collects records and sends them as arrays. It has the response for itself until stop.
type batch struct {
	a    *response
	slot *slot // of the goroutine that adds, given up while that sends

	mu      sync.Mutex
	buf     []byte
	timer   *time.Timer // nil until the first record
	stopped bool
}

func newBatch(a *response) *batch {
	b := &batch{a: a, slot: a.slot}
	a.slot = nil
	return b
}

// add adds one record.
func (b *batch) add(v any) error {
	record, err := wire.Encode(v)
	if err != nil {
		return err
	}
	if !b.mu.TryLock() { // the timer sends
		b.slot.pause()
		b.mu.Lock()
		b.slot.resume()
	}
	defer b.mu.Unlock()
	if b.a.err != nil {
		return b.a.err
	}
	if len(b.buf) > 0 && len(b.buf)+len(record)+2 > batchSize {
		if err := b.sendPaused(); err != nil {
			return err
		}
	}
	if len(b.buf) == 0 {
		b.buf = append(b.buf, '[')
		b.start()
	} else {
		b.buf = append(b.buf, ',')
	}
	b.buf = append(b.buf, record...)
	return nil
}

// start starts the timer that sends the batch.
func (b *batch) start() {
	if b.timer != nil {
		b.timer.Reset(batchTime)
		return
	}
	b.timer = time.AfterFunc(batchTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.stopped {
			_ = b.send() // add and flush return the error
		}
	})
}

// send sends the collected records.
func (b *batch) send() error {
	if len(b.buf) == 0 {
		return b.a.err
	}
	err := b.a.frame(wire.FrameRecords, append(b.buf, ']'))
	b.buf = b.buf[:0]
	if err == nil {
		err = b.a.flush()
	}
	return err
}

func (b *batch) sendPaused() error {
	b.slot.pause()
	defer b.slot.resume()
	return b.send()
}

// flush adds the collected records to the response, which sends them with its end.
func (b *batch) flush() error {
	b.slot.pause()
	defer b.slot.resume()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf) == 0 || b.a.err != nil {
		return b.a.err
	}
	err := b.a.frame(wire.FrameRecords, append(b.buf, ']'))
	b.buf = b.buf[:0]
	return err
}

// stop returns the response. Records that were not flushed are discarded.
func (b *batch) stop() {
	b.slot.pause()
	defer b.slot.resume()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.a.slot = b.slot
}

// walk sends the entries below a directory.
func (p *peer) walk(r *http.Request, a *response) error {
	var request wire.WalkRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	b := newBatch(a)
	defer b.stop()
	opts := search.WalkOptions{
		NoIgnore: request.NoIgnore, MaxDepth: request.MaxDepth,
		Details: request.Details,
	}
	err := search.Walk(r.Context(), p.s.environment(), string(request.Root), opts,
		func(e search.Entry) error {
			return b.add(toWalkEntry(e))
		})
	if flushErr := b.flush(); flushErr != nil {
		return flushErr
	}
	return err
}

func toWalkEntry(e search.Entry) wire.WalkEntry {
	return wire.WalkEntry{
		Name: wire.Text(e.Name), Size: e.Size, Mode: e.Mode,
		Seconds: e.ModTime.Unix(), Nanos: int64(e.ModTime.Nanosecond()),
		Stamp: e.Stamp, Error: entryError(e.Err),
	}
}

// entryError returns the error of one of many entries, short enough for a frame with others.
func entryError(err error) *wire.Error { return wire.EncodeError(err, 3) }

// glob sends the entries that match a pattern.
func (p *peer) glob(r *http.Request, a *response) error {
	var request wire.GlobRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	found, err := search.Glob(r.Context(), p.s.environment(), search.GlobOptions{
		Pattern: string(request.Pattern), Dir: string(request.Dir), IgnoreCase: request.IgnoreCase,
		NoIgnore: request.NoIgnore, AnyType: request.AnyType, Limit: request.Limit,
	})
	b := newBatch(a)
	defer b.stop()
	for _, e := range found {
		if err := b.add(toWalkEntry(e)); err != nil {
			return err
		}
	}
	if flushErr := b.flush(); flushErr != nil {
		return flushErr
	}
	return err
}

// grep sends the lines that match.
func (p *peer) grep(r *http.Request, a *response) error {
	var request wire.GrepRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	b := newBatch(a)
	defer b.stop()
	stats, err := search.Grep(r.Context(), p.s.environment(), search.GrepOptions{
		Pattern: string(request.Pattern), Literal: request.Literal, IgnoreCase: request.IgnoreCase,
		Multiline: request.Multiline,
		Path:      string(request.Path), Glob: string(request.Glob),
		Exclude: string(request.Exclude),
		Types:   request.Types, NoIgnore: request.NoIgnore,
		Mode: request.Mode, Before: request.Before, After: request.After,
		MaxMatches: request.MaxMatches, MaxFileMatches: request.MaxFileMatches,
		MaxLineBytes: request.MaxLineBytes,
		MaxTime:      request.MaxTime, MaxBytes: request.MaxBytes,
	}, func(m search.GrepMatch) error {
		return b.add(wire.GrepMatch{
			Name: wire.Text(m.Name), Line: m.Line, Text: wire.Text(m.Text),
			Cut: m.LineCut, Context: m.Context, Count: m.Count,
		})
	})
	if flushErr := b.flush(); flushErr != nil {
		return flushErr
	}
	a.value = stats
	return err
}
