package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// fakeAgents records its last call and always returns the same state.
type fakeAgents struct {
	state AgentState
	err   error
	did   string
}

func (f *fakeAgents) Spawn(_ context.Context, r SpawnRequest) (AgentState, error) {
	f.did = fmt.Sprintf("spawn %+v", r)
	return f.state, f.err
}

func (f *fakeAgents) Send(_ context.Context, id, message string) (AgentState, error) {
	f.did = "send " + id + " " + message
	return f.state, f.err
}

func (f *fakeAgents) Wait(_ context.Context, id string) (AgentState, error) {
	f.did = "wait " + id
	return f.state, f.err
}

func (f *fakeAgents) CloseAgent(_ context.Context, id string) (AgentState, error) {
	f.did = "close " + id
	return f.state, f.err
}

var testKinds = []AgentKind{{"general", "does anything.\n"}, {"explore", "looks."}}

func agentRegistry(t *testing.T, f *fakeAgents) *Registry {
	t.Helper()
	return registry(t, AgentTools(f, testKinds)...)
}

func TestAgentToolArguments(t *testing.T) {
	tests := map[string]struct {
		tool, args string
		did        string // the recorded call; empty if the arguments are rejected
		problem    string
	}{
		"task only": {
			"spawn_agent", `{"task": "t"}`, "spawn {Task:t Kind:general Dir: Model: MaxTurns:0}", "",
		},
		"everything": {
			"spawn_agent",
			`{"task": "t", "agent_type": "explore", "working_dir": "d", "model": "m", "max_turns": 7}`,
			"spawn {Task:t Kind:explore Dir:d Model:m MaxTurns:7}", "",
		},
		"empty texts": {
			"spawn_agent", `{"task": "t", "working_dir": "", "model": ""}`,
			"spawn {Task:t Kind:general Dir: Model: MaxTurns:0}", "",
		},
		"a whole float": {
			"spawn_agent", `{"task": "t", "max_turns": 7.0}`,
			"spawn {Task:t Kind:general Dir: Model: MaxTurns:7}", "",
		},
		"many turns": {
			"spawn_agent", `{"task": "t", "max_turns": 9007199254740991}`,
			"spawn {Task:t Kind:general Dir: Model: MaxTurns:1073741824}", "",
		},
		"no task":        {"spawn_agent", `{}`, "", "task"},
		"empty task":     {"spawn_agent", `{"task": ""}`, "", "task"},
		"blank task":     {"spawn_agent", `{"task": " \n"}`, "", "task is empty"},
		"a list":         {"spawn_agent", `{"task": ["t"]}`, "", "task"},
		"unknown kind":   {"spawn_agent", `{"task": "t", "agent_type": "poet"}`, "", "agent_type"},
		"no turns":       {"spawn_agent", `{"task": "t", "max_turns": 0}`, "", "max_turns"},
		"half a turn":    {"spawn_agent", `{"task": "t", "max_turns": 1.5}`, "", "max_turns"},
		"turns in words": {"spawn_agent", `{"task": "t", "max_turns": "7"}`, "", "max_turns"},
		"other field":    {"spawn_agent", `{"task": "t", "colour": "red"}`, "", "colour"},
		"send":           {"send_input", `{"agent_id": "a", "message": "m"}`, "send a m", ""},
		"no message":     {"send_input", `{"agent_id": "a"}`, "", "message"},
		"blank message":  {"send_input", `{"agent_id": "a", "message": "\t"}`, "", "message is empty"},
		"send to nobody": {"send_input", `{"agent_id": "", "message": "m"}`, "", "agent_id"},
		"send too much":  {"send_input", `{"agent_id": "a", "message": "m", "task": "t"}`, "", "task"},
		"wait":           {"wait", `{"agent_id": "a"}`, "wait a", ""},
		"wait for none":  {"wait", `{}`, "", "agent_id"},
		"wait a while":   {"wait", `{"agent_id": "a", "timeout": 1}`, "", "timeout"},
		"close":          {"close_agent", `{"agent_id": "a"}`, "close a", ""},
		"close none":     {"close_agent", `{"agent_id": 1}`, "", "agent_id"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fakeAgents{}
			o := agentRegistry(t, f).Run(t.Context(), Scope{}, llm.ToolCall{
				ID: "c", Name: tt.tool, Arguments: tt.args,
			})
			if f.did != tt.did {
				t.Errorf("the call is %q, not %q", f.did, tt.did)
			}
			if tt.problem == "" {
				check(t, o, "", "")
			} else {
				check(t, o, KindValidation, tt.problem)
			}
		})
	}
}

func TestAgentToolResults(t *testing.T) {
	tests := map[string]struct {
		state AgentState
		err   error
		want  string
		kind  ErrorKind
	}{
		"running": {state: AgentState{
			ID: "agent_1", Kind: "general", Status: AgentRunning, Turns: 3, Output: "early",
		}, want: "agent_id: agent_1\nagent_type: general\nstatus: running"},
		"completed": {state: AgentState{
			ID: "agent_1", Kind: "explore", Status: AgentCompleted, Turns: 3, Output: "line\nline",
		}, want: "agent_id: agent_1\nagent_type: explore\nstatus: " +
			"completed\nsuccess: true\nturns_used: 3\noutput:\nline\nline"},
		"no output": {
			state: AgentState{ID: "agent_1", Kind: "general", Status: AgentCompleted},
			want:  "agent_id: agent_1\nagent_type: general\nstatus: completed\nsuccess: true\nturns_used: 0",
		},
		"failed": {
			state: AgentState{
				ID: "agent_1", Kind: "general", Status: AgentFailed, Turns: 9,
				Problem: "the limit of turns was reached", Output: "half",
			},
			want: "agent_id: agent_1\nagent_type: general\nstatus: failed\nsuccess: false\nturns_used: " +
				"9\nproblem: the limit of turns was reached\noutput:\nhalf",
		},
		"unknown": {err: errors.Join(ErrNoAgent), want: "no agent has this ID", kind: KindNotFound},
		"outside": {
			err:  env.ErrOutside,
			want: "the file is outside the working directory, and only files below it can be used",
			kind: KindPermission,
		},
		"other": {err: errors.New("8 agents run already"), want: "8 agents run already", kind: KindOther},
	}
	for name, tt := range tests {
		for _, call := range []llm.ToolCall{
			{ID: "c", Name: "spawn_agent", Arguments: `{"task": "t"}`},
			{ID: "c", Name: "send_input", Arguments: `{"agent_id": "a", "message": "m"}`},
			{ID: "c", Name: "wait", Arguments: `{"agent_id": "a"}`},
			{ID: "c", Name: "close_agent", Arguments: `{"agent_id": "a"}`},
		} {
			t.Run(name+" "+call.Name, func(t *testing.T) {
				f := &fakeAgents{state: tt.state, err: tt.err}
				checkText(t, agentRegistry(t, f).Run(t.Context(), Scope{}, call), tt.kind, tt.want)
			})
		}
	}
}

func TestAgentToolsAreDescribed(t *testing.T) {
	tools := AgentTools(&fakeAgents{}, testKinds)
	readOnly := map[string]bool{}
	for _, tool := range tools {
		readOnly[tool.Name] = tool.ReadOnly
		if tool.Waits != (tool.Name == "wait") || tool.NeedsEnv ||
			strings.TrimSpace(tool.Description) == "" {
			t.Errorf("%s waits: %t, needs an environment: %t, is described by %q", tool.Name, tool.Waits,
				tool.NeedsEnv, tool.Description)
		}
		var schema struct {
			Properties map[string]struct {
				Type, Description string
				Enum              []string
			}
			Required             []string
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(tool.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		if schema.AdditionalProperties == nil || *schema.AdditionalProperties ||
			len(schema.Required) == 0 {
			t.Errorf("the schema of %s is %s", tool.Name, tool.Schema)
		}
		for name, p := range schema.Properties {
			if p.Type == "" || p.Description == "" {
				t.Errorf("%s of %s has the type %q and the description %q", name, tool.Name, p.Type,
					p.Description)
			}
		}
		if diff := cmp.Diff([]string{"general", "explore"},
			schema.Properties["agent_type"].Enum); tool.Name == "spawn_agent" && diff != "" {
			t.Errorf("kinds (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(map[string]bool{
		"spawn_agent": false, "send_input": false, "wait": true,
		"close_agent": false,
	}, readOnly); diff != "" {
		t.Errorf("what is read-only (-want +got):\n%s", diff)
	}
	if got := tools[0].Description; !strings.HasSuffix(got,
		"\nKinds of agents:\n- general: does anything.\n- explore: looks.") {
		t.Errorf("spawn_agent is described by %q", got)
	}
}

// A long result is cut in the middle: the status at its start and the end of the text stay.
func TestLongResultOfAnAgentIsCut(t *testing.T) {
	f := &fakeAgents{state: AgentState{
		ID: "agent_1", Kind: "general", Status: AgentCompleted,
		Output: strings.Repeat("long text ", 10_000) + "the end",
	}}
	o := agentRegistry(t, f).Run(t.Context(), Scope{}, llm.ToolCall{
		ID: "c", Name: "wait", Arguments: `{"agent_id": "agent_1"}`,
	})
	text := o.Result.Text()
	if !o.Truncated || len(text) > 25_000 || !strings.HasPrefix(text, "agent_id: agent_1\n") ||
		!strings.HasSuffix(strings.TrimSpace(text), "the end") {
		t.Errorf("the result has %d bytes: %.80q … %.80q", len(text), text, text[max(0, len(text)-80):])
	}
}
