package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/wrap"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// maxOpenAgents is how many sub-agents an agent may have that are not closed.
const maxOpenAgents = 64

// agentEntry is a sub-agent in the journal of the session that started it.
type agentEntry struct {
	RunID     string `json:"run_id"`
	AgentID   string `json:"agent_id"`
	SessionID string `json:"session_id"`
	Kind      string `json:"kind"`
	Dir       string `json:"dir,omitempty"`
	Task      string `json:"task"`
}

// lineage is where a session stands among those of a tree. The zero value is that of a tree's root.
type lineage struct {
	event.Origin
	depth int
	// parent is the session that starts this one, instructions are the user's own for it.
	parent       *Session
	instructions string
	// hub takes the events of the whole tree; nil makes one.
	hub *event.Hub
	// surroundings are those of the agent that starts this one; nil means to look around.
	surroundings *profile.Surroundings
}

// subagents are those of one session. It implements tool.Agents.
type subagents struct {
	s *Session
	// own are the tools that act on it.
	own []string
	// instructions are the user's own, for a session that is itself a sub-agent's.
	instructions string

	mu   sync.Mutex
	list []*subagent
	next int
	// starting counts agents that are being made.
	starting int
	// active says that a run goes on, which works on in and is offered these tools. Without one, no
	// agent begins.
	active  bool
	in      Input
	offered []string
	// worked tells of what ended since the run began.
	worked  []event.AgentResult
	usage   llm.Usage
	changes []event.FileChange
	// broken says that an event of an agent was not delivered, which ends the run with breakOff.
	broken   error
	breakOff func(error)
	// failed are errors of closing agents that are not in the list any more.
	failed error
}

// subagent is one agent. The state and the channel are guarded by the set.
type subagent struct {
	session *Session
	state   tool.AgentState
	ended   chan struct{} // closed when it does not run
}

var _ tool.Agents = (*subagents)(nil)

// Tools that sub-agents are offered in a way of their own: they end by exit, but nobody is asked.
const (
	askUser = "ask_user"
	exit    = "exit"
)

// register returns the tools for sub-agents; none where no more may be nested.
func (a *subagents) register(s Subagents, depth int) []tool.Tool {
	if depth >= s.MaxDepth {
		return nil
	}
	var kinds []tool.AgentKind
	for _, k := range s.kinds() {
		kinds = append(kinds, tool.AgentKind{Name: k.Name, Description: k.Description})
	}
	tools := tool.AgentTools(a, kinds)
	for _, t := range tools {
		a.own = append(a.own, t.Name)
	}
	return tools
}

func (a *subagents) begin(in Input, breakOff func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active, a.in, a.worked, a.usage, a.changes = true, in, nil, llm.Usage{}, nil
	a.broken, a.breakOff = nil, breakOff
}

func (a *subagents) offer(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offered = names
}

// run returns the input of the run that goes on, or of the last one.
func (a *subagents) run() Input {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.in
}

// undelivered ends the run that goes on, and those above it, because an event of one of the agents
// was not delivered.
func (a *subagents) undelivered(err error) {
	a.mu.Lock()
	if a.broken == nil && a.breakOff != nil {
		a.broken = err
		a.breakOff(err)
	}
	a.mu.Unlock()
	if p := a.s.parent; p != nil {
		p.agents.undelivered(err)
	}
}

// finish lets no agent begin, stops what runs, and returns what has been done in the run, and the
// error that should have ended it.
func (a *subagents) finish() (worked []event.AgentResult, usage llm.Usage,
	changes []event.FileChange, broken error,
) {
	a.mu.Lock()
	a.active = false
	a.mu.Unlock()
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.worked, a.usage, a.changes, a.broken
}

// stop ends the agents that run, and waits for that.
func (a *subagents) stop() {
	a.mu.Lock()
	var running []*subagent
	for _, g := range a.list {
		if g.state.Status == tool.AgentRunning {
			running = append(running, g)
		}
	}
	a.mu.Unlock()
	for _, g := range running {
		g.session.Abort()
	}
	for _, g := range running {
		_, err := a.end(g)
		a.mu.Lock()
		a.failed = errors.Join(a.failed, err)
		a.mu.Unlock()
	}
}

// end ends an agent, waits for that, and forgets it.
func (a *subagents) end(g *subagent) (tool.AgentState, error) {
	a.mu.Lock()
	ended := g.ended
	a.mu.Unlock()
	g.session.Abort()
	<-ended
	err := g.session.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.DeleteFunc(a.list, func(have *subagent) bool { return have == g })
	return g.state, err
}

// close closes all agents. None of them runs.
func (a *subagents) close() error {
	a.mu.Lock()
	list, err := a.list, a.failed
	a.list = nil
	a.mu.Unlock()
	for _, g := range list {
		err = errors.Join(err, g.session.Close())
	}
	return err
}

// Spawn implements tool.Agents.
func (a *subagents) Spawn(ctx context.Context, r tool.SpawnRequest) (tool.AgentState, error) {
	kinds := a.s.agent.cfg.Subagents.kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == r.Kind })
	if i < 0 {
		return tool.AgentState{}, fmt.Errorf("there is no kind of agent called %q", r.Kind)
	}
	kind := kinds[i]
	id, in, offered, err := a.reserve()
	if err != nil {
		return tool.AgentState{}, err
	}
	defer a.release()
	child, err := a.config(ctx, kind, r, in, offered)
	if err != nil {
		return tool.AgentState{}, err
	}
	s, err := a.open(ctx, id, child, a.userInstructions(in))
	if err != nil {
		return tool.AgentState{}, err
	}
	entry := agentEntry{
		RunID: in.RunID, AgentID: id, SessionID: s.id, Kind: kind.Name, Dir: r.Dir,
		Task: r.Task,
	}
	if err := a.s.store.Append(entryAgent, entry); err != nil {
		return tool.AgentState{}, errors.Join(err, s.Close())
	}
	g := &subagent{session: s, state: tool.AgentState{ID: id, Kind: kind.Name}}
	a.mu.Lock()
	if !a.active || a.in.RunID != in.RunID {
		a.mu.Unlock()
		return tool.AgentState{}, errors.Join(ErrAborted, s.Close())
	}
	a.list = append(a.list, g)
	state := a.start(ctx, g, r.Task)
	a.mu.Unlock()
	return state, nil
}

// reserve makes the ID of a new agent, for which there is room until release is called, and returns
// the run that it is for and what that is offered.
func (a *subagents) reserve() (id string, in Input, offered []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.active {
		return "", Input{}, nil, ErrAborted
	}
	if err := a.mayRun(); err != nil {
		return "", Input{}, nil, err
	}
	if open := len(a.list) + a.starting; open >= maxOpenAgents {
		return "", Input{}, nil, fmt.Errorf("%d agents are open, which is the limit; close those that "+
			"you need no more", open)
	}
	a.next++
	a.starting++
	prefix := cmp.Or(a.s.origin.AgentID, "agent")
	return fmt.Sprintf("%s_%d", prefix, a.next), a.in, a.offered, nil
}

func (a *subagents) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starting--
}

// mayRun reports whether one more agent may run. The caller holds mu.
func (a *subagents) mayRun() error {
	running := a.starting
	for _, g := range a.list {
		if g.state.Status == tool.AgentRunning {
			running++
		}
	}
	if running >= a.s.agent.cfg.Subagents.MaxRunning {
		return fmt.Errorf("%d agents run already, which is the limit; wait for one of them first",
			running)
	}
	return nil
}

// userInstructions are the user's own, which an agent has above those of its kind.
func (a *subagents) userInstructions(in Input) string {
	if a.s.parent != nil {
		return a.instructions
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return cmp.Or(in.Instructions, a.s.settings.Instructions)
}

// config is that of a new agent: the session's as it is now, less what the kind and the call take
// away.
func (a *subagents) config(
	ctx context.Context, kind Kind, r tool.SpawnRequest, in Input, offered []string,
) (Config, error) {
	s := a.s
	cfg := s.agent.cfg
	s.mu.Lock()
	cfg.Settings = s.settings.clone()
	s.mu.Unlock()
	cfg.Limits = s.limitsOf(in)
	most := cfg.Limits.MaxTurns
	cfg.Limits.MaxTurns = cmp.Or(r.MaxTurns, kind.MaxTurns, cfg.Subagents.MaxTurns)
	if most > 0 {
		cfg.Limits.MaxTurns = min(cfg.Limits.MaxTurns, most)
	}
	// Those of the agents above count; see overTokens for the one, and the other ends their run, and
	// so all agents of it.
	cfg.Limits.MaxTokens, cfg.Limits.MaxDuration = 0, 0
	cfg.Settings.Model = cmp.Or(r.Model, kind.Model, cfg.Settings.Model)
	cfg.Settings.Instructions = strings.TrimSpace(a.userInstructions(in) + "\n\n" + kind.Instructions)
	cfg.Verify, cfg.Ask, cfg.Tools = Verify{}, nil, nil
	cfg.Profile.Tools, cfg.Policy.Allow = a.tools(kind, offered)
	if cfg.Env == nil {
		if r.Dir != "" {
			return cfg, errors.New("there is no environment, and so no working_dir")
		}
		return cfg, nil
	}
	if r.Dir != "" {
		info, err := cfg.Env.Stat(ctx, r.Dir)
		if err != nil {
			return cfg, err
		}
		if !info.IsDir() {
			return cfg, &fs.PathError{Op: "chdir", Path: r.Dir, Err: env.ErrNotDir}
		}
		cfg.Env = wrap.Subdir(cfg.Env, r.Dir)
	}
	if kind.ReadOnly {
		cfg.Env = wrap.ReadOnly(cfg.Env, nil)
	}
	return cfg, nil
}

// tools are what an agent of that kind may use of what this session's run is offered. The names are
// those of the tools, and of the tools for sub-agents if it may have some of its own.
func (a *subagents) tools(kind Kind, offered []string) (list []tool.Tool, names []string) {
	names = []string{} // nil would allow everything
	for _, name := range offered {
		t, ok := a.s.registry.Get(name)
		own := slices.Contains(a.own, name)
		switch {
		case !ok, name == askUser, kind.ReadOnly && (own || !t.ReadOnly) && name != exit,
			kind.Tools != nil && !slices.Contains(kind.Tools, name):
			continue
		}
		names = append(names, name)
		if !own {
			list = append(list, t)
		}
	}
	return list, names
}

// open makes the session of an agent.
func (a *subagents) open(
	ctx context.Context, id string, cfg Config, instructions string,
) (*Session, error) {
	s := a.s
	around := s.surroundings
	around.Model, around.KnowledgeCutoff = cfg.Settings.Model,
		cfg.Profile.WithModel(cfg.Settings.Model).KnowledgeCutoff
	if cfg.Env != nil {
		around.WorkDir = cfg.Env.Info().WorkDir
		around.Docs = docsBelow(ctx, &s.agent.cfg, s.surroundings, around.WorkDir)
	}
	child := &Agent{cfg: cfg, sessions: map[string]*Session{}, runs: map[string]*Session{}}
	return openSession(ctx, child, s.id+"-"+id, lineage{
		Origin: event.Origin{AgentID: id, ParentID: s.origin.AgentID}, depth: s.depth +
			1, parent: s, instructions: instructions,
		hub: s.hub, surroundings: &around,
	}, nil)
}

// start lets an agent work on a task, independently of the call that asks for it. The caller holds
// mu.
func (a *subagents) start(ctx context.Context, g *subagent, task string) tool.AgentState {
	g.state.Status, g.state.Output, g.state.Problem = tool.AgentRunning, "", ""
	ended := make(chan struct{})
	g.ended = ended
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(ended)
		for more := true; more; {
			res, err := g.session.Run(ctx, Input{Text: task})
			task, more = a.note(g, res, err)
		}
	}()
	return g.state
}

// find returns the agent of that ID.
func (a *subagents) find(id string) (*subagent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.list {
		if g.state.ID == id {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w: %q; it was never started, or is closed", tool.ErrNoAgent, id)
}

// Send implements tool.Agents.
func (a *subagents) Send(ctx context.Context, id, message string) (tool.AgentState, error) {
	g, err := a.find(id)
	if err != nil {
		return tool.AgentState{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.active:
		return tool.AgentState{}, ErrAborted
	case g.state.Status == tool.AgentRunning:
		g.session.Steer(message)
		return g.state, nil
	case g.session.State() == SessionClosed:
		return tool.AgentState{}, fmt.Errorf("the agent %s cannot go on: %s; start another one", id,
			g.state.Problem)
	}
	if err := a.mayRun(); err != nil {
		return tool.AgentState{}, err
	}
	return a.start(ctx, g, message), nil
}

// Wait implements tool.Agents.
func (a *subagents) Wait(ctx context.Context, id string) (tool.AgentState, error) {
	g, err := a.find(id)
	if err != nil {
		return tool.AgentState{}, err
	}
	a.mu.Lock()
	ended := g.ended
	a.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return tool.AgentState{}, context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return g.state, nil
}

// CloseAgent implements tool.Agents.
func (a *subagents) CloseAgent(_ context.Context, id string) (tool.AgentState, error) {
	g, err := a.find(id)
	if err != nil {
		return tool.AgentState{}, err
	}
	return a.end(g)
}
