package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy"
)

// Agents runs sub-agents for [AgentTools]. Implementations are safe for concurrent use.
type Agents interface {
	// Spawn starts a sub-agent and does not wait for it. The tool calls it for one sub-agent after the
	// other, so that their IDs follow the order of the calls; they run concurrently.
	Spawn(ctx context.Context, r SpawnRequest) (AgentState, error)
	// Send sends a message to a sub-agent. A running one receives it after its current round, any
	// other one as its next task.
	Send(ctx context.Context, id, message string) (AgentState, error)
	// Wait waits until a sub-agent has ended its task.
	Wait(ctx context.Context, id string) (AgentState, error)
	// CloseAgent stops a sub-agent and everything that it runs, and waits for their end.
	CloseAgent(ctx context.Context, id string) (AgentState, error)
}

// ErrNoAgent means that no sub-agent has the ID.
var ErrNoAgent = errors.New("no agent has this ID")

// AgentKind is a kind of sub-agent, as the description of spawn_agent lists it.
type AgentKind struct {
	Name        string
	Description string
}

// SpawnRequest describes a sub-agent to start. Fields that are empty or zero take the defaults of
// the kind.
type SpawnRequest struct {
	Task string
	// Kind is the name of an AgentKind.
	Kind string
	// Dir is the directory that the sub-agent works in and does not leave.
	Dir      string
	Model    string
	MaxTurns int
}

// AgentStatus is the status of a sub-agent.
type AgentStatus string

// Statuses of sub-agents.
const (
	AgentRunning   AgentStatus = "running"
	AgentCompleted AgentStatus = "completed"
	AgentFailed    AgentStatus = "failed"
)

// AgentState is the state of a sub-agent, as the model reads it in results.
type AgentState struct {
	ID     string
	Kind   string
	Status AgentStatus
	// Output is the sub-agent's last text, Turns the number of its turns. Problem is the reason of a
	// failure.
	Output  string
	Problem string
	Turns   int
}

// AgentTools returns the tools spawn_agent, send_input, wait and close_agent. At least one kind is
// required; spawn_agent starts the first one by default.
func AgentTools(agents Agents, kinds []AgentKind) []Tool {
	const (
		id = `"agent_id": {"type": "string", "minLength": 1,
			"description": "The ID that spawn_agent returned."}`
		message = `,
			"message": {"type": "string", "minLength": 1, "description": "The message to the agent."}`
	)
	limit := Limit{Chars: 20_000}
	send := func(ctx context.Context, _ *Call, args agentArgs) (Result, error) {
		if strings.TrimSpace(args.Message) == "" {
			return Result{}, errorf(KindValidation, "message is empty")
		}
		return agentResult(agents.Send(ctx, args.ID, args.Message))
	}
	wait := func(ctx context.Context, _ *Call, args agentArgs) (Result, error) {
		return agentResult(agents.Wait(ctx, args.ID))
	}
	closeAgent := func(ctx context.Context, _ *Call, args agentArgs) (Result, error) {
		return agentResult(agents.CloseAgent(ctx, args.ID))
	}
	return []Tool{
		spawnTool(agents, kinds, limit),
		builtin(Tool{
			ToolSpec: spec("send_input", id+message, "agent_id", "message"), Class: policy.ClassAgent,
		}, send),
		builtin(Tool{
			ToolSpec: spec("wait", id, "agent_id"), ReadOnly: true, Waits: true, Limit: limit,
			Class: policy.ClassAgent,
		}, wait),
		builtin(Tool{
			ToolSpec: spec("close_agent", id, "agent_id"), Limit: limit, Class: policy.ClassAgent,
		}, closeAgent),
	}
}

// agentArgs are the parameters of send_input, wait and close_agent.
type agentArgs struct {
	ID      string `json:"agent_id"`
	Message string `json:"message"`
}

func spawnTool(agents Agents, kinds []AgentKind, limit Limit) Tool {
	var list strings.Builder
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
		fmt.Fprintf(&list, "\n- %s: %s", k.Name, strings.TrimSpace(k.Description))
	}
	enum, _ := json.Marshal(names) // strings have no error
	standard, _ := json.Marshal("The kind of agent. Default " + names[0] + ".")
	s := spec("spawn_agent", `
		"task": {"type": "string", "minLength": 1,
			"description": "The task, with all that the agent must know; it does not see this
			conversation."},
		"agent_type": {"type": "string", "enum": `+string(enum)+`, "description": `+string(standard)+`},
		"working_dir": {"type": "string",
			"description": "The directory that the agent works in and does not leave. Default: the working
			directory."},
		"model": {"type": "string", "description": "Another model of the same provider."},
		"max_turns": {"type": "integer", "minimum": 1,
			"description": "How many answers the agent may give, each with its tool calls."}`,
		"task")
	s.Description = strings.TrimSpace(s.Description) + "\nKinds of agents:" + list.String()
	return builtin(Tool{
		ToolSpec: s, Limit: limit, Class: policy.ClassAgent,
		Subjects: subjects(func(a spawnArgs) []string { return []string{a.Task} }),
	},
		func(ctx context.Context, _ *Call, args spawnArgs) (Result, error) {
			if strings.TrimSpace(args.Task) == "" {
				return Result{}, errorf(KindValidation, "task is empty")
			}
			return agentResult(agents.Spawn(ctx, SpawnRequest{
				Task: args.Task, Kind: cmp.Or(args.Kind, names[0]), Dir: args.Dir, Model: args.Model,
				MaxTurns: int(min(args.MaxTurns, 1<<30)),
			}))
		})
}

type spawnArgs struct {
	Task     string  `json:"task"`
	Kind     string  `json:"agent_type"`
	Dir      string  `json:"working_dir"`
	Model    string  `json:"model"`
	MaxTurns integer `json:"max_turns"`
}

// agentResult describes a sub-agent to the model. The failure of a sub-agent is not a failure of
// the call.
func agentResult(s AgentState, err error) (Result, error) {
	if errors.Is(err, ErrNoAgent) {
		return Result{}, errorf(KindNotFound, "%w", err)
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
