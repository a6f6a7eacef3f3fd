package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestRunAgentPanic checks that a panic that the agent does not recover ends the run and not the
// program.
func TestRunAgentPanic(t *testing.T) {
	e, err := local.New(local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	there := &environment{log: slog.New(slog.DiscardHandler), opened: opened{plain: e}}
	j := &job{task: "x", env: there, config: agent.Config{
		Client: explodingClient{}, Profile: profile.OpenAI("m"),
		Store: func(string) (session.Store, error) { panic("the store exploded") },
	}}
	res, err := runAgent(t.Context(), j)
	if res.Status != agent.StatusInternalError || err == nil || !strings.Contains(err.Error(),
		"the store exploded") {
		t.Errorf("%s: %v", res.Status, err)
	}
}

func TestStatusOf(t *testing.T) {
	other := errors.New("something else")
	tests := []struct {
		name  string
		err   error
		cause error
		want  agent.Status
	}{
		{"interrupted", other, interrupted, agent.StatusAborted},
		{"time", other, agent.ErrTimeLimit, agent.StatusTimedOut},
		{"configuration", fmt.Errorf("agent: %w: no model", agent.ErrConfig), nil, statusUsage},
		{"usage", usagef("no"), nil, statusUsage},
		{"other", fs.ErrPermission, nil, agent.StatusInternalError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusOf(ended(t, tt.cause), tt.err, agent.StatusInternalError); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	modelError := func(kind llm.ErrorKind) error {
		return fmt.Errorf("agent: %w", &llm.Error{Kind: kind, Provider: "gemini", Message: "m"})
	}
	tests := []struct {
		name  string
		res   agent.RunResult
		err   error
		cause error
		want  string
	}{
		{"done", agent.RunResult{Status: agent.StatusCompleted}, nil, nil, ""},
		{
			"interrupted",
			agent.RunResult{Status: agent.StatusAborted},
			errors.New("agent: aborted: interrupted"), interrupted, "interrupted",
		},
		{
			"time",
			agent.RunResult{Status: agent.StatusTimedOut},
			fmt.Errorf("agent: %w", agent.ErrTimeLimit), agent.ErrTimeLimit,
			"the run timed out (--timeout)",
		},
		{
			"time, and the patch",
			agent.RunResult{Status: agent.StatusTimedOut},
			errors.Join(fmt.Errorf("agent: %w", agent.ErrTimeLimit), errors.New("--patch: no")),
			agent.ErrTimeLimit,
			"the run timed out (--timeout): --patch: no",
		},
		{
			"limit",
			agent.RunResult{Status: agent.StatusLimit, Limit: "turns"},
			nil, nil,
			"the limit of turns was reached (--max-turns)",
		},
		{
			"output limit",
			agent.RunResult{Status: agent.StatusLimit, Limit: "output_tokens"},
			nil, nil,
			"the limit of output tokens was reached (ask for smaller steps)",
		},
		{
			"key",
			agent.RunResult{Status: agent.StatusModelError},
			modelError(llm.KindAuth), nil,
			"gemini: auth: m; check the key in GEMINI_API_KEY or GOOGLE_API_KEY or SANDBOXAGENT_API_KEY",
		},
		{
			"network",
			agent.RunResult{Status: agent.StatusModelError},
			modelError(llm.KindNetwork), nil,
			"gemini: network: m; check --base-url and the network",
		},
		{
			"name",
			agent.RunResult{Status: agent.StatusModelError},
			modelError(llm.KindNotFound), nil,
			"gemini: not_found: m; check --model and --base-url",
		},
		{
			"redirect",
			agent.RunResult{Status: agent.StatusModelError},
			&llm.Error{Kind: llm.KindNotFound, Status: 307, Message: "m"}, nil,
			"not_found (HTTP 307): m; set --base-url to the final address",
		},
		{
			"patch",
			agent.RunResult{Status: agent.StatusEnvironmentError},
			errors.New("--patch: no"), nil,
			"--patch: no",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := explain(ended(t, tt.cause), tt.res, tt.err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	exit := &tool.Exit{Code: 1, Reason: "because"}
	tests := []struct {
		name string
		res  agent.RunResult
		want string
	}{
		{"text", agent.RunResult{Status: agent.StatusCompleted, Final: "done", Exit: exit}, "done"},
		{"reason", agent.RunResult{Status: agent.StatusTaskFailed, Exit: exit}, "because"},
		{
			"question",
			agent.RunResult{Status: agent.StatusAwaitingHuman, Final: "I ask.", Question: "which?"},
			"which?",
		},
		{"nothing", agent.RunResult{Status: agent.StatusModelError}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := answer(tt.res); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestReadAllEnds checks that an input that stays open does not outlast the context.
func TestReadAllEnds(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	_, err := readAll(ended(t, interrupted), blockingReader{block}, 10)
	if !errors.Is(err, interrupted) {
		t.Errorf("error: %v", err)
	}
	if _, err := readAll(t.Context(), strings.NewReader("12345678901"), 10); err == nil {
		t.Error("too much is no error")
	}
}

type blockingReader struct{ until chan struct{} }

func (b blockingReader) Read([]byte) (int, error) {
	<-b.until
	return 0, fs.ErrClosed
}
