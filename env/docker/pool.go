package docker

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

// Pool keeps environments ready, so that whoever needs one does not wait for the start of a container. It is made by
// NewPool. Its methods may be called concurrently.
type Pool struct {
	engine *Engine
	config Config
	want   int

	life context.Context //nolint:containedctx // that of the environments being made, which belong to no caller
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool
	making int
	ready  []*Environment
	failed error         // of the last attempt
	change chan struct{} // closed when ready, failed or closed changes
}

// NewPool returns a pool that keeps n environments of a configuration ready, and begins to make them. The configuration has
// no Session, since each has its own. The caller closes the pool before the engine.
func (e *Engine) NewPool(c Config, n int) (*Pool, error) {
	checked, err := c.check()
	switch {
	case err != nil:
		return nil, err
	case c.Session != "":
		return nil, &ConfigError{Field: "session", Reason: "the environments of a pool cannot all have one name"}
	case n < 1:
		return nil, &ConfigError{Field: "pool", Reason: "it holds at least one environment"}
	}
	checked.Session = ""
	p := &Pool{engine: e, config: checked, want: n, change: make(chan struct{})}
	p.life, p.end = context.WithCancel(e.life)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fill()
	return p, nil
}

// fill starts making what is missing. The caller holds mu.
func (p *Pool) fill() {
	for !p.closed && p.making+len(p.ready) < p.want {
		p.making++
		p.work.Add(1)
		go p.makeOne()
	}
}

func (p *Pool) makeOne() {
	defer p.work.Done()
	made, err := p.engine.Open(p.life, p.config)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making--
	switch {
	case err != nil:
		p.failed = err
	case p.closed:
		p.work.Add(1)
		go func() {
			defer p.work.Done()
			_ = made.Close() // nobody ever had it
		}()
	default:
		p.failed = nil
		p.ready = append(p.ready, made)
	}
	p.announce()
}

// announce wakes those who wait. The caller holds mu.
func (p *Pool) announce() {
	close(p.change)
	p.change = make(chan struct{})
}

// Claim returns an environment that nobody has had, and has another one made in its place. If none is ready it waits for the
// next. One whose container has gone meanwhile is passed over. The caller closes the environment, which is never handed out
// again. The error is the end of ctx, fs.ErrClosed, or why no environment can be made.
func (p *Pool) Claim(ctx context.Context) (*Environment, error) {
	for {
		e, change, err := p.take()
		if err != nil {
			return nil, err
		}
		if e == nil {
			select {
			case <-change:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		// One round trip tells whether it is still there.
		_, err = e.Stat(ctx, ".")
		if err == nil {
			return e, nil
		}
		cerr := e.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, env.ErrGone) {
			return nil, errors.Join(err, cerr)
		}
	}
}

// take takes an environment that is ready, or returns what announces the next change.
func (p *Pool) take() (*Environment, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, nil, fs.ErrClosed
	case len(p.ready) > 0:
		e := p.ready[0]
		p.ready = p.ready[1:]
		p.fill()
		return e, nil, nil
	case p.failed != nil && p.making == 0:
		err := p.failed
		p.failed = nil // whoever asks next has another try made
		return nil, nil, err
	}
	p.fill()
	return nil, p.change, nil
}

// Ready returns how many environments are ready.
func (p *Pool) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// Close closes the environments that nobody has claimed, and ends the making of others.
func (p *Pool) Close() error {
	p.mu.Lock()
	closing := !p.closed
	ready := p.ready
	if closing {
		p.closed, p.ready = true, nil
		p.announce()
	}
	p.mu.Unlock()
	p.end()
	var errs []error
	if closing {
		for _, e := range ready {
			errs = append(errs, e.Close())
		}
	}
	p.work.Wait()
	return errors.Join(errs...)
}
