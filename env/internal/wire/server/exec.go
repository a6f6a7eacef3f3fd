package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// arrivalTimeout bounds how long a request for a command waits for the request that starts it.
	arrivalTimeout = 10 * time.Second
	// stdinBuffer is how many bytes of a piece are given to the command at once.
	stdinBuffer = 64 << 10
)

// exec starts a command, or resumes its output.
func (p *peer) exec(r *http.Request, a *response) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	stdout, err := q.number("stdout")
	if err != nil {
		return err
	}
	stderr, err := q.number("stderr")
	if err != nil {
		return err
	}
	var request wire.ExecRequest
	if err := decodeBody(r, &request); err != nil {
		return err
	}
	c, fresh, err := p.s.commands.start(p, id, &request, stdout+stderr > 0)
	if err != nil {
		return err
	}
	if fresh {
		go p.s.run(c, &request)
	}
	return c.send(r.Context(), p, a, stdout, stderr)
}

// run runs a command to its end, independent of the request that started it. A DELETE cancels its
// context; closing the environment ends it otherwise.
func (s *Server) run(c *command, request *wire.ExecRequest) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c.setCancel(cancel)
	var result env.Result
	err := catchPanic(func() (err error) {
		result, err = s.environment().Exec(ctx, c.command(request))
		return err
	})
	s.commands.finish(c, c.outcome(result, err))
}

// cancel kills a command, or keeps it from starting.
func (p *peer) cancel(r *http.Request, _ *response) error {
	id, err := pathID(r)
	if err == nil {
		p.s.commands.cancel(id)
	}
	return err
}

// stdin gives a command a piece of its stdin.
func (p *peer) stdin(r *http.Request, a *response) error {
	c, err := p.arrived(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	offset, err := q.number("offset")
	if err != nil {
		return err
	}
	if c == nil || c.stdin == nil {
		a.value = wire.StdinState{Closed: c != nil, Unknown: c == nil}
		return nil
	}
	if !p.current() {
		return errCutOff
	}
	buf, _ := p.s.buffers.Get().(*[]byte)
	defer p.s.buffers.Put(buf)
	err = c.stdin.feed(r.Context(), offset, r.Body, q.flag("end"), (*buf)[:stdinBuffer])
	switch {
	case err == nil:
		a.value = c.stdin.state()
		return nil
	case errors.Is(err, errGap):
		return errOffset
	case errors.Is(err, errPieceTooLarge):
		return errTooLong
	default:
		return errCutOff
	}
}

// resize sets the size of a command's terminal.
func (p *peer) resize(r *http.Request, _ *response) error {
	c, err := p.arrived(r)
	if err != nil {
		return err
	}
	var size env.TTYSize
	if err := decodeBody(r, &size); err != nil {
		return err
	}
	if c == nil || c.sizes == nil {
		return nil
	}
	return forward(r, c, c.sizes, size)
}

// interrupt interrupts a command.
func (p *peer) interrupt(r *http.Request, _ *response) error {
	c, err := p.arrived(r)
	if err != nil || c == nil {
		return err
	}
	return forward(r, c, c.interrupts, struct{}{})
}

// forward sends value to the environment that runs c, unless c ends before.
func forward[T any](r *http.Request, c *command, to chan<- T, value T) error {
	select {
	case to <- value:
	case <-c.done:
	case <-r.Context().Done():
		return cause(r.Context())
	}
	return nil
}

// arrived returns the command of a request, which may have overtaken the one that starts it; nil if
// it does not come.
func (p *peer) arrived(r *http.Request) (*command, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(p.s.commands.arrivalTimeout)
	defer timer.Stop()
	for {
		c, arrival := p.s.commands.get(id)
		if c != nil {
			return c, nil
		}
		select {
		case <-arrival:
		case <-timer.C:
			return nil, nil
		case <-r.Context().Done():
			return nil, cause(r.Context())
		}
	}
}

func (s *Server) environment() env.Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}
