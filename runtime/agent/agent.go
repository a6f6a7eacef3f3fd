package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Agent creates sessions and finds them by ID. It is safe for concurrent use.
type Agent struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	sessions map[string]*Session
	runs     map[string]*Session
}

// New returns an Agent. Its error wraps ErrConfig.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	if cfg.Retry.Clock == nil {
		cfg.Retry.Clock = cfg.Clock
	}
	cfg.Client = llm.Retry(cfg.Client, cfg.Retry)
	return newAgent(cfg), nil
}

func newAgent(cfg Config) *Agent {
	return &Agent{cfg: cfg, sessions: map[string]*Session{}, runs: map[string]*Session{}}
}

// SessionOptions configure one session, so that one Agent serves many environments. The
// zero value has the configuration of the Agent.
type SessionOptions struct {
	// Env replaces Config.Env. The caller closes it after the session.
	Env env.Environment
	// Tools are offered besides Config.Tools; they replace tools with the same name.
	Tools []tool.Tool
	// ID names the session; empty means a generated one.
	ID string
	// Surroundings replace those that the session would read from its environment, such as the
	// recorded ones of a replay; nil reads them.
	Surroundings *profile.Surroundings
}

// NewSession creates a session, for which it reads the project's instructions and the state of its
// git repository. The caller closes the session.
func (a *Agent) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	id := o.ID
	if id == "" {
		id = a.cfg.NewID()
	}
	return a.newSession(ctx, id, o, nil)
}

// Resume goes on with a session that was stored before, by this process or another one: store and
// record are what session.Open returned, whose store the session closes, also after an error. The
// history, the surroundings, the mode and the use of limits are those of the record; grants, files
// that were read, and sub-agents are not. A call without a result is recorded as interrupted, and
// does not run again. The next input tells the model about the interruption.
func (a *Agent) Resume(
	ctx context.Context, store session.Store, record *session.Record, o SessionOptions,
) (*Session, error) {
	return a.open(ctx, record.ID, o, lineage{store: store, record: record}, nil)
}

func (a *Agent) newSession(
	ctx context.Context, id string, o SessionOptions, sink func(event.Event) error,
) (*Session, error) {
	return a.open(ctx, id, o, lineage{surroundings: o.Surroundings}, sink)
}

func (a *Agent) open(
	ctx context.Context, id string, o SessionOptions, from lineage, sink func(event.Event) error,
) (_ *Session, err error) {
	defer func() {
		if err != nil && from.store != nil {
			_ = from.store.Close() // the first error counts
		}
	}()
	cfg := a.cfg
	if o.Env != nil {
		cfg.Env = o.Env
	}
	cfg.Tools = slices.Concat(cfg.Tools, o.Tools)
	if err := cfg.Verify.validate(cfg.Env); err != nil {
		return nil, err
	}
	s, err := openSession(ctx, a, cfg, id, from, sink)
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

// Session returns the open session with that ID, or nil.
func (a *Agent) Session(id string) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[id]
}

// Run works on in until it ends and returns the result. It closes the session if it created it for
// in. The error is RunResult.Err, or the reason why the run could not start.
func (a *Agent) Run(ctx context.Context, in Input) (RunResult, error) {
	s, release, err := a.sessionFor(ctx, in, nil)
	if err != nil {
		return RunResult{}, err
	}
	defer release()
	return s.Run(ctx, in)
}

// sessionFor returns the session that in names, or creates one. It sends events to sink, if that is
// not nil, until release is called.
func (a *Agent) sessionFor(
	ctx context.Context, in Input, sink func(event.Event) error,
) (s *Session, release func(), err error) {
	s = a.Session(in.SessionID)
	switch {
	case s != nil && sink != nil:
		return s, s.hub.addSink(sink), nil
	case s != nil:
		return s, func() {}, nil
	case in.SessionID != "" && !in.CreateSession:
		return nil, nil, fmt.Errorf("agent: %w: %q", ErrNoSession, in.SessionID)
	}
	id := in.SessionID
	if id == "" {
		id = a.cfg.NewID()
	}
	if s, err = a.newSession(ctx, id, SessionOptions{}, sink); err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // the run's result reports a failing store
}

// errStopped ends a run whose receiver of events has stopped.
var errStopped = errors.New("the receiver of the events has stopped")

// RunStream works on in as Run does and yields the events of its session as they happen; the loop
// waits for the receiver. A receiver that stops the iteration aborts the run. If the run has an
// error, the last pair is the zero Event and that error. Unless result is nil, *result is the
// result of the run, set before the last pair.
func (a *Agent) RunStream(
	ctx context.Context, in Input, result *RunResult,
) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		events := make(chan event.Event)
		stopped := make(chan struct{})
		var res RunResult
		var err error
		done := make(chan struct{})
		// A panic of the receiver ends the run, too.
		defer func() {
			cancel(ErrAborted)
			close(stopped)
			<-done
		}()
		sink := func(e event.Event) error {
			select {
			case events <- e:
				return nil
			case <-stopped:
				return errStopped
			}
		}
		go func() {
			defer close(done)
			s, release, openErr := a.sessionFor(ctx, in, sink)
			if err = openErr; err != nil {
				return
			}
			defer release()
			res, err = s.Run(ctx, in)
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

// Abort ends the run with that ID, as Session.Abort does. It reports whether it found the run.
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

// Close aborts and closes all sessions, and waits for that; see Session.Close. No new session can
// be created.
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

// runStarted registers a run for Abort. A second run with the same ID is an error.
func (a *Agent) runStarted(runID string, s *Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs[runID] != nil {
		return fmt.Errorf("agent: %w: the run ID %q is in use", ErrConfig, runID)
	}
	a.runs[runID] = s
	return nil
}

func (a *Agent) runEnded(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, runID)
}
