package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// inputBuffer is the size of the buffer for a caller's reader.
	inputBuffer = 64 << 10
	// maxEmpty bounds how often in a row a reader may return neither bytes nor an error.
	maxEmpty = 100
)

// input reads the caller's reader for a command in a goroutine, so that a Read that blocks does not
// delay the end of the command.
type input struct {
	queue   *queue
	mu      sync.Mutex
	stopped bool
	err     error // of the reader
}

func newInput(r io.Reader) *input {
	in := &input{queue: newQueue()}
	go in.read(r)
	return in
}

func (in *input) read(r io.Reader) {
	defer in.queue.end()
	buf := make([]byte, inputBuffer)
	for empty := 0; in.isOpen(); {
		n, err := r.Read(buf)
		if n > 0 {
			empty = 0
			if !in.queue.put(buf[:n]) {
				return
			}
		} else if empty++; empty == maxEmpty && err == nil {
			err = io.ErrNoProgress
		}
		if err == nil {
			continue
		}
		in.mu.Lock()
		if !errors.Is(err, io.EOF) && !in.stopped {
			in.err = fmt.Errorf("stdin: %w", err)
		}
		in.mu.Unlock()
		return
	}
}

// isOpen reports whether the command takes more.
func (in *input) isOpen() bool {
	in.queue.mu.Lock()
	defer in.queue.mu.Unlock()
	return !in.queue.closed
}

// stop ends the reading, without waiting for a Read in progress, and returns the reader's error.
func (in *input) stop() error {
	in.queue.close()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = true
	return in.err
}

// feed sends stdin in pieces until its end, or until the command takes no more.
func (x *execution) feed(life context.Context) {
	defer x.input.queue.close()
	for offset := int64(0); ; {
		data, end := x.input.queue.take()
		p := piece{x: x, offset: offset, data: data, end: end}
		err := errBroken
		// Without its input the command might wait for ever.
		for errors.Is(err, errBroken) && life.Err() == nil {
			err = x.c.retry(life, func(l *link) error { return p.send(life, l) })
		}
		if err != nil || end || p.closed {
			return // the result of the command has the error
		}
		offset += int64(len(data))
	}
}

// piece is a piece of stdin.
type piece struct {
	x      *execution
	offset int64
	data   []byte
	end    bool // nothing comes after it
	sent   bool // the server may have a part of it
	closed bool // the command takes no more
}

// send sends the part that the command has not read yet.
func (p *piece) send(life context.Context, l *link) error {
	if p.sent { // over a connection that broke
		if err := p.post(life, l, nil, false); err != nil || p.closed {
			return err
		}
	}
	p.sent = true
	if err := p.post(life, l, p.data, p.end); err != nil || p.closed {
		return err
	}
	if len(p.data) > 0 {
		return p.x.c.violation(fmt.Errorf("%w: a piece of stdin was not read", env.ErrProtocol))
	}
	return nil
}

// post sends data as the next bytes and reads how much of the piece the command has read by then.
func (p *piece) post(life context.Context, l *link, data []byte, end bool) error {
	query := url.Values{"offset": {strconv.FormatInt(p.offset, 10)}}
	if end {
		query.Set("end", "1")
	}
	path := "/exec/" + p.x.id + "/stdin"
	var answer wire.StdinState
	err := p.x.c.single(life, l, request{method: "POST", path: path, query: query, body: data},
		&answer)
	if err == nil && answer.Unknown {
		return p.wait(life)
	}
	got := answer.Taken - p.offset
	switch {
	case errors.Is(err, errLost), err != nil && life.Err() != nil:
		return err
	case err != nil:
		return p.x.c.violation(fmt.Errorf("%w: stdin: %w", env.ErrProtocol, err))
	case answer.Closed:
		p.closed = true
	case got < 0, got > int64(len(p.data)):
		return p.x.c.violation(fmt.Errorf("%w: %d bytes of stdin were read", env.ErrProtocol,
			answer.Taken))
	default:
		p.offset, p.data = answer.Taken, p.data[got:]
	}
	return nil
}

// wait delays the repetition of a piece: the server does not have the command yet.
func (p *piece) wait(life context.Context) error {
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return errLost
	case <-life.Done():
		return env.ContextError(life)
	}
}

// resize forwards the sizes of the terminal.
func (x *execution) resize(life context.Context, sizes <-chan env.TTYSize) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			body, err := json.Marshal(size)
			if size == (env.TTYSize{}) || err != nil {
				continue
			}
			// A size that does not arrive does no harm, and the next one may.
			_ = x.c.value(life, request{
				method: "POST", path: "/exec/" + x.id + "/resize",
				body: body,
			}, nil)
		case <-life.Done():
			return
		}
	}
}

// interrupt forwards interrupts. One that may have been lost with its connection is repeated.
func (x *execution) interrupt(life context.Context) {
	for {
		select {
		case _, ok := <-x.cmd.Interrupt:
			if !ok {
				return
			}
			_ = x.c.value(life, request{method: "POST", path: "/exec/" + x.id + "/interrupt"}, nil)
		case <-life.Done():
			return
		}
	}
}
