package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// answer is the answer of the fake model to one request.
type answer struct {
	text   string
	calls  []llm.ToolCall
	usage  llm.Usage
	finish llm.FinishReason
	err    error
	// before runs before the answer is given.
	before func(ctx context.Context, req llm.Request)
}

// model plays answers in order and records the requests. After the last answer it answers "done".
type model struct {
	mu       sync.Mutex
	answers  []answer
	requests []llm.Request
}

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		m.mu.Lock()
		a := answer{text: "done"}
		if n := len(m.requests); n < len(m.answers) {
			a = m.answers[n]
		}
		req.Messages = slices.Clone(req.Messages)
		m.requests = append(m.requests, req)
		m.mu.Unlock()
		if a.before != nil {
			a.before(ctx, req)
		}
		if ctx.Err() != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.KindCanceled, Err: context.Cause(ctx)})
			return
		}
		emit := func(d llm.Delta) bool { return yield(d, nil) }
		if a.text != "" && !emit(llm.Delta{Kind: llm.DeltaText, Text: a.text}) {
			return
		}
		for i, c := range a.calls {
			started := &llm.ToolCall{ID: c.ID, Name: c.Name}
			if !emit(llm.Delta{Kind: llm.DeltaToolCall, Index: i, Call: started}) ||
				!emit(llm.Delta{Kind: llm.DeltaArguments, Index: i, Text: c.Arguments}) {
				return
			}
		}
		if a.err != nil {
			yield(llm.Delta{}, a.err)
			return
		}
		emit(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: a.finish, Usage: a.usage}})
	}
}

func (m *model) request(t *testing.T, n int) llm.Request {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if n >= len(m.requests) {
		t.Fatalf("the model got %d requests, not %d", len(m.requests), n+1)
	}
	return m.requests[n]
}

// object is a JSON object.
type object = map[string]any

// call makes a tool call.
func call(id, name string, args object) llm.ToolCall {
	if args == nil {
		args = object{}
	}
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return llm.ToolCall{ID: id, Name: name, Arguments: string(b)}
}

func calls(cs ...llm.ToolCall) answer { return answer{calls: cs} }

// newTool makes a tool that takes any object.
func newTool(
	name string, readOnly bool, run func(ctx context.Context, c *tool.Call) (tool.Result, error),
) tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: name, Description: "A tool for tests.", Schema: json.RawMessage(`{"type":"object"}`),
		},
		ReadOnly: readOnly, Run: run,
	}
}

// callLog records the calls of its tools.
type callLog struct {
	mu   sync.Mutex
	seen []string
}

func (n *callLog) tool(name string, readOnly bool) tool.Tool {
	return newTool(name, readOnly, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.seen = append(n.seen, c.ID)
		return tool.Result{Text: "result of " + c.ID}, nil
	})
}

func (n *callLog) calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// recorder is a store that records entries in memory. Unless failAt is zero, it fails from that
// entry on.
type recorder struct {
	mu      sync.Mutex
	failAt  int
	entries []entry
}

type entry struct {
	typ  string
	data string
}

var errDisk = errors.New("the disk is full")

func (r *recorder) Append(typ string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failAt > 0 && len(r.entries)+1 >= r.failAt {
		return errDisk
	}
	r.entries = append(r.entries, entry{typ, string(b)})
	return nil
}

func (r *recorder) Sync() error           { return nil }
func (r *recorder) Spool() tool.Spool     { return nil }
func (r *recorder) Backups() tool.Backups { return nil }
func (r *recorder) Dir() string           { return "" }
func (r *recorder) Close() error          { return nil }

func (r *recorder) OpenOutput(id string) (io.ReadCloser, error) {
	return nil, &fs.PathError{Op: "open", Path: id, Err: fs.ErrNotExist}
}

func (r *recorder) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.entries {
		out = append(out, e.typ)
	}
	return out
}

// events collects the events of a sink.
type events struct {
	mu  sync.Mutex
	all []event.Event
}

func (e *events) sink(ev event.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
	return nil
}

// watch collects the events of an agent with the configuration cfg.
func watch(cfg *agent.Config) *events {
	ev := &events{}
	cfg.Sinks = append(cfg.Sinks, ev.sink)
	return ev
}

func (e *events) kinds() []event.Kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []event.Kind
	for _, ev := range e.all {
		out = append(out, ev.Kind())
	}
	return out
}

// index returns the position of the first event of that kind and agent, or -1.
func (e *events) index(kind event.Kind, agentID string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.IndexFunc(e.all, func(ev event.Event) bool {
		return ev.Kind() == kind && ev.AgentID == agentID
	})
}

func (e *events) count(kind event.Kind) int {
	n := 0
	for _, k := range e.kinds() {
		if k == kind {
			n++
		}
	}
	return n
}

// config configures an agent without an environment.
func config(m llm.Client, tools ...tool.Tool) agent.Config {
	n := 0
	var mu sync.Mutex
	cfg := agent.Config{
		Client: m,
		Profile: profile.Profile{
			ID: "test", Model: "m", Instructions: "Do it.",
			SupportsParallelToolCalls: true, SupportsReasoning: true, ContextWindow: 1000,
		},
		Tools:  tools,
		Store:  session.InMemory(),
		Retry:  llm.RetryPolicy{MaxRetries: -1},
		Limits: agent.Limits{MaxReplans: -1}, // tests of failures change it
		// Tests of sub-agents change it.
		Subagents: agent.Subagents{MaxDepth: -1},
	}
	cfg.NewID = func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("id%d", n)
	}
	return cfg
}

func newAgent(t *testing.T, cfg agent.Config) *agent.Agent {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newSession(t *testing.T, cfg agent.Config) *agent.Session {
	t.Helper()
	s, err := newAgent(t, cfg).NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
