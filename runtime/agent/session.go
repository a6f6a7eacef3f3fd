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
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// SessionState is the state of a session.
type SessionState string

// States of a session.
const (
	SessionIdle          SessionState = "idle"
	SessionProcessing    SessionState = "processing"
	SessionAwaitingInput SessionState = "awaiting_input"
	SessionClosed        SessionState = "closed"
)

// flushTimeout bounds the wait of Close for slow observers.
const flushTimeout = 2 * time.Second

// Session is a conversation with its history. It works on one input at a time; its methods may be
// called concurrently.
type Session struct {
	id           string
	agent        *Agent
	cfg          Config
	registry     *tool.Registry
	store        session.Store
	hub          *hub
	surroundings profile.Surroundings
	origin       event.Origin
	depth        int
	// parent is the session that started this one as a sub-agent; nil for the root of a tree.
	parent    *Session
	agents    *subagents
	history   history
	reads     tool.Reads
	cache     *tool.Cache
	mode      *modes
	planner   *planner // nil without one
	budget    budget
	steering  queue
	followUps queue

	mu       sync.Mutex
	state    SessionState
	settings Settings
	limits   Limits
	cancel   context.CancelCauseFunc // ends the current run; nil without one
	// endReason, once set, is the reason of the session's end; no run starts from then on.
	endReason string
	closed    chan struct{}
	closeErr  error
	// permissions are those of all agents of the tree.
	permissions *permissions
	// past are the failures of earlier sessions, once they are read.
	readPast sync.Once
	past     []failure.Past
	// notes go with the next input: facts about the session that the model does not know.
	notes []string
}

func openSession(
	ctx context.Context, a *Agent, cfg Config, id string, from lineage,
	sink func(event.Event) error,
) (*Session, error) {
	agents := &subagents{}
	s := &Session{}
	tools := slices.Concat(cfg.Profile.Tools, agents.register(cfg.Subagents, from.depth),
		s.modeTools(&cfg), s.planTools(&cfg), cfg.Tools)
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		return nil, fmt.Errorf("agent: %w: %w", ErrConfig, err)
	}
	found := startCollection(ctx, &cfg, from)
	defer found.stop()
	planner := s.planner
	store := from.store
	if store == nil {
		store, err = cfg.Store(id)
	}
	switch {
	case errors.Is(err, session.ErrInvalidID):
		return nil, fmt.Errorf("agent: %w: %w", ErrConfig, err)
	case err != nil:
		return nil, fmt.Errorf("agent: store the session: %w", err)
	}
	*s = Session{
		id: id, agent: a, cfg: cfg, registry: registry, store: store, state: SessionIdle,
		settings: cfg.Settings.clone(), limits: cfg.Limits,
		history: history{callIDs: map[string]bool{}, pruned: map[string]bool{}},
		hub:     from.hub, closed: make(chan struct{}), planner: planner,
		origin: from.Origin, depth: from.depth, parent: from.parent, agents: agents,
		permissions: &permissions{
			approve: cfg.Approve, timeout: cfg.ApproveTimeout, asking: make(chan struct{}, 1),
		},
	}
	if planner != nil {
		planner.s = s
	}
	s.permissions.abort = s.Abort
	switch {
	case s.parent != nil:
		s.permissions = s.parent.permissions
	case cfg.Env != nil:
		s.permissions.base = cfg.Env.Info().WorkDir
	}
	above := cfg.Budget.root()
	if s.parent != nil {
		above = &s.parent.budget
		s.cache = s.parent.cache.Fork()
	} else {
		s.cache = tool.NewCache()
	}
	s.budget.init(above, func() Limits { return s.limitsOf(agents.currentInput()) })
	agents.s, agents.instructions = s, from.instructions
	if from.record != nil && from.record.AwaitsHuman() {
		s.state = SessionAwaitingInput
	}
	s.mode = newModes(&cfg)
	if s.mode != nil && from.record != nil && from.record.Planning != nil {
		s.mode.planning = s.mode.planning || *from.record.Planning
	}
	if s.hub == nil {
		s.hub = openHub(&cfg, id, sink)
	}
	if err := s.open(ctx, from, found); err != nil {
		_ = store.Close()
		s.closeHub()
		return nil, err
	}
	return s, nil
}

func openHub(cfg *Config, id string, sink func(event.Event) error) *hub {
	hub := newHub(id, cfg.Clock.Now, cfg.Log)
	for _, fn := range cfg.Sinks {
		hub.addSink(fn)
	}
	if sink != nil {
		hub.addSink(sink)
	}
	for _, fn := range cfg.Observers {
		hub.subscribe(cfg.ObserverBuffer, fn)
	}
	return hub
}

// closeHub closes the hub of a tree with its root.
func (s *Session) closeHub() {
	if s.depth == 0 {
		s.hub.close(flushTimeout)
	}
}

// emit sends an event of this session's agent.
func (s *Session) emit(runID string, d event.Data) error {
	err := s.hub.emit(s.origin, runID, d)
	if err != nil && s.parent != nil {
		s.parent.agents.deliveryFailed(fmt.Errorf("%s: %w", s.origin.AgentID, err))
	}
	return err
}

// open writes the session's first entries and events.
func (s *Session) open(ctx context.Context, from lineage, found *collection) error {
	cfg := &s.cfg
	shell := ""
	start := event.SessionStart{
		Profile: cfg.Profile.ID, Model: s.settings.Model, Resumed: from.record != nil,
		Tools: s.mode.offer(
			offered(s.registry, cfg.Policy, s.mode.rulesOr(cfg.Rules), Input{}, cfg.Env),
		),
	}
	if cfg.Env != nil {
		info := cfg.Env.Info()
		start.Backend, start.WorkDir = info.Backend, info.WorkDir
		if len(info.Shell) > 0 {
			shell = info.Shell[0]
		}
		if s.parent == nil {
			start.Guarantees = info.Guarantees
		}
	}
	started := session.Started{
		ID: s.id, Profile: start.Profile, Model: start.Model, Backend: start.Backend,
		WorkDir: start.WorkDir, Shell: shell, Tools: start.Tools, Program: cfg.Program,
	}
	if s.parent != nil {
		started.Parent = s.parent.id
	}
	if from.record != nil {
		if err := s.restore(from.record, started); err != nil {
			return err
		}
	} else if err := s.store.Append(session.TypeStarted, started); err != nil {
		return fmt.Errorf("agent: store the session: %w", err)
	}
	skipped := from.skipped
	if from.record == nil || len(from.record.Surroundings) == 0 {
		var err error
		if skipped, err = s.storeSurroundings(ctx, from, found); err != nil {
			return err
		}
	}
	if err := s.emit("", start); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := s.warnTorn(from.record); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	for _, line := range skipped {
		if err := s.emit("", event.Warning{Code: "project_docs", Message: line}); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	return nil
}

// storeSurroundings stores the surroundings, and returns a line for each file with
// instructions that was refused.
func (s *Session) storeSurroundings(
	ctx context.Context, from lineage, found *collection,
) (skipped []string, err error) {
	skipped = from.skipped
	if from.surroundings != nil {
		s.surroundings = *from.surroundings
	} else {
		<-found.done
		s.surroundings, skipped = found.surroundings, found.skipped
	}
	s.surroundings = withoutSecrets(s.surroundings, s.cfg.Redactor)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("agent: start a session: %w", context.Cause(ctx))
	}
	if err := s.store.Append(session.TypeSurroundings, s.surroundings); err != nil {
		return nil, fmt.Errorf("agent: store the session: %w", err)
	}
	return skipped, nil
}

// ID returns the session's ID.
func (s *Session) ID() string { return s.id }

// Dir returns the directory of the session's store; empty without one.
func (s *Session) Dir() string { return s.store.Dir() }

// Tools returns the session's tools. A change takes effect with the next model call.
func (s *Session) Tools() *tool.Registry { return s.registry }

// Title returns the title of the session; empty without one.
func (s *Session) Title() string { return s.history.getTitle() }

// State returns the current state.
func (s *Session) State() SessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// History returns the turns so far.
func (s *Session) History() []session.Turn { return slices.Clone(s.history.list()) }

// Usage returns the tokens that the session and its sub-agents have used.
func (s *Session) Usage() llm.Usage {
	u, _ := event.TotalUsage(s.Models())
	return u
}

// Models returns what the session and its sub-agents have used models for.
func (s *Session) Models() []event.ModelUsage {
	answered, _ := s.budget.total()
	return answered
}

// Settings returns the current settings.
func (s *Session) Settings() Settings { return s.currentSettings().clone() }

// Limits returns the current limits.
func (s *Session) Limits() Limits { return s.limitsOf(Input{}) }

// Subagents returns the open sub-agents that the session has started, in the order of their starts.
func (s *Session) Subagents() []tool.AgentState { return s.agents.states() }

// Update changes the settings, from the next model call or tool call on. It calls change before it
// returns; change must not use the session.
func (s *Session) Update(change func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.settings.clone()
	change(&next)
	s.settings = next.withDefaults(s.cfg.Profile)
}

// currentSettings returns the settings, whose map nobody changes.
func (s *Session) currentSettings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// UpdateLimits changes the limits from the next model call on, MaxDuration from the next run on. It
// has no effect on runs with Input.Limits. An error wraps ErrConfig and leaves the limits
// unchanged.
func (s *Session) UpdateLimits(change func(*Limits)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.limits
	change(&next)
	if err := validateLimits(next); err != nil {
		return err
	}
	s.limits = withDefaultLimits(next)
	return nil
}

// limitsOf returns the limits of in, or else the current ones of the session.
func (s *Session) limitsOf(in Input) Limits {
	if in.Limits != nil {
		return withDefaultLimits(*in.Limits)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// Steer adds message to the history after the current round of tool calls. Without a run the error
// is ErrIdle or ErrClosed. A message that comes too late for the last request of the run is in
// RunResult.Undelivered.
func (s *Session) Steer(message string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case SessionProcessing:
		s.steering.add(message)
		return nil
	case SessionClosed:
		return fmt.Errorf("agent: %w", ErrClosed)
	}
	return fmt.Errorf("agent: %w", ErrIdle)
}

// FollowUp makes message the next input after the end of the current one or, if the session is
// idle, of the next one. It stays in the queue after a run that was aborted, waits for a human, or
// has reached a limit of the session: of turns, tokens or cost.
func (s *Session) FollowUp(message string) { s.followUps.add(message) }

// Subscribe calls fn for each event from now on, as for Config.Observers.
func (s *Session) Subscribe(buffer int, fn func(event.Event)) (cancel func()) {
	return s.hub.subscribe(buffer, fn)
}

// Submit works on text until it ends; see Run.
func (s *Session) Submit(ctx context.Context, text string) (RunResult, error) {
	return s.Run(ctx, Input{Text: text})
}

// Run works on in and then on the queued follow-ups. It returns the result of the last run. The
// error is RunResult.Err, or, if the run could not start, ErrClosed, ErrBusy or wraps
// ErrConfig. A cancelled ctx aborts the run, and a deadline is a timeout; both leave the session
// open.
func (s *Session) Run(ctx context.Context, in Input) (res RunResult, err error) {
	if err := s.validate(in); err != nil {
		return RunResult{}, err
	}
	if in.RunID == "" {
		in.RunID = s.cfg.NewID()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if _, err := s.enter(cancel); err != nil {
		return RunResult{}, err
	}
	defer func() { res.Undelivered = s.endRun(res) }()
	if err := s.agent.runStarted(in.RunID, s); err != nil {
		return RunResult{}, err
	}
	defer s.agent.runEnded(in.RunID)
	in.Hints = slices.Concat(s.takeNotes(), in.Hints)
	for {
		res = s.newLoop(in).run(ctx)
		next, ok := s.nextFollowUp(ctx, res)
		if !ok {
			return res, res.Err
		}
		in.Text, in.Parts, in.Hints, in.RunID = next, nil, nil, s.cfg.NewID()
		in.Reply = nil
	}
}

func (s *Session) validate(in Input) error {
	switch {
	case in.Reply != nil:
		if err := s.validateReply(in); err != nil {
			return err
		}
	case strings.TrimSpace(in.Text) == "" && len(in.Parts) == 0:
		return fmt.Errorf("agent: %w: the input is empty", ErrConfig)
	case in.SessionID != "" && in.SessionID != s.id:
		return fmt.Errorf("agent: %w: the input is for the session %q, not for %q", ErrConfig,
			in.SessionID, s.id)
	}
	for _, name := range in.allowed() {
		if _, known := s.registry.Get(name); !known {
			return fmt.Errorf("agent: %w: unknown tool %q among the allowed ones (the session has %s)",
				ErrConfig, name, strings.Join(s.registry.Names(), ", "))
		}
	}
	if in.Limits != nil {
		return validateLimits(*in.Limits)
	}
	return nil
}

// newLoop collects the inputs of a run.
func (s *Session) newLoop(in Input) *loop {
	cfg := &s.cfg
	scope := tool.Scope{
		Env: cfg.Env, Spool: s.store.Spool(), Outputs: s.store.OpenOutput, Clock: cfg.Clock,
		Logger: cfg.Log, Redactor: cfg.Redactor, Cache: s.cache,
	}
	if cfg.Backups {
		scope.Backups = s.store.Backups()
	}
	if cfg.ReadFirst {
		scope.Reads = &s.reads
	}
	tools := cfg.Policy.narrow(in.Policy)
	return &loop{
		inputs: inputs{
			in: in, sessionID: s.id,
			client: cfg.Client, profile: cfg.Profile, surroundings: s.surroundings,
			settings: s.currentSettings, limits: func() Limits { return tools.limit(s.limitsOf(in)) },
			env: cfg.Env, registry: s.registry, policy: tools, scope: scope,
			execute: cfg.Executor, agents: s.agents,
			verify: cfg.Verify, answer: cfg.Answer, finalAnswer: cfg.FinalAnswer,
			titles: cfg.Titles, kind: cfg.Subagents.kind,
			aggregate: cfg.Aggregate, argumentDeltas: cfg.ArgumentDeltas, isQuestion: cfg.IsQuestion,
			kindInstructions: cfg.kindInstructions, buildSystem: cfg.BuildSystem,
			planner: s.planner, progressFile: cfg.ProgressFile,
			progressEnv: cfg.progressEnv,
			manager:     cfg.Context, pastFailures: s.pastFailures,
			rules: tools.rulesOr(cfg.Rules), mode: s.mode, permissions: s.permissions,
			agentID: s.origin.AgentID,
			history: &s.history, budget: &s.budget, steering: &s.steering, store: s.store,
			emit:  func(d event.Data) error { return s.emit(in.RunID, d) },
			clock: cfg.Clock, log: cfg.Log,
		},
		machine: machine{state: StateIdle, now: cfg.Clock.Now},
	}
}

// pastFailures returns the failures of earlier sessions, which it reads once in a tree of agents.
func (s *Session) pastFailures(ctx context.Context) []failure.Past {
	if s.parent != nil {
		return s.parent.pastFailures(ctx)
	}
	s.readPast.Do(func() {
		if read := s.cfg.PastFailures; read != nil {
			s.past = read(ctx)
		}
	})
	return s.past
}

// nextFollowUp takes the next follow-up after the end of a run, unless that was aborted, waits for
// a human, or leaves nothing for another run.
func (s *Session) nextFollowUp(ctx context.Context, res RunResult) (string, bool) {
	s.mu.Lock()
	ended := s.endReason != ""
	s.mu.Unlock()
	waits := res.Status == StatusAborted || res.Status == StatusAwaitingHuman
	spent := slices.Contains([]string{"turns", "tokens", "cost"}, res.Limit) // of the session
	if ended || waits || spent || ctx.Err() != nil || res.closesSession() {
		return "", false
	}
	return s.followUps.take()
}

// enter makes the session busy until leave, and returns its state before. The function cancel ends
// what it is busy with.
func (s *Session) enter(cancel context.CancelCauseFunc) (before SessionState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.endReason != "":
		return "", fmt.Errorf("agent: %w", ErrClosed)
	case s.state == SessionProcessing:
		return "", fmt.Errorf("agent: %w", ErrBusy)
	}
	before, s.state, s.cancel = s.state, SessionProcessing, cancel
	return before, nil
}

// leave sets the state after enter, or ends the session after Close. It returns the steering
// messages that no request delivered.
func (s *Session) leave(state SessionState) (undelivered []string) {
	s.mu.Lock()
	s.cancel = nil
	ends := s.endReason != ""
	if !ends { // else end sets it
		s.state = state
	}
	undelivered = s.steering.takeAll()
	s.mu.Unlock()
	if ends {
		s.end()
	}
	return undelivered
}

// endRun sets the state that follows from the result, and ends the session after Close or a final
// result. It returns the steering messages that no request delivered.
func (s *Session) endRun(res RunResult) (undelivered []string) {
	s.mu.Lock()
	if s.endReason == "" && res.closesSession() {
		s.endReason = string(res.Status)
		if res.Err != nil {
			s.endReason = res.Err.Error()
		}
	}
	s.mu.Unlock()
	if res.Status == StatusAwaitingHuman {
		return s.leave(SessionAwaitingInput)
	}
	return s.leave(SessionIdle)
}

// Abort ends the current run and kills its commands; the session stays open. It does not wait for
// the run, whose call of Run returns then. Without a run it does nothing.
func (s *Session) Abort() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(ErrAborted)
	}
}

// Close aborts the current run, delivers the last events, closes the session, and waits for all of
// it. It must not be called by a sink, a tool, Config.Answer, or the body of an iteration over
// RunStream, for which it waits; these call Abort. A second Close returns the error of the first,
// an error of the store.
func (s *Session) Close() error {
	s.stop("closed")
	<-s.closed
	return s.closeErr
}

// stop ends an idle session at once, and cancels a run, whose end ends the session.
func (s *Session) stop(reason string) {
	s.mu.Lock()
	if s.endReason != "" {
		s.mu.Unlock()
		return
	}
	s.endReason = reason
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(ErrAborted)
		return
	}
	s.end()
}

// end writes the session's last entry and event. Only the caller that set endReason or ended the
// last run calls it. A panic of the store is an error, because nobody could recover it in the
// goroutine of a sub-agent.
func (s *Session) end() {
	log := s.cfg.Log
	agentsErr := s.agents.close()
	appendErr := catchPanic(log, func() error {
		return s.store.Append(session.TypeEnded, session.Ended{Reason: s.endReason})
	})
	_ = s.emit("", event.SessionEnd{State: string(SessionClosed), Reason: s.endReason})
	s.mu.Lock()
	s.state = SessionClosed
	s.mu.Unlock()
	s.closeHub()
	s.closeErr = errors.Join(agentsErr, appendErr, catchPanic(log, s.store.Close))
	s.agent.forget(s)
	close(s.closed)
}
