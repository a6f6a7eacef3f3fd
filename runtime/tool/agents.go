package tool

import (
	"context"
	_ "embed" // For the descriptions.
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

//go:embed spawn_agent.md
var spawnAgentText string

//go:embed send_input.md
var sendInputText string

//go:embed wait.md
var waitText string

//go:embed close_agent.md
var closeAgentText string

// Agents is what the tools for sub-agents act on. Implementations are safe for concurrent use.
type Agents interface {
	// Spawn starts an agent and does not wait for it. Agents are started one after the other, so that
	// their IDs follow the order of the calls, and work beside each other.
	Spawn(ctx context.Context, r SpawnRequest) (AgentState, error)
	// Send gives an agent a message: between its rounds of tool calls while it runs, and as its next
	// task else.
	Send(ctx context.Context, id, message string) (AgentState, error)
	// Wait waits until an agent does not run.
	Wait(ctx context.Context, id string) (AgentState, error)
	// CloseAgent ends an agent and what it runs, and waits for that.
	CloseAgent(ctx context.Context, id string) (AgentState, error)
}

// ErrNoAgent means that there is no agent of that ID.
var ErrNoAgent = errors.New("there is no such agent")

// AgentKind is a kind of agent, as a model is told of it.
type AgentKind struct {
	Name        string
	Description string
}

// SpawnRequest says what an agent is to do. What is empty or zero is left to the kind.
type SpawnRequest struct {
	Task string
	// Kind is the name of an AgentKind.
	Kind string
	// Dir is the folder that the agent works in and does not leave.
	Dir      string
	Model    string
	MaxTurns int
}

// AgentStatus says what an agent does.
type AgentStatus string

// Statuses of agents.
const (
	AgentRunning   AgentStatus = "running"
	AgentCompleted AgentStatus = "completed"
	AgentFailed    AgentStatus = "failed"
)

// AgentState is an agent as a model sees it.
type AgentState struct {
	ID     string
	Kind   string
	Status AgentStatus
	// Output is the agent's last text, Turns what it took. Problem says why it failed.
	Output  string
	Problem string
	Turns   int
}

// AgentTools are spawn_agent, send_input, wait and close_agent. Of the kinds there must be at least
// one; the first is what spawn_agent starts if the call does not say.
func AgentTools(agents Agents, kinds []AgentKind) []Tool {
	var about strings.Builder
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
		fmt.Fprintf(&about, "\n- %s: %s", k.Name, strings.TrimSpace(k.Description))
	}
	id := map[string]any{
		"agent_id": map[string]any{
			"type": "string", "minLength": 1,
			"description": "The ID that spawn_agent gave.",
		},
	}
	message := map[string]any{
		"agent_id": id["agent_id"],
		"message": map[string]any{
			"type": "string", "minLength": 1,
			"description": "What to tell the agent.",
		},
	}
	limit := Limit{Chars: 20_000}
	return []Tool{
		{
			ToolSpec: llm.ToolSpec{
				Name: "spawn_agent", Description: strings.TrimSpace(spawnAgentText) + "\nKinds of agents:" +
					about.String(),
				Schema: spawnSchema(names),
			},
			Limit: limit,
			Run: func(ctx context.Context, call *Call) (Result, error) {
				return spawnAgent(ctx, call,
					agents, names[0])
			},
		},
		{
			ToolSpec: llm.ToolSpec{
				Name: "send_input", Description: sendInputText,
				Schema: objectSchema(message, "agent_id", "message"),
			},
			Run: func(ctx context.Context, call *Call) (Result, error) {
				var args struct {
					ID      string `json:"agent_id"`
					Message string `json:"message"`
				}
				if err := unmarshal(call, &args); err != nil {
					return Result{}, err
				}
				if strings.TrimSpace(args.Message) == "" {
					return Result{}, errorf(KindValidation, "message is empty")
				}
				return agentResult(agents.Send(ctx, args.ID, args.Message))
			},
		},
		{
			ToolSpec: llm.ToolSpec{Name: "wait", Description: waitText, Schema: objectSchema(id,
				"agent_id")},
			ReadOnly: true,
			Waits:    true,
			Limit:    limit,
			Run: func(ctx context.Context, call *Call) (Result, error) {
				return withAgent(ctx, call,
					agents.Wait)
			},
		},
		{
			ToolSpec: llm.ToolSpec{Name: "close_agent", Description: closeAgentText, Schema: objectSchema(id,
				"agent_id")},
			Limit: limit,
			Run: func(ctx context.Context, call *Call) (Result, error) {
				return withAgent(ctx, call,
					agents.CloseAgent)
			},
		},
	}
}

func spawnSchema(kinds []string) json.RawMessage {
	return objectSchema(map[string]any{
		"task": map[string]any{
			"type": "string", "minLength": 1,
			"description": "The task, with all that the agent must know; it does not see this " +
				"conversation.",
		},
		"agent_type": map[string]any{
			"type": "string", "enum": kinds,
			"description": "The kind of agent. Default " + kinds[0] + ".",
		},
		"working_dir": map[string]any{
			"type": "string",
			"description": "A folder that the agent works in and does not leave. Default: the working " +
				"directory.",
		},
		"model": map[string]any{
			"type":        "string",
			"description": "Another model of the same provider.",
		},
		"max_turns": map[string]any{
			"type": "integer", "minimum": 1,
			"description": "How many turns the agent may take.",
		},
	}, "task")
}

// objectSchema is the schema of an object with exactly these properties.
func objectSchema(properties map[string]any, required ...string) json.RawMessage {
	// What is marshalled is plain data, so that there is no error.
	schema, _ := json.Marshal(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	return schema
}

func spawnAgent(ctx context.Context, call *Call, agents Agents, kind string) (Result, error) {
	var args struct {
		Task     string  `json:"task"`
		Kind     string  `json:"agent_type"`
		Dir      string  `json:"working_dir"`
		Model    string  `json:"model"`
		MaxTurns integer `json:"max_turns"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	if strings.TrimSpace(args.Task) == "" {
		return Result{}, errorf(KindValidation, "task is empty")
	}
	if args.Kind == "" {
		args.Kind = kind
	}
	return agentResult(agents.Spawn(ctx, SpawnRequest{
		Task: args.Task, Kind: args.Kind, Dir: args.Dir, Model: args.Model,
		MaxTurns: int(min(args.MaxTurns, 1<<30)),
	}))
}

func withAgent(
	ctx context.Context, call *Call, do func(context.Context, string) (AgentState, error),
) (Result, error) {
	var args struct {
		ID string `json:"agent_id"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	return agentResult(do(ctx, args.ID))
}

// agentResult tells a model of an agent. That an agent has failed is no failure of the call.
func agentResult(s AgentState, err error) (Result, error) {
	if errors.Is(err, ErrNoAgent) {
		return Result{}, &Error{Kind: KindNotFound, Message: err.Error(), Err: err}
	}
	if err != nil {
		return Result{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "agent_id: %s\nagent_type: %s\nstatus: %s", s.ID, s.Kind, s.Status)
	if s.Status != AgentRunning {
		fmt.Fprintf(&b, "\nsuccess: %t\nturns_used: %d", s.Status == AgentCompleted, s.Turns)
		if s.Problem != "" {
			fmt.Fprintf(&b, "\nproblem: %s", s.Problem)
		}
		if s.Output != "" {
			fmt.Fprintf(&b, "\noutput:\n%s", s.Output)
		}
	}
	return Result{Text: b.String()}, nil
}
