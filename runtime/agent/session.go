package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// SessionState says what a session does.
type SessionState string

// States of a session.
const (
	SessionIdle          SessionState = "idle"
	SessionProcessing    SessionState = "processing"
	SessionAwaitingInput SessionState = "awaiting_input"
	SessionClosed        SessionState = "closed"
)

// flushTime is how long Close waits for observers that are behind.
const flushTime = 2 * time.Second

// Session is a conversation with its history. It works on one input at a time; its methods may be called concurrently.
type Session struct {
	id           string
	agent        *Agent
	registry     *tool.Registry
	store        Store
	hub          *event.Hub
	surroundings profile.Surroundings

	mu        sync.Mutex
	state     SessionState
	history   []Turn
	settings  Settings
	steering  []string
	followUps []string
	// usage sums the session; lastUsed is the context that the last answer took.
	usage    llm.Usage
	lastUsed int64
	warned   bool
	calls    map[string]int // ids of calls that the history holds
	loop     loopDetector
	cancel   context.CancelCauseFunc
	running  chan struct{} // closed when the current run has ended
	closing  bool
	closed   chan struct{}
	closeErr error
}

func openSession(ctx context.Context, a *Agent, sink func(event.Event) error) (*Session, error) {
	cfg := &a.cfg
	registry, err := tool.NewRegistry(cfg.Profile.Tools...)
	if err != nil {
		return nil, fmt.Errorf("agent: %w: %w", ErrConfig, err)
	}
	for _, t := range cfg.Tools {
		if err := registry.Register(t); err != nil {
			return nil, fmt.Errorf("agent: %w: %w", ErrConfig, err)
		}
	}
	id := cfg.NewID()
	st, err := cfg.Store(id)
	if err != nil {
		return nil, fmt.Errorf("agent: keep the session: %w", err)
	}
	s := &Session{
		id: id, agent: a, registry: registry, store: st, state: SessionIdle, settings: cfg.Settings,
		hub: event.NewHub(id, cfg.Clock.Now, cfg.Log), calls: map[string]int{},
		closed: make(chan struct{}),
	}
	s.loop.window = cfg.Limits.LoopWindow
	for _, fn := range cfg.Sinks {
		s.hub.AddSink(fn)
	}
	if sink != nil {
		s.hub.AddSink(sink)
	}
	for _, fn := range cfg.Observers {
		s.hub.Subscribe(cfg.ObserverBuffer, fn)
	}
	if err := s.begin(ctx); err != nil {
		_ = st.Close()
		s.hub.Close(flushTime)
		return nil, err
	}
	return s, nil
}

// begin takes the surroundings and writes the session's first entries and event.
func (s *Session) begin(ctx context.Context) error {
	cfg := &s.agent.cfg
	start := event.SessionStart{
		Profile: cfg.Profile.ID, Model: s.settings.Model, Tools: offered(s.registry, cfg.Policy, Input{}, cfg.Env),
	}
	if cfg.Env != nil {
		info := cfg.Env.Info()
		start.Backend, start.WorkDir = info.Backend, info.WorkDir
	}
	err := s.store.Append(entrySession, sessionEntry{
		ID: s.id, Profile: start.Profile, Model: start.Model, Backend: start.Backend, WorkDir: start.WorkDir, Tools: start.Tools,
	})
	if err != nil {
		return fmt.Errorf("agent: keep the session: %w", err)
	}
	s.surroundings = lookAround(ctx, cfg, s.settings.Model)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("agent: start a session: %w", context.Cause(ctx))
	}
	if err := s.store.Append(entrySurroundings, s.surroundings); err != nil {
		return fmt.Errorf("agent: keep the session: %w", err)
	}
	if err := s.hub.Emit("", start); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// ID names the session.
func (s *Session) ID() string { return s.id }

// Dir is the folder that keeps the session; empty if nothing does.
func (s *Session) Dir() string { return s.store.Dir() }

// Tools are the session's tools. Changes count from the next model call on.
func (s *Session) Tools() *tool.Registry { return s.registry }

// State returns what the session does now.
func (s *Session) State() SessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// History returns the turns so far.
func (s *Session) History() []Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Usage returns the tokens that the session used so far.
func (s *Session) Usage() llm.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage
}

// Update changes the settings. The change counts from the next model call or tool call on.
func (s *Session) Update(change func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.settings)
	s.settings = s.settings.withDefaults(s.agent.cfg.Profile)
}

// Steer puts message into the history after the current round of tool calls, or, if the session is idle, with the next
// input.
func (s *Session) Steer(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steering = append(s.steering, message)
}

// FollowUp makes message the next input once the current one is done; if the session is idle, once the next is.
func (s *Session) FollowUp(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followUps = append(s.followUps, message)
}

// Subscribe calls fn for each event from now on, as Config.Observers says.
func (s *Session) Subscribe(buffer int, fn func(event.Event)) (cancel func()) {
	return s.hub.Subscribe(buffer, fn)
}

// Submit works on text until it is done; see Run.
func (s *Session) Submit(ctx context.Context, text string) (Result, error) {
	return s.Run(ctx, Input{Text: text})
}

// Run works on in and then on the follow-ups that have come, and returns how the last of these ended; usage, calls and
// changes are those of the last. The error is Result.Err, or ErrClosed, ErrBusy or one that wraps ErrConfig if the run
// could not begin. The end of ctx aborts the run and closes the session, except that a deadline is a time-out, which
// leaves it idle.
func (s *Session) Run(ctx context.Context, in Input) (Result, error) {
	if strings.TrimSpace(in.Text) == "" && len(in.Parts) == 0 {
		return Result{}, fmt.Errorf("agent: %w: the input is empty", ErrConfig)
	}
	for {
		res, err := s.runOne(ctx, in)
		if err != nil {
			return res, err
		}
		next, ok := s.nextFollowUp(res.Status)
		if !ok {
			return res, res.Err
		}
		in = Input{Text: next, Instructions: in.Instructions, AllowedTools: in.AllowedTools, ToolOrder: in.ToolOrder, Limits: in.Limits}
	}
}

func (s *Session) nextFollowUp(last Status) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != SessionIdle || last == StatusTimedOut || len(s.followUps) == 0 {
		return "", false
	}
	next := s.followUps[0]
	s.followUps = s.followUps[1:]
	return next, true
}

// runOne is one run of the loop. Its error means that the run did not begin.
func (s *Session) runOne(ctx context.Context, in Input) (Result, error) {
	cfg := &s.agent.cfg
	limits := cfg.Limits
	if in.Limits != nil {
		if err := in.Limits.validate(); err != nil {
			return Result{}, err
		}
		limits = in.Limits.withDefaults()
	}
	if in.RunID == "" {
		in.RunID = cfg.NewID()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limits.MaxDuration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limits.MaxDuration, ErrTimeLimit)
		defer stop()
	}
	if err := s.start(cancel); err != nil {
		return Result{}, err
	}
	s.agent.runStarted(in.RunID, s)
	defer s.agent.runEnded(in.RunID)
	l := &loop{s: s, in: in, limits: limits, machine: machine{state: StateIdle}}
	res := l.run(ctx)
	s.finish(res)
	return res, nil
}

func (s *Session) start(cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing, s.state == SessionClosed:
		return fmt.Errorf("agent: %w", ErrClosed)
	case s.state == SessionProcessing:
		return fmt.Errorf("agent: %w", ErrBusy)
	}
	s.state = SessionProcessing
	s.cancel = cancel
	s.running = make(chan struct{})
	return nil
}

// finish puts the session into the state that follows from the run, and closes it where it can go on no more.
func (s *Session) finish(res Result) {
	s.mu.Lock()
	switch res.Status {
	case StatusAwaitingHuman:
		s.state = SessionAwaitingInput
	default:
		s.state = SessionIdle
	}
	s.cancel = nil
	close(s.running)
	s.mu.Unlock()
	if closesSession(res) {
		reason := string(res.Status)
		if res.Err != nil && res.Status != StatusAborted {
			reason = res.Err.Error()
		}
		_ = s.end(reason)
	}
}

// closesSession reports whether a session cannot or must not go on after a run that ended so. An error of the model that may
// pass leaves it open.
func closesSession(res Result) bool {
	switch res.Status {
	case StatusAborted, StatusContextOverflow, StatusInternalError, StatusEnvironmentError:
		return true
	case StatusModelError:
		var e *llm.Error
		return !errors.As(res.Err, &e) || !e.Retryable()
	}
	return false
}

// Abort ends the current run, if there is one, kills what it runs, and closes the session. It waits for that.
func (s *Session) Abort() {
	s.mu.Lock()
	running := s.running
	if s.cancel != nil {
		s.cancel(ErrAborted)
	}
	s.mu.Unlock()
	if running != nil {
		<-running
	}
	_ = s.end("aborted")
}

// Close aborts what the session does, delivers its last events and ends it. A second Close does nothing. The error is
// one of keeping the session.
func (s *Session) Close() error {
	s.mu.Lock()
	running := s.running
	if s.cancel != nil {
		s.cancel(ErrAborted)
	}
	s.mu.Unlock()
	if running != nil {
		<-running
	}
	return s.end("closed")
}

// end closes the session once; later calls wait for the first.
func (s *Session) end(reason string) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.closed
		return s.closeErr
	}
	s.closing = true
	s.state = SessionClosed
	s.mu.Unlock()

	err := s.store.Append(entrySessionEnded, sessionEndedEntry{Reason: reason})
	_ = s.hub.Emit("", event.SessionEnd{State: string(SessionClosed), Reason: reason})
	s.hub.Close(flushTime)
	s.closeErr = errors.Join(err, s.store.Close())
	s.agent.forget(s)
	close(s.closed)
	return s.closeErr
}

// record adds a turn to the journal and then to the history. The caller is the running loop.
func (s *Session) record(t Turn) error {
	if t.Kind != TurnToolResults { // its results are in the journal one by one
		if err := s.store.Append(entryTurn, t); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, t)
	return nil
}

// takeSteering empties the queue of steering messages.
func (s *Session) takeSteering() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.steering
	s.steering = nil
	return m
}
