package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Defaults of Subagents.
const (
	DefaultAgentDepth = 1
	DefaultAgentTurns = 50
	DefaultMaxAgents  = 8
)

// maxOpenAgents is how many sub-agents an agent may have that are not closed.
const maxOpenAgents = 64

// Subagents says whether and how agents may start others: with the tools spawn_agent, send_input, wait and close_agent.
//
// A sub-agent has a session of its own within that of the agent that started it: its own history, the same environment, of
// which it may be confined to a folder, and no more tools. It ends with the run in which it works; one that has ended its
// task can be given another until the session is closed.
type Subagents struct {
	// MaxDepth is how deep agents may be nested; zero means DefaultAgentDepth, less than zero no sub-agents.
	MaxDepth int
	// MaxTurns is how many turns a sub-agent may take if neither the call nor its kind says; zero means DefaultAgentTurns.
	MaxTurns int
	// MaxRunning is how many sub-agents of an agent may run at once; zero means DefaultMaxAgents.
	MaxRunning int
	// Kinds are offered besides the built-in general and explore; one of the same name takes the other's place.
	Kinds []Kind
}

func (s Subagents) validate() error {
	if s.MaxTurns < 0 || s.MaxRunning < 0 {
		return fmt.Errorf("agent: %w: a limit of sub-agents is negative", ErrConfig)
	}
	for _, k := range s.Kinds {
		if err := k.validate(); err != nil {
			return fmt.Errorf("agent: %w: %w", ErrConfig, err)
		}
	}
	return nil
}

func (s Subagents) withDefaults() Subagents {
	s.MaxDepth = cmp.Or(s.MaxDepth, DefaultAgentDepth)
	s.MaxTurns = cmp.Or(s.MaxTurns, DefaultAgentTurns)
	s.MaxRunning = cmp.Or(s.MaxRunning, DefaultMaxAgents)
	return s
}

// SubagentRecord is a sub-agent that worked in a run.
type SubagentRecord struct {
	ID     string           `json:"id"`
	Kind   string           `json:"kind"`
	Status tool.AgentStatus `json:"status"`
	Turns  int              `json:"turns"`
	Usage  llm.Usage        `json:"usage"`
}

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

	mu   sync.Mutex
	list []*subagent
	next int
	// runID is the run that goes on, offered are its tools. Without one, no agent begins.
	runID   string
	offered []string
	// worked tells of what ended since the run began.
	worked  []SubagentRecord
	usage   llm.Usage
	changes []event.FileChange
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

func (a *subagents) begin(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runID, a.worked, a.usage, a.changes = runID, nil, llm.Usage{}, nil
}

func (a *subagents) offer(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offered = names
}

// finish stops what runs, waits for it, and returns what has been done in the run.
func (a *subagents) finish() (worked []SubagentRecord, usage llm.Usage, changes []event.FileChange) {
	a.mu.Lock()
	a.runID = ""
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
		<-g.ended
		a.drop(g)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.worked, a.usage, a.changes
}

// close closes all agents.
func (a *subagents) close() error {
	a.mu.Lock()
	list := a.list
	a.list = nil
	a.mu.Unlock()
	var errs []error
	for _, g := range list {
		errs = append(errs, g.session.Close())
	}
	return errors.Join(errs...)
}

func (a *subagents) drop(g *subagent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.DeleteFunc(a.list, func(have *subagent) bool { return have == g })
}

// Spawn implements tool.Agents.
func (a *subagents) Spawn(ctx context.Context, r tool.SpawnRequest) (tool.AgentState, error) {
	cfg := &a.s.agent.cfg
	kinds := cfg.Subagents.kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == r.Kind })
	if i < 0 {
		return tool.AgentState{}, fmt.Errorf("there is no kind of agent called %q", r.Kind)
	}
	kind := kinds[i]
	a.mu.Lock()
	runID, offered, running, open := a.runID, a.offered, 0, len(a.list)
	for _, g := range a.list {
		if g.state.Status == tool.AgentRunning {
			running++
		}
	}
	a.next++
	number := a.next
	a.mu.Unlock()
	switch {
	case runID == "":
		return tool.AgentState{}, ErrAborted
	case running >= cfg.Subagents.MaxRunning:
		return tool.AgentState{}, fmt.Errorf("%d agents run already, which is the limit; wait for one of them first", running)
	case open >= maxOpenAgents:
		return tool.AgentState{}, fmt.Errorf("%d agents are open, which is the limit; close those that you need no more", open)
	}
	child, err := a.config(ctx, kind, r, offered)
	if err != nil {
		return tool.AgentState{}, err
	}
	id := fmt.Sprintf("agent_%d", number)
	if a.s.origin.AgentID != "" {
		id = fmt.Sprintf("%s_%d", a.s.origin.AgentID, number)
	}
	s, err := a.open(ctx, id, child)
	if err != nil {
		return tool.AgentState{}, err
	}
	entry := agentEntry{RunID: runID, AgentID: id, SessionID: s.id, Kind: kind.Name, Dir: r.Dir, Task: r.Task}
	if err := a.s.store.Append(entryAgent, entry); err != nil {
		return tool.AgentState{}, errors.Join(err, s.Close())
	}
	g := &subagent{session: s, state: tool.AgentState{ID: id, Kind: kind.Name}}
	a.mu.Lock()
	if a.runID != runID {
		a.mu.Unlock()
		return tool.AgentState{}, errors.Join(ErrAborted, s.Close())
	}
	a.list = append(a.list, g)
	state := a.start(ctx, g, r.Task)
	a.mu.Unlock()
	return state, nil
}

// config is that of a new agent: the session's as it is now, less what the kind and the call take away.
func (a *subagents) config(ctx context.Context, kind Kind, r tool.SpawnRequest, offered []string) (Config, error) {
	s := a.s
	cfg := s.agent.cfg
	s.mu.Lock()
	cfg.Settings, cfg.Limits = s.settings.clone(), s.limits
	if cfg.Limits.MaxTokens > 0 {
		cfg.Limits.MaxTokens = max(cfg.Limits.MaxTokens-s.usage.Total()-s.guessed, 1)
	}
	s.mu.Unlock()
	cfg.Limits.MaxTurns = cmp.Or(r.MaxTurns, kind.MaxTurns, cfg.Subagents.MaxTurns)
	cfg.Settings.Model = cmp.Or(r.Model, kind.Model, cfg.Settings.Model)
	cfg.Settings.Instructions = strings.TrimSpace(cfg.Settings.Instructions + "\n\n" + kind.Instructions)
	cfg.Verify, cfg.Ask = Verify{}, nil
	cfg.Profile.Tools, cfg.Tools = a.tools(kind, offered), nil
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
		cfg.Env = env.Confine(cfg.Env, r.Dir)
	}
	if kind.ReadOnly {
		cfg.Env = env.ReadOnly(cfg.Env, nil)
	}
	return cfg, nil
}

// tools are what an agent of that kind may use of what this session's run is offered.
func (a *subagents) tools(kind Kind, offered []string) []tool.Tool {
	var list []tool.Tool
	for _, name := range offered {
		t, ok := a.s.registry.Get(name)
		switch {
		case !ok, slices.Contains(a.own, name), name == askUser, kind.ReadOnly && !t.ReadOnly && name != exit,
			kind.Tools != nil && !slices.Contains(kind.Tools, name):
			continue
		}
		list = append(list, t)
	}
	return list
}

// open makes the session of an agent.
func (a *subagents) open(ctx context.Context, id string, cfg Config) (*Session, error) {
	s := a.s
	around := s.surroundings
	around.Model = cfg.Settings.Model
	if cfg.Env != nil {
		around.WorkDir = cfg.Env.Info().WorkDir
	}
	child := &Agent{cfg: cfg, sessions: map[string]*Session{}, runs: map[string]*Session{}}
	return openSession(ctx, child, s.id+"-"+id, lineage{
		Origin: event.Origin{AgentID: id, ParentID: s.origin.AgentID}, depth: s.depth + 1, hub: s.hub, surroundings: &around,
	}, nil)
}

// start lets an agent work on a task, independently of the call that asks for it. The caller holds mu.
func (a *subagents) start(ctx context.Context, g *subagent, task string) tool.AgentState {
	g.state.Status, g.state.Output, g.state.Problem = tool.AgentRunning, "", ""
	ended := make(chan struct{})
	g.ended = ended
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(ended)
		res, err := g.session.Run(ctx, Input{Text: task})
		a.note(g, res, err)
	}()
	return g.state
}

// note keeps how an agent's work has ended.
func (a *subagents) note(g *subagent, res Result, err error) {
	a.s.spend(res.Usage)
	a.mu.Lock()
	defer a.mu.Unlock()
	g.state.Status, g.state.Output, g.state.Turns = tool.AgentCompleted, res.Final, res.Turns
	if res.Status != StatusCompleted {
		g.state.Status, g.state.Problem = tool.AgentFailed, problem(res, err)
	}
	a.usage = a.usage.Add(res.Usage)
	a.worked = append(a.worked, SubagentRecord{ID: g.state.ID, Kind: g.state.Kind, Status: g.state.Status, Turns: res.Turns, Usage: res.Usage})
	a.worked = append(a.worked, res.Agents...)
	for _, c := range res.Changes {
		c.Path = a.changed(g, c.Path)
		a.changes = mergeChange(a.changes, c)
	}
}

// changed is the name that this session has for a file that an agent has changed, which names it within its own folder.
func (a *subagents) changed(g *subagent, name string) string {
	parent, child := a.s.agent.cfg.Env, g.session.agent.cfg.Env
	if parent == nil || child == nil || path.IsAbs(name) {
		return name
	}
	rel, ok := strings.CutPrefix(child.Info().WorkDir, strings.TrimSuffix(parent.Info().WorkDir, "/")+"/")
	if !ok {
		return name
	}
	return path.Join(rel, name)
}

// problem says in words why a run did not do its work.
func problem(res Result, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case res.Status == StatusLimit:
		return "the limit of " + strings.ReplaceAll(res.Limit, "_", " ") + " was reached"
	case res.Exit != nil && res.Exit.Reason != "":
		return res.Exit.Reason
	}
	return strings.ReplaceAll(string(res.Status), "_", " ")
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
	case a.runID == "":
		return tool.AgentState{}, ErrAborted
	case g.state.Status == tool.AgentRunning:
		g.session.Steer(message)
		return g.state, nil
	case g.session.State() == SessionClosed:
		return tool.AgentState{}, fmt.Errorf("the agent %s cannot go on: %s; start another one", id, g.state.Problem)
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
	a.mu.Lock()
	ended := g.ended
	a.mu.Unlock()
	g.session.Abort()
	<-ended
	err = g.session.Close()
	a.drop(g)
	a.mu.Lock()
	defer a.mu.Unlock()
	return g.state, err
}
