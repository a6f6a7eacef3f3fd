package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Agent checks inputs, makes sessions and finds them again. It is safe for concurrent use.
type Agent struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	sessions map[string]*Session
	runs     map[string]*Session
}

// New makes an Agent. An error wraps ErrConfig.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	if cfg.Retry.Clock == nil {
		cfg.Retry.Clock = cfg.Clock
	}
	cfg.Client = llm.Retry(cfg.Client, cfg.Retry)
	return &Agent{cfg: cfg, sessions: map[string]*Session{}, runs: map[string]*Session{}}, nil
}

// NewSession makes a session, which looks around in the environment first. The caller closes it.
func (a *Agent) NewSession(ctx context.Context) (*Session, error) {
	return a.newSession(ctx, a.cfg.NewID(), nil)
}

func (a *Agent) newSession(
	ctx context.Context, id string, sink func(event.Event) error,
) (*Session, error) {
	s, err := openSession(ctx, a, id, lineage{}, sink)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.sessions[s.id] = s
	}
	a.mu.Unlock()
	if closed {
		return nil, errors.Join(fmt.Errorf("agent: %w", ErrClosed), s.Close())
	}
	return s, nil
}

// Session finds a session that is not closed; nil if there is none.
func (a *Agent) Session(id string) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[id]
}

// Run works on in until it is done and returns how that ended. A session that it made for in is
// closed again. The error is Result.Err, or what kept the run from beginning.
func (a *Agent) Run(ctx context.Context, in Input) (Result, error) {
	return a.run(ctx, in, nil)
}

func (a *Agent) run(ctx context.Context, in Input, sink func(event.Event) error) (Result, error) {
	s := a.Session(in.SessionID)
	switch {
	case s != nil:
		if sink != nil {
			defer s.hub.AddSink(sink)()
		}
	case in.SessionID != "" && !in.CreateSession:
		return Result{}, fmt.Errorf("agent: %w: there is no session %q", ErrConfig, in.SessionID)
	default:
		id := in.SessionID
		if id == "" {
			id = a.cfg.NewID()
		}
		var err error
		if s, err = a.newSession(ctx, id, sink); err != nil {
			return Result{}, err
		}
		defer s.Close() //nolint:errcheck // the run's result tells of a failing store
	}
	return s.Run(ctx, in)
}

// errStopped ends a run whose events nobody takes any more.
var errStopped = errors.New("the receiver of the events has gone")

// RunStream works on in as Run does and yields the events of its session as they happen; the loop
// waits for the receiver. Breaking off the iteration aborts the run. The last pair holds the error
// of the run, if there is one, and the zero Event. The result of the run is stored in *result if
// that is not nil, before the last pair.
func (a *Agent) RunStream(
	ctx context.Context, in Input, result *Result,
) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		events := make(chan event.Event)
		gone := make(chan struct{})
		var res Result
		var err error
		done := make(chan struct{})
		// However the iteration ends, by a panic of the receiver too, the run ends with it.
		defer func() {
			cancel(ErrAborted)
			close(gone)
			<-done
		}()
		sink := func(e event.Event) error {
			select {
			case events <- e:
				return nil
			case <-gone:
				return errStopped
			}
		}
		go func() {
			defer close(done)
			res, err = a.run(ctx, in, sink)
		}()
		for {
			select {
			case e := <-events:
				if !yield(e, nil) {
					return
				}
			case <-done:
				if result != nil {
					*result = res
				}
				if err != nil {
					yield(event.Event{}, err)
				}
				return
			}
		}
	}
}

// Abort ends the run with that ID and closes its session, as Session.Abort does. It reports whether
// there was such a run.
func (a *Agent) Abort(runID string) bool {
	a.mu.Lock()
	s := a.runs[runID]
	a.mu.Unlock()
	if s == nil {
		return false
	}
	s.Abort()
	return true
}

// Close closes all sessions, aborting what they do, and lets no new one begin. It waits for that;
// see Session.Close.
func (a *Agent) Close() error {
	a.mu.Lock()
	a.closed = true
	sessions := slices.Collect(maps.Values(a.sessions))
	a.mu.Unlock()
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (a *Agent) forget(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s.id)
}

// runStarted makes a run known by its ID. An ID that is in use is an error.
func (a *Agent) runStarted(runID string, s *Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs[runID] != nil {
		return fmt.Errorf("agent: %w: there is a run %q already", ErrConfig, runID)
	}
	a.runs[runID] = s
	return nil
}

func (a *Agent) runEnded(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, runID)
}
