package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Agent checks inputs, makes sessions and finds them again. It is safe for concurrent use.
type Agent struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]*Session
	runs     map[string]*Session
}

// New makes an Agent. An error wraps ErrConfig.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	cfg.Retry.Clock = cfg.Clock
	cfg.Client = llm.Retry(cfg.Client, cfg.Retry)
	return &Agent{cfg: cfg, sessions: map[string]*Session{}, runs: map[string]*Session{}}, nil
}

// NewSession makes a session, which looks around in the environment first. The caller closes it.
func (a *Agent) NewSession(ctx context.Context) (*Session, error) {
	return a.newSession(ctx, nil)
}

func (a *Agent) newSession(ctx context.Context, sink func(event.Event) error) (*Session, error) {
	s, err := openSession(ctx, a, sink)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions[s.id] = s
	return s, nil
}

// Session finds a session that is not closed; nil if there is none.
func (a *Agent) Session(id string) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[id]
}

// Run works on in until it is done and returns how that ended. A session that it made for in is closed again. The error
// is Result.Err, or what kept the run from beginning.
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
	case in.SessionID != "":
		return Result{}, fmt.Errorf("agent: %w: there is no session %q", ErrConfig, in.SessionID)
	default:
		var err error
		if s, err = a.newSession(ctx, sink); err != nil {
			return Result{}, err
		}
		defer s.Close() //nolint:errcheck // the run's result tells of a failing store
	}
	return s.Run(ctx, in)
}

// errStopped ends a run whose events nobody takes any more.
var errStopped = errors.New("the receiver of the events has gone")

// RunStream works on in as Run does and yields the events of its session as they happen; the loop waits for the
// receiver. Breaking off the iteration aborts the run. The last pair holds the error of the run, if there is one, with no
// event. The result of the run is stored in *result if that is not nil, before the last pair.
func (a *Agent) RunStream(ctx context.Context, in Input, result *Result) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		events := make(chan event.Event)
		gone := make(chan struct{})
		sink := func(e event.Event) error {
			select {
			case events <- e:
				return nil
			case <-gone:
				return errStopped
			}
		}
		var res Result
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			res, err = a.run(ctx, in, sink)
		}()
		stop := func() {
			cancel(ErrAborted)
			close(gone)
			<-done
		}
		for {
			select {
			case e := <-events:
				if !yield(e, nil) {
					stop()
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

// Abort ends the run with that ID and closes its session. It reports whether there was such a run.
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

// Close closes all sessions, aborting what they do.
func (a *Agent) Close() error {
	a.mu.Lock()
	sessions := make([]*Session, 0, len(a.sessions))
	for _, s := range a.sessions {
		sessions = append(sessions, s)
	}
	a.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		s.Abort()
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

func (a *Agent) forget(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s.id)
}

func (a *Agent) runStarted(runID string, s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs[runID] = s
}

func (a *Agent) runEnded(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, runID)
}
