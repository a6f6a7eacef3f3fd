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
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// maxOpenAgents bounds the open sub-agents of an agent.
const maxOpenAgents = 64

// lineage is the position of a session in a tree of agents. The zero value is that of a root.
type lineage struct {
	event.Origin
	depth int
	// parent is the session that starts this one, instructions are the user's for it.
	parent       *Session
	instructions string
	// hub delivers the events of the whole tree; nil creates one.
	hub *hub
	// surroundings derive from the parent's; nil means to collect them.
	surroundings *profile.Surroundings
	// skipped has a line for each file with instructions that was refused.
	skipped []string
	// store and record are those of a session that goes on; nil for a new one.
	store  session.Store
	record *session.Record
}

// subagents are the sub-agents of a session. It implements tool.Agents.
type subagents struct {
	s *Session
	// control are the names of the tools that act on it.
	control []string
	// instructions are the user's, for a session that is itself a sub-agent's.
	instructions string

	mu   sync.Mutex
	list []*subagent
	next int
	// starting counts the agents that Spawn creates now.
	starting int
	// active means that a run has started and not ended; otherwise no agent starts. The run has the
	// input in, and its model is offered the tools offered.
	active  bool
	in      Input
	offered []string
	// results and changes sum the ended tasks of this run.
	results []event.AgentResult
	changes []event.FileChange
	// undelivered is the error of an agent's event. It ends the run by interrupt.
	undelivered error
	interrupt   func(error)
	// closeErr joins the errors of agents that stop has closed.
	closeErr error
}

// subagent is one sub-agent. The mutex of its set guards state, ended and late.
type subagent struct {
	session *Session
	state   tool.AgentState
	ended   chan struct{} // closed while it does not run
	// late are messages since the end of its run.
	late []string
	// writes means that it may change files.
	writes bool
}

var _ tool.Agents = (*subagents)(nil)

// A sub-agent never gets ask_user; exit stays, also for a read-only one.
const (
	askUser = "ask_user"
	exit    = "exit"
)

// register returns the tools that control sub-agents; none at the greatest depth.
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
		a.control = append(a.control, t.Name)
	}
	return tools
}

func (a *subagents) startRun(in Input, interrupt func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active, a.in, a.results, a.changes = true, in, nil, nil
	a.undelivered, a.interrupt = nil, interrupt
}

// offer sets the tools of the next answer, of which an agent gets some.
func (a *subagents) offer(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offered = names
}

// offers reports whether the model can call the tool name.
func (a *subagents) offers(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.offered, name)
}

// currentInput returns the input of the current or last run.
func (a *subagents) currentInput() Input {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.in
}

// deliveryFailed ends the current run, and those above it, with the error of an agent's event.
func (a *subagents) deliveryFailed(err error) {
	a.mu.Lock()
	if a.undelivered == nil && a.interrupt != nil {
		a.undelivered = err
		a.interrupt(err)
	}
	a.mu.Unlock()
	if p := a.s.parent; p != nil {
		p.agents.deliveryFailed(err)
	}
}

// states returns the agents that are open.
func (a *subagents) states() (list []tool.AgentState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.list {
		list = append(list, g.state)
	}
	return list
}

// endRun stops all agents, and returns the work of the run and the error that ended it, if an event
// was undelivered.
func (a *subagents) endRun() (
	results []event.AgentResult, changes []event.FileChange, err error,
) {
	a.mu.Lock()
	a.active = false
	a.mu.Unlock()
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.results, a.changes, a.undelivered
}

// stop ends the running agents and waits for that.
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
		g.session.stop("aborted")
	}
	for _, g := range running {
		_, err := a.end(g)
		a.mu.Lock()
		a.closeErr = errors.Join(a.closeErr, err)
		a.mu.Unlock()
	}
}

// end aborts and removes an agent, and waits for that.
func (a *subagents) end(g *subagent) (tool.AgentState, error) {
	a.mu.Lock()
	ended := g.ended
	a.mu.Unlock()
	g.session.stop("aborted")
	<-ended
	err := g.session.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.DeleteFunc(a.list, func(have *subagent) bool { return have == g })
	return g.state, err
}

// close closes all agents, none of which runs.
func (a *subagents) close() error {
	a.mu.Lock()
	list, err := a.list, a.closeErr
	a.list = nil
	a.mu.Unlock()
	for _, g := range list {
		err = errors.Join(err, g.session.Close())
	}
	return err
}

// Spawn implements tool.Agents.
func (a *subagents) Spawn(ctx context.Context, r tool.SpawnRequest) (tool.AgentState, error) {
	kinds := a.s.cfg.Subagents.kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == r.Kind })
	if i < 0 {
		return tool.AgentState{}, fmt.Errorf("unknown kind of agent %q", r.Kind)
	}
	kind := kinds[i]
	id, in, offered, err := a.reserve()
	if err != nil {
		return tool.AgentState{}, err
	}
	defer a.release()
	planning := a.s.mode.isPlanning()
	child, err := a.config(ctx, kind, r, in, offered, planning)
	if err != nil {
		return tool.AgentState{}, err
	}
	s, err := a.open(ctx, id, child, a.userInstructions(in))
	if err != nil {
		return tool.AgentState{}, err
	}
	entry := session.AgentStarted{
		RunID: in.RunID, AgentID: id, SessionID: s.id, Kind: kind.Name, Dir: r.Dir, Task: r.Task,
	}
	if err := a.s.store.Append(session.TypeAgentStarted, entry); err != nil {
		return tool.AgentState{}, errors.Join(err, s.Close())
	}
	g := &subagent{
		session: s, state: tool.AgentState{ID: id, Kind: kind.Name},
		writes: !kind.ReadOnly && !planning,
	}
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

// reserve returns the ID of a new agent, which counts as running until release, and the input and
// the offered tools of its run.
func (a *subagents) reserve() (id string, in Input, offered []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.active {
		return "", Input{}, nil, ErrAborted
	}
	if err := a.checkRunning(); err != nil {
		return "", Input{}, nil, err
	}
	if open := len(a.list) + a.starting; open >= maxOpenAgents {
		return "", Input{}, nil, fmt.Errorf("%d agents are open, which is the limit; close some of "+
			"them first", open)
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

// checkRunning returns an error if no other agent may run. The caller holds mu.
func (a *subagents) checkRunning() error {
	running := a.starting
	for _, g := range a.list {
		if g.state.Status == tool.AgentRunning {
			running++
		}
	}
	if running >= a.s.cfg.Subagents.MaxRunning {
		return fmt.Errorf("%d agents run already, which is the limit; wait for one of them first",
			running)
	}
	return nil
}

// plan calls begin, which begins plan mode, unless agents are open that may change files.
func (a *subagents) plan(begin func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starting > 0 {
		return errors.New("an agent is starting; wait for it, and close it before you plan")
	}
	for _, g := range a.list {
		if g.writes {
			return fmt.Errorf("the agent %s may change files; close it before you plan", g.state.ID)
		}
	}
	return begin()
}

// userInstructions returns the user's instructions, which precede those of an agent's kind.
func (a *subagents) userInstructions(in Input) string {
	if a.s.parent != nil {
		return a.instructions
	}
	return cmp.Or(in.Instructions, a.s.currentSettings().Instructions)
}

// config returns the configuration of a new agent: the current one of the session, restricted by
// the kind and the request.
func (a *subagents) config(
	ctx context.Context, kind Kind, r tool.SpawnRequest, in Input, offered []string, planning bool,
) (Config, error) {
	s := a.s
	cfg := s.cfg
	cfg.Settings = s.currentSettings().clone()
	cfg.Limits = s.limitsOf(in)
	cfg.Limits.MaxTurns = cmp.Or(r.MaxTurns, kind.MaxTurns, cfg.Subagents.MaxTurns)
	// The limits of the agents above count: see budget, and the end of a run ends its agents.
	cfg.Limits.MaxTokens, cfg.Limits.MaxCost, cfg.Limits.MaxDuration = 0, 0, 0
	cfg.Limits.MaxTokens = kind.MaxTokens
	cfg.Limits.MaxToolCalls = stricter(cfg.Limits.MaxToolCalls, kind.MaxToolCalls)
	cfg.Settings.Model = cmp.Or(r.Model, kind.Model, cfg.Settings.Model)
	cfg.Settings.Instructions = strings.TrimSpace(a.userInstructions(in) + "\n\n" + kind.Instructions)
	cfg.Verify, cfg.Answer, cfg.Tools, cfg.Modes, cfg.Program = Verify{}, nil, nil, nil, nil
	cfg.Planner, cfg.Titles, cfg.kindInstructions = false, false, ""
	if kind.ReadOnly || planning {
		cfg.ProgressFile = ""
	}
	if planning {
		cfg.Rules = cfg.Rules.Tighten(s.mode.rules)
	}
	cfg.Policy = cfg.Policy.narrow(in.Policy)
	cfg.Profile.Tools, cfg.Policy.Allow = a.tools(kind, offered)
	if kind.Rules != nil {
		cfg.Rules = cfg.Rules.Tighten(kind.Rules)
	}
	if cfg.Env == nil {
		if r.Dir != "" {
			return cfg, errors.New("working_dir needs an environment, and this session has none")
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
		if cfg.progressEnv == nil {
			cfg.progressEnv = cfg.Env
		}
		cfg.Env = wrap.Subdir(cfg.Env, r.Dir)
		text := confinedText
		if cfg.Env.Info().Strength(env.ConfinedCommands) != env.Enforced {
			text = unconfinedText
			cfg.Rules = cfg.Rules.Tighten(unconfinedRules())
		}
		cfg.Settings.Instructions = strings.TrimSpace(cfg.Settings.Instructions + "\n\n" + text)
	}
	if kind.ReadOnly || planning {
		cfg.Env = wrap.ReadOnly(cfg.Env, nil)
	}
	return cfg, nil
}

// Instructions of agents with a working directory of their own.
const (
	confinedText = "You work in a part of the project, which is your working directory. Your tools " +
		"and commands can change nothing outside of it, but temporary files, and read no other files " +
		"of the project."
	unconfinedText = "You work in a part of the project, which is your working directory. Your " +
		"tools reach no files outside of it. Commands could, so each needs the approval of the user."
)

// unconfinedRules are for agents with a working directory of their own in an environment that
// cannot keep commands to it.
func unconfinedRules() *policy.Policy {
	return &policy.Policy{Rules: []policy.Rule{{
		Permission: policy.ClassShell, Action: policy.Ask, Source: "the working_dir of this agent",
	}}}
}

// tools returns the tools of a new agent: those offered to this session's run that the kind allows.
// The names include the tools that control sub-agents, which the agent's session makes itself.
func (a *subagents) tools(kind Kind, offered []string) (list []tool.Tool, names []string) {
	names = []string{} // nil would allow everything
	for _, name := range offered {
		t, ok := a.s.registry.Get(name)
		control := slices.Contains(a.control, name)
		switch {
		case !ok, name == askUser, name == planEnter, name == planExit,
			slices.Contains(plannerTools[:], name),
			kind.ReadOnly && (control || !t.ReadOnly) && name != exit,
			kind.Tools != nil && !slices.Contains(kind.Tools, name):
			continue
		}
		names = append(names, name)
		if !control {
			list = append(list, t)
		}
	}
	return list, names
}

// open creates the session of an agent.
func (a *subagents) open(
	ctx context.Context, id string, cfg Config, instructions string,
) (*Session, error) {
	s := a.s
	info := s.surroundings
	info.Model = cfg.Settings.Model
	info.KnowledgeCutoff = cfg.Profile.WithModel(info.Model).KnowledgeCutoff
	var skipped []string
	if cfg.Env != nil {
		info.WorkDir = cfg.Env.Info().WorkDir
		info.Docs, skipped = addDocs(ctx, s.cfg.Env, s.surroundings, cfg.Profile.ProjectDocs,
			info.WorkDir)
	}
	return openSession(ctx, newAgent(cfg), cfg, s.id+"-"+id, lineage{
		Origin: event.Origin{AgentID: id, ParentID: s.origin.AgentID},
		depth:  s.depth + 1, parent: s, instructions: instructions,
		hub: s.hub, surroundings: &info, skipped: skipped,
	}, nil)
}

// start runs a task in a new goroutine. The caller holds mu.
func (a *subagents) start(ctx context.Context, g *subagent, task string) tool.AgentState {
	g.state.Status, g.state.Output, g.state.Problem = tool.AgentRunning, "", ""
	ended := make(chan struct{})
	g.ended = ended
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(ended)
		for more := true; more; {
			res, err := g.session.Run(ctx, Input{Text: task})
			task, more = a.addResult(g, res, err)
		}
	}()
	return g.state
}

// find returns the agent with that ID.
func (a *subagents) find(id string) (*subagent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.list {
		if g.state.ID == id {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w: %q is closed or was never started", tool.ErrNoAgent, id)
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
		if g.session.Steer(message) != nil {
			g.late = append(g.late, message)
		}
		return g.state, nil
	case g.session.State() == SessionClosed:
		return tool.AgentState{}, fmt.Errorf("the agent %s cannot continue: %s; start another one",
			id, g.state.Problem)
	}
	if err := a.checkRunning(); err != nil {
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
