package agent

import (
	"context"
	"fmt"
	"iter"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Dependencies are all that an AgentLoop works with. Client, Profile and Store are required; other
// fields have the defaults of Config.
type Dependencies struct {
	// Client sends requests as they are, without retries; see llm.Retry.
	Client  llm.Client
	Profile profile.Profile
	// Store is that of one session, whose ID is SessionID; empty means a generated one. Close closes
	// it.
	Store     session.Store
	SessionID string
	// Tools are offered, and no others.
	Tools    []tool.Tool
	Executor ToolExecutor
	Context  ContextManager
	Env      env.Environment
	// Observe receives every event, in order; the loop waits for it. Its error ends the run.
	Observe func(event.Event) error
	NewID   func() string
	Clock   llm.Clock
	// Aggregate makes the aggregators of answers.
	Aggregate func() Aggregator
}

// AgentLoop is the engine of an Agent by itself: the state machine that runs the inputs of one
// session. It knows its dependencies and the input of a run, and no configuration, so it can be
// used with others, such as for people instead of tools, and for replays. Its methods may be called
// concurrently; inputs do not overlap.
type AgentLoop struct { //nolint:revive // loop is what it wraps
	agent   *Agent
	session *Session
}

// NewAgentLoop returns a loop, for which it reads the project's instructions and the state of its
// git repository in the environment. The caller closes it. An error about d wraps ErrConfig.
func NewAgentLoop(ctx context.Context, d Dependencies) (*AgentLoop, error) {
	if d.Store == nil {
		return nil, fmt.Errorf("agent: %w: no store", ErrConfig)
	}
	own := d.Profile
	own.Tools = nil
	cfg := Config{
		Client: d.Client, Profile: own, Env: d.Env, Tools: d.Tools, Executor: d.Executor,
		Store:   func(string) (session.Store, error) { return d.Store, nil },
		Context: d.Context, NewID: d.NewID, Clock: d.Clock, Aggregate: d.Aggregate,
		Subagents: Subagents{MaxDepth: -1},
	}
	if d.Observe != nil {
		cfg.Sinks = []func(event.Event) error{d.Observe}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	a := newAgent(cfg)
	s, err := a.NewSession(ctx, SessionOptions{ID: d.SessionID})
	if err != nil {
		return nil, err
	}
	return &AgentLoop{a, s}, nil
}

// Run works on in until it ends; see Session.Run.
func (l *AgentLoop) Run(ctx context.Context, in Input) (RunResult, error) {
	return l.session.Run(ctx, in)
}

// RunStream works on in and yields the events; see Agent.RunStream.
func (l *AgentLoop) RunStream(
	ctx context.Context, in Input, result *RunResult,
) iter.Seq2[event.Event, error] {
	in.SessionID = l.session.ID()
	return l.agent.RunStream(ctx, in, result)
}

// Abort ends the run with that ID; see Agent.Abort.
func (l *AgentLoop) Abort(runID string) bool { return l.agent.Abort(runID) }

// Close aborts the run and closes the store; see Session.Close.
func (l *AgentLoop) Close() error { return l.agent.Close() }
