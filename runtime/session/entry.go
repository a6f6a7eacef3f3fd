package session

import (
	"encoding/json"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Types of journal entries.
const (
	// TypeStarted is the first entry of a journal; its data is a Started.
	TypeStarted = "session"
	// TypeResumed follows when a program opens a stored session to go on with it; its data is a
	// Resumed.
	TypeResumed = "session_resumed"
	// TypeSurroundings holds the environment section of the system prompt, a profile.Surroundings.
	TypeSurroundings = "surroundings"
	// TypeRunStarted starts a run; its data is a RunStarted.
	TypeRunStarted = "run_started"
	// TypePrompt holds the parts of a request outside the history, a Prompt. It precedes the first
	// request and each request that changes one of them, so the journal determines every request.
	TypePrompt = "prompt"
	// TypeModelRequest precedes a request to the model; its data is a ModelRequest. A request that
	// fails, or whose answer is empty, has no turn.
	TypeModelRequest = "model_request"
	// TypeRetry precedes the pause before the last request is sent again; its data is a Retry.
	TypeRetry = "retry"
	// TypeTurn adds a Turn to the history. Tool results have other entries.
	TypeTurn = "turn"
	// TypeToolStarted precedes a call of a tool that may change something; its data is a ToolStarted.
	TypeToolStarted = "tool_started"
	// TypeToolResult follows every tool call, also a refused one; its data is a ToolResult.
	TypeToolResult = "tool_result"
	// TypeFailure is a failure that belongs to no call; its data is an event.Failure.
	TypeFailure = "failure"
	// TypeApprovalAsked makes the last answer wait for a human; its data is an ApprovalAsked.
	TypeApprovalAsked = "approval_asked"
	// TypePruned removes outputs from requests; its data is a Pruned.
	TypePruned = "pruned"
	// TypeCompacted replaces turns by a summary; its data is a Compacted.
	TypeCompacted = "compaction"
	// TypeSnapshot has the changes of files by a round of calls; its data is a Snapshot.
	TypeSnapshot = "snapshot"
	// TypeRolledBack removes the entries after a point; its data is a RolledBack.
	TypeRolledBack = "rolled_back"
	// TypeCopied ends the entries that a copy of a session has from that; its data is a Copied.
	TypeCopied = "copied"
	// TypeAgentStarted records a sub-agent that the session started; its data is an AgentStarted.
	TypeAgentStarted = "agent"
	// TypeMode is a change of the mode; its data is a Mode.
	TypeMode = "mode"
	// TypeTitle is the title of the session; its data is a Title.
	TypeTitle = "title"
	// TypePlan is a new plan of the task; its data is a plan.Plan.
	TypePlan = "plan"
	// TypeState is a step of the run to its next state; its data is a State.
	TypeState = "state"
	// TypeRunEnded ends a run; its data is a RunEnded.
	TypeRunEnded = "run_ended"
	// TypeEnded ends a session, until it is resumed; its data is an Ended. Only a TypeSnapshot of a
	// program that compared its files at last, a TypeRolledBack and a TypeCopied may follow.
	TypeEnded = "session_ended"
)

// Started describes a session at its start.
type Started struct {
	ID string `json:"id"`
	// Parent is the session that started this one as a sub-agent's; empty for a root.
	Parent string `json:"parent_session,omitempty"`
	// Forked is the session of which this one is a copy; empty without one.
	Forked  string `json:"forked_session,omitempty"`
	Profile string `json:"profile"`
	Model   string `json:"model"`
	Backend string `json:"backend,omitempty"`
	WorkDir string `json:"workdir,omitempty"`
	// Shell is the program that runs commands; empty without an environment.
	Shell string   `json:"shell,omitempty"`
	Tools []string `json:"tools"`
	// Program is what the program that uses the agent needs to resume the session.
	Program json.RawMessage `json:"program,omitempty"`
}

// Resumed describes a session that goes on.
type Resumed struct {
	Started
	// TornBytes is the length of the incomplete last line that was removed.
	TornBytes int64 `json:"torn_bytes,omitempty"`
	// Interrupted are the IDs of the calls without a result, which get one that says so.
	Interrupted []string `json:"interrupted,omitempty"`
}

// Copied names the session that was copied.
type Copied struct {
	From string `json:"from"`
}

// Mode is a mode that a tool has begun.
type Mode struct {
	Planning bool `json:"planning"`
}

// Title is the title of a session.
type Title struct {
	Title string `json:"title"`
}

// Ended holds the reason of a session's end.
type Ended struct {
	Reason string `json:"reason"`
}

// RunStarted holds the inputs of a run besides its first turn.
type RunStarted struct {
	RunID        string `json:"run_id"`
	Instructions string `json:"instructions,omitempty"`
	Limits       Limits `json:"limits"`
	// Reply is the decision about the call that waited, instead of a first turn; empty otherwise.
	Reply string `json:"reply,omitempty"`
}

// Limits end a run with status limit_reached, or timed_out for MaxDuration. A zero MaxToolRounds,
// MaxReplans or LoopWindow means the default of package agent, another zero no limit.
type Limits struct {
	// MaxToolRounds counts rounds of tool calls in one input.
	MaxToolRounds int `json:"max_tool_rounds,omitempty"`
	// MaxTurns counts the requests to the model of a session and its sub-agents. A request that is
	// sent again after a failure counts once.
	MaxTurns int `json:"max_turns,omitempty"`
	// MaxToolCalls counts the tool calls of one run.
	MaxToolCalls int `json:"max_tool_calls,omitempty"`
	// MaxTokens counts all tokens of a session and its sub-agents, estimated for servers that report
	// none. Each request reserves an estimate of its tokens and the most that its answer may have,
	// which the rest of the limit bounds, so that only an estimate that is too low exceeds the limit.
	MaxTokens int64 `json:"max_tokens,omitempty"`
	// MaxCost counts the US dollars of a session and its sub-agents, in the same way.
	MaxCost float64 `json:"max_cost_usd,omitempty"`
	// MaxDuration is wall-clock time of one run; its end ends the sub-agents.
	MaxDuration time.Duration `json:"max_duration_ns,omitempty"`
	// MaxProcesses counts the processes that a command of a tool, or of the check, has at once; one
	// with more is killed. It is env.Command.MaxProcesses, and that of the sub-agents too.
	MaxProcesses int `json:"max_processes,omitempty"`
	// MaxReplans is the number of times in a run that the model looks for the cause of its failures
	// and goes on with a new plan: after three rounds of calls in a row in which all failed with one
	// kind of failure, before the last attempt of a check, and when it reports that it cannot do the
	// task. Then the run ends. Zero means the default of package agent, a negative number none.
	MaxReplans int `json:"max_replans,omitempty"`
	// LoopWindow is the number of calls that are compared to find a loop. NoLoopDetection disables the
	// comparison.
	LoopWindow      int  `json:"loop_window,omitempty"`
	NoLoopDetection bool `json:"no_loop_detection,omitempty"`
}

// Prompt holds the parts of a request outside the history.
type Prompt struct {
	Model           string         `json:"model"`
	ReasoningEffort string         `json:"reasoning_effort,omitempty"`
	System          string         `json:"system"`
	Tools           []llm.ToolSpec `json:"tools,omitempty"`
}

// ModelRequest is the start of a request to the model.
type ModelRequest struct {
	RunID string `json:"run_id"`
	// ModelCall counts the requests of the run from 1. It is zero for a request for a summary, which
	// does not count.
	ModelCall int    `json:"model_call,omitempty"`
	Model     string `json:"model"`
}

// Retry is a failed attempt of a request, which RunID and ModelCall identify as in ModelRequest.
type Retry struct {
	RunID     string `json:"run_id"`
	ModelCall int    `json:"model_call,omitempty"`
	event.Retry
}

// TurnKind names the source of a turn.
type TurnKind string

// Kinds of turns.
const (
	TurnUser        TurnKind = "user"
	TurnAssistant   TurnKind = "assistant"
	TurnToolResults TurnKind = "tool_results"
	// TurnSteering is a message of the host or the loop; a model sees it as the user's.
	TurnSteering TurnKind = "steering"
)

// Turn is one element of a session's history. Holders of a Turn do not change its parts.
type Turn struct {
	Kind TurnKind  `json:"kind"`
	Time time.Time `json:"time"`
	// Parts are the content of a user, assistant or steering turn.
	Parts []llm.Part `json:"parts,omitempty"`
	// Results are the content of a tool_results turn, in the order of the calls.
	Results []llm.ToolResult `json:"results,omitempty"`
	// Reflection marks an assistant turn in which the model looks for the cause of its failures.
	Reflection bool `json:"reflection,omitempty"`
	// Usage, CostUSD, Model and ResponseID belong to an assistant turn. A cost that is not known is
	// nil.
	Usage      llm.Usage `json:"usage,omitzero"`
	CostUSD    *float64  `json:"cost_usd,omitempty"`
	Model      string    `json:"model,omitempty"`
	ResponseID string    `json:"response_id,omitempty"`
	// Finish is the reason why an answer was cut; empty for a complete one.
	Finish llm.FinishReason `json:"finish,omitempty"`
}

// Text returns the texts of the turn, joined.
func (t Turn) Text() string { return llm.Message{Parts: t.Parts}.Text() }

// ToolStarted identifies a call by its run, the number of the model call, its position in the
// answer, and its ID.
type ToolStarted struct {
	RunID     string `json:"run_id"`
	ModelCall int    `json:"model_call"`
	Position  int    `json:"position"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolResult is the result of a call, which it identifies as ToolStarted does.
type ToolResult struct {
	RunID     string         `json:"run_id"`
	ModelCall int            `json:"model_call"`
	Position  int            `json:"position"`
	Result    llm.ToolResult `json:"result"`
	ErrorKind string         `json:"error_kind,omitempty"`
	// Failure and Resolved are those of event.ToolCallEnd.
	Failure  *event.Failure `json:"failure,omitempty"`
	Resolved []string       `json:"resolved,omitempty"`
	// OutputFile is the file of the host that has the whole output, if the result is shortened.
	OutputFile   string `json:"output_file,omitempty"`
	OutputSize   int64  `json:"output_size"`
	OutputSHA256 string `json:"output_sha256,omitempty"`
	DurationMS   int64  `json:"duration_ms"`
	// Changes are the files that the call changed, in order. A backup is a file of the session that
	// made the call; copies of the session have none.
	Changes []event.FileChange `json:"changes,omitempty"`
}

// ApprovalAsked is a call that waits for the approval of a human after its run has ended, as do the
// calls after it in its answer.
type ApprovalAsked struct {
	event.PermissionAsked

	// Files are the files that the call names to write or remove them, as they were then.
	Files []FileState `json:"files,omitempty"`
	// Expires is the time after which it cannot be approved; zero means never.
	Expires time.Time `json:"expires,omitzero"`
}

// FileState tells two contents of a file apart.
type FileState struct {
	Name string `json:"name"`
	// SHA256 is empty for a file that does not exist or cannot be read.
	SHA256 string `json:"sha256,omitempty"`
}

// Pruned lists the calls whose outputs requests no longer have. The journal keeps them.
type Pruned struct {
	CallIDs []string `json:"call_ids"`
}

// Compacted replaces all turns but the last Keep by Turn, which has the rest.
type Compacted struct {
	RunID   string `json:"run_id"`
	Summary string `json:"summary"`
	// Words are the texts of the user, Changed and Read the names of files, Outputs the calls with a
	// stored output, and Failures the last errors of tools.
	Words    []string `json:"words,omitempty"`
	Changed  []string `json:"changed,omitempty"`
	Read     []string `json:"read,omitempty"`
	Outputs  []string `json:"outputs,omitempty"`
	Failures []string `json:"failures,omitempty"`
	// Plan is the last one that the user approved.
	Plan string `json:"plan,omitempty"`
	Keep int    `json:"keep"`
	Turn Turn   `json:"turn"`
	// Model, Usage and CostUSD are those of the summary; empty if no model wrote it.
	Model   string    `json:"model"`
	Usage   llm.Usage `json:"usage"`
	CostUSD *float64  `json:"cost_usd,omitempty"`
}

// AgentStarted describes a sub-agent, whose session has the ID SessionID.
type AgentStarted struct {
	RunID     string `json:"run_id"`
	AgentID   string `json:"agent_id"`
	SessionID string `json:"session_id"`
	Kind      string `json:"kind"`
	Dir       string `json:"dir,omitempty"`
	Task      string `json:"task"`
}

// Spent is what a session and its sub-agents have used, as Limits count it: estimated where a
// server or a price table says nothing.
type Spent struct {
	Turns  int     `json:"turns"`
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
}

// State is a step of a run from one state to the next, at the time of its entry.
type State struct {
	RunID string `json:"run_id"`
	event.Status
}

// Transition is a step of the state machine of a run.
type Transition struct {
	event.Status
	Time time.Time `json:"time"`
}

// RunEnded holds the outcome of a run, in the words of agent.RunResult.
type RunEnded struct {
	RunID      string             `json:"run_id"`
	Status     string             `json:"status"`
	Limit      string             `json:"limit,omitempty"`
	Error      string             `json:"error,omitempty"`
	Exit       *tool.Exit         `json:"exit,omitempty"`
	Usage      llm.Usage          `json:"usage"`
	CostUSD    *float64           `json:"cost_usd,omitempty"`
	Models     []event.ModelUsage `json:"models,omitempty"`
	ModelCalls int                `json:"model_calls"`
	// Spent counts all runs of the session so far.
	Spent       Spent               `json:"spent"`
	Agents      []event.AgentResult `json:"agents,omitempty"`
	Failures    []event.Failure     `json:"failures,omitempty"`
	Transitions []Transition        `json:"steps"`
	DurationMS  int64               `json:"duration_ms"`
}
