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

// Session is a conversation with its history. It works on one input at a time; its methods may be
// called concurrently.
type Session struct {
	id           string
	agent        *Agent
	registry     *tool.Registry
	store        Store
	hub          *event.Hub
	surroundings profile.Surroundings
	origin       event.Origin
	depth        int
	// parent is the session of the agent that started this one; nil for a tree's root.
	parent *Session
	agents *subagents

	mu        sync.Mutex
	state     SessionState
	history   []Turn
	settings  Settings
	limits    Limits
	steering  []string
	followUps []string
	// usage sums the session; lastUsed is the context that the last answer took.
	usage    llm.Usage
	lastUsed int64
	warned   bool
	// toldBlind says that the host knows that the model is not shown images. The loop alone uses it.
	toldBlind bool
	// guessed sums the tokens of answers whose server told nothing.
	guessed int64
	// calls counts the ids of calls that the history holds.
	calls  map[string]int
	loop   loopDetector
	prompt promptEntry

	cancel context.CancelCauseFunc // ends what runs; nil if nothing does
	// ending, once set, is why the session ends; nothing begins from then on.
	ending   string
	closed   chan struct{}
	closeErr error
}

func openSession(
	ctx context.Context, a *Agent, id string, from lineage, sink func(event.Event) error,
) (*Session, error) {
	cfg := &a.cfg
	agents := &subagents{}
	tools := slices.Concat(cfg.Profile.Tools, agents.register(cfg.Subagents, from.depth), cfg.Tools)
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		return nil, fmt.Errorf("agent: %w: %w", ErrConfig, err)
	}
	st, err := cfg.Store(id)
	if err != nil {
		return nil, fmt.Errorf("agent: keep the session: %w", err)
	}
	s := &Session{
		id: id, agent: a, registry: registry, store: st, state: SessionIdle,
		settings: cfg.Settings.clone(), limits: cfg.Limits,
		hub: from.hub, calls: map[string]int{}, closed: make(chan struct{}),
		origin: from.Origin, depth: from.depth, parent: from.parent, agents: agents,
	}
	agents.s, agents.instructions = s, from.instructions
	if s.hub == nil {
		s.hub = newHub(cfg, id, sink)
	}
	if err := s.begin(ctx, from.surroundings); err != nil {
		_ = st.Close()
		s.closeHub()
		return nil, err
	}
	return s, nil
}

func newHub(cfg *Config, id string, sink func(event.Event) error) *event.Hub {
	hub := event.NewHub(id, cfg.Clock.Now, cfg.Log)
	for _, fn := range cfg.Sinks {
		hub.AddSink(fn)
	}
	if sink != nil {
		hub.AddSink(sink)
	}
	for _, fn := range cfg.Observers {
		hub.Subscribe(cfg.ObserverBuffer, fn)
	}
	return hub
}

// closeHub delivers the last events, unless other agents have more.
func (s *Session) closeHub() {
	if s.depth == 0 {
		s.hub.Close(flushTime)
	}
}

// emit tells of something that this session's agent did.
func (s *Session) emit(runID string, d event.Data) error {
	err := s.hub.EmitFrom(s.origin, runID, d)
	if err != nil && s.parent != nil {
		s.parent.agents.undelivered(fmt.Errorf("%s: %w", s.origin.AgentID, err))
	}
	return err
}

// begin takes the surroundings and writes the session's first entries and event.
func (s *Session) begin(ctx context.Context, known *profile.Surroundings) error {
	cfg := &s.agent.cfg
	start := event.SessionStart{
		Profile: cfg.Profile.ID, Model: s.settings.Model, Tools: offered(s.registry, cfg.Policy, Input{},
			cfg.Env),
	}
	if cfg.Env != nil {
		info := cfg.Env.Info()
		start.Backend, start.WorkDir = info.Backend, info.WorkDir
		if s.parent == nil {
			start.Guarantees = info.Guarantees
		}
	}
	err := s.store.Append(entrySession, sessionEntry{
		ID: s.id, Profile: start.Profile, Model: start.Model, Backend: start.Backend,
		WorkDir: start.WorkDir, Tools: start.Tools,
	})
	if err != nil {
		return fmt.Errorf("agent: keep the session: %w", err)
	}
	if known != nil {
		s.surroundings = *known
	} else {
		s.surroundings = lookAround(ctx, cfg, s.settings.Model)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("agent: start a session: %w", context.Cause(ctx))
	}
	if err := s.store.Append(entrySurroundings, s.surroundings); err != nil {
		return fmt.Errorf("agent: keep the session: %w", err)
	}
	if err := s.emit("", start); err != nil {
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

// Update changes the settings. The change counts from the next model call or tool call on. The
// function is called at once and must not use the session.
func (s *Session) Update(change func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.settings.clone()
	change(&next)
	s.settings = next.withDefaults(s.agent.cfg.Profile)
}

// UpdateLimits changes the limits, except for runs that have limits of their own. The change counts
// from the next model call on; MaxDuration counts from the next run on. An error wraps ErrConfig
// and changes nothing.
func (s *Session) UpdateLimits(change func(*Limits)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.limits
	change(&next)
	if err := next.validate(); err != nil {
		return err
	}
	s.limits = next.withDefaults()
	return nil
}

// Steer puts message into the history after the current round of tool calls, or, if the session is
// idle, with the next input.
func (s *Session) Steer(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steering = append(s.steering, message)
}

// FollowUp makes message the next input once the current one is completed; if the session is idle,
// once the next is. An input that ends in another way leaves it waiting.
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

// Run works on in and then on the follow-ups that have come, and returns how the last of these
// ended; usage, calls and changes are those of the last. The error is Result.Err, or ErrClosed,
// ErrBusy or one that wraps ErrConfig if the run could not begin. The end of ctx aborts the run and
// closes the session, except that a deadline is a time-out, which leaves it idle.
func (s *Session) Run(ctx context.Context, in Input) (res Result, err error) {
	if err := s.check(in); err != nil {
		return Result{}, err
	}
	if in.RunID == "" {
		in.RunID = s.agent.cfg.NewID()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.start(cancel); err != nil {
		return Result{}, err
	}
	defer func() { s.finish(res) }()
	if err := s.agent.runStarted(in.RunID, s); err != nil {
		return Result{}, err
	}
	defer s.agent.runEnded(in.RunID)
	for {
		res = s.runOne(ctx, in)
		next, ok := s.nextFollowUp(res.Status)
		if !ok {
			return res, res.Err
		}
		in.Text, in.Parts, in.Hints, in.RunID = next, nil, nil, s.agent.cfg.NewID()
	}
}

func (s *Session) check(in Input) error {
	switch {
	case strings.TrimSpace(in.Text) == "" && len(in.Parts) == 0:
		return fmt.Errorf("agent: %w: the input is empty", ErrConfig)
	case in.SessionID != "" && in.SessionID != s.id:
		return fmt.Errorf("agent: %w: the input is for the session %q, not for %q", ErrConfig,
			in.SessionID, s.id)
	case in.Limits != nil:
		return in.Limits.validate()
	}
	return nil
}

// nextFollowUp takes the next follow-up after a run that was completed.
func (s *Session) nextFollowUp(last Status) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != "" || last != StatusCompleted || len(s.followUps) == 0 {
		return "", false
	}
	next := s.followUps[0]
	s.followUps = s.followUps[1:]
	return next, true
}

// runOne is one run of the loop.
func (s *Session) runOne(ctx context.Context, in Input) Result {
	l := &loop{s: s, in: in, machine: machine{state: StateIdle}}
	if d := l.limits().MaxDuration; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, ErrTimeLimit)
		defer stop()
	}
	return l.run(ctx)
}

func (s *Session) start(cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending != "":
		return fmt.Errorf("agent: %w", ErrClosed)
	case s.state == SessionProcessing:
		return fmt.Errorf("agent: %w", ErrBusy)
	}
	s.state = SessionProcessing
	s.cancel = cancel
	return nil
}

// finish puts the session into the state that follows from the run, and ends it where it was asked
// to, or where it can go on no more.
func (s *Session) finish(res Result) {
	s.mu.Lock()
	s.cancel = nil
	if s.ending == "" && closesSession(res) {
		s.ending = string(res.Status)
		if res.Err != nil && res.Status != StatusAborted {
			s.ending = res.Err.Error()
		}
	}
	ends := s.ending != ""
	switch {
	case ends:
		s.state = SessionClosed
	case res.Status == StatusAwaitingHuman:
		s.state = SessionAwaitingInput
	default:
		s.state = SessionIdle
	}
	s.mu.Unlock()
	if ends {
		s.end()
	}
}

// closesSession reports whether a session cannot or must not go on after a run that ended so. An
// error of the model that may pass leaves it open.
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

// Abort ends what the session does, kills what it runs, and closes it. It does not wait for a run
// to end: the run's own call returns when that is done. An idle session is closed when Abort
// returns.
func (s *Session) Abort() { s.stop("aborted") }

// Close aborts what the session does, delivers its last events and ends it, and waits for all that.
// It must not be called from what it waits for: a sink, a tool, Config.Ask, or the body of an
// iteration over RunStream; there, use Abort. A second Close returns what the first did. The error
// is one of keeping the session.
func (s *Session) Close() error {
	s.stop("closed")
	<-s.closed
	return s.closeErr
}

// stop makes the session end: at once if it is idle, else when its run has ended, which it is told
// to.
func (s *Session) stop(reason string) {
	s.mu.Lock()
	if s.ending != "" {
		s.mu.Unlock()
		return
	}
	s.ending = reason
	cancel := s.cancel
	if cancel == nil {
		s.state = SessionClosed
	}
	s.mu.Unlock()
	if cancel != nil {
		cancel(ErrAborted)
		return
	}
	s.end()
}

// end writes the session's last entry and event. It is called once, by whoever set ending or
// finished the last run. A store that panics is one that fails, for a sub-agent's session ends
// where nobody could catch it.
func (s *Session) end() {
	log := s.agent.cfg.Log
	err := s.agents.close()
	kept, panicked := guard(log, func() error {
		return s.store.Append(entrySessionEnded, sessionEndedEntry{Reason: s.ending})
	})
	err = errors.Join(err, kept, panicked)
	_ = s.emit("", event.SessionEnd{State: string(SessionClosed), Reason: s.ending})
	s.closeHub()
	closed, panicked := guard(log, s.store.Close)
	s.closeErr = errors.Join(err, closed, panicked)
	s.agent.forget(s)
	close(s.closed)
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

// hasSteering reports whether steering messages wait.
func (s *Session) hasSteering() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steering) > 0
}

// takeSteering empties the queue of steering messages.
func (s *Session) takeSteering() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.steering
	s.steering = nil
	return m
}
