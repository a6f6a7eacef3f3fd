package event

import (
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
)

// Kind names a type of event. The values are the "type" of the JSON form.
type Kind string

// Kinds of events.
const (
	KindSessionStart       Kind = "session_start"
	KindSessionEnd         Kind = "session_end"
	KindUserInput          Kind = "user_input"
	KindProcessingEnd      Kind = "processing_end"
	KindTextStart          Kind = "assistant_text_start"
	KindTextDelta          Kind = "assistant_text_delta"
	KindTextEnd            Kind = "assistant_text_end"
	KindReasoningDelta     Kind = "assistant_reasoning_delta"
	KindToolArgumentsDelta Kind = "tool_call_arguments_delta"
	KindToolCallStart      Kind = "tool_call_start"
	KindToolOutputDelta    Kind = "tool_call_output_delta"
	KindToolCallEnd        Kind = "tool_call_end"
	KindSteeringInjected   Kind = "steering_injected"
	KindTurnLimit          Kind = "turn_limit"
	KindLoopDetection      Kind = "loop_detection"
	KindStatus             Kind = "status"
	KindPermissionAsked    Kind = "permission_asked"
	KindPermissionReplied  Kind = "permission_replied"
	KindModeChanged        Kind = "mode_changed"
	KindPlanUpdated        Kind = "plan_updated"
	KindContextUpdated     Kind = "context_updated"
	KindRetry              Kind = "retry"
	KindVerify             Kind = "verify"
	KindFailure            Kind = "failure"
	KindWarning            Kind = "warning"
	KindError              Kind = "error"
	KindGap                Kind = "gap"
	KindResult             Kind = "result"
)

// Event is one event of a session.
type Event struct {
	// Seq numbers the events of a session from 1 without gaps, and again from 1 after it is resumed.
	// It gives the order; Time may jump.
	Seq       int64
	Time      time.Time
	SessionID string
	// RunID is empty outside a run.
	RunID string
	Origin
	Data Data
}

// Origin is the agent of a session that an event comes from. The root agent has no ID.
type Origin struct {
	// AgentID identifies a sub-agent within its session.
	AgentID string
	// ParentID is the sub-agent that started it; empty for a child of the root agent.
	ParentID string
}

// Kind returns the kind of the event's data.
func (e Event) Kind() Kind { return e.Data.Kind() }

// Data is the part of an event that depends on its kind. The types of this package are the only
// ones.
type Data interface{ Kind() Kind }

// SessionStart opens a session's events.
type SessionStart struct {
	Profile string   `json:"profile"`
	Model   string   `json:"model"`
	Backend string   `json:"backend,omitempty"`
	WorkDir string   `json:"workdir,omitempty"`
	Tools   []string `json:"tools"`
	// Resumed means that the session goes on, and that events before it had numbers from 1, too.
	Resumed bool `json:"resumed,omitempty"`
	// Guarantees are those of the environment; a sub-agent's session omits them.
	Guarantees []env.Guarantee `json:"guarantees,omitempty"`
}

// SessionEnd is the last event of a session.
type SessionEnd struct {
	// State is the session's final state, "closed".
	State string `json:"state"`
	// Reason is "closed", "aborted", or the error that ended the session.
	Reason string `json:"reason"`
}

// UserInput is the input of a run, or the answer to a question.
type UserInput struct {
	Text string `json:"text"`
	// Reply is the decision about a call that waited for an approval, instead of a text: "once",
	// "always" or "deny"; empty otherwise.
	Reply string `json:"reply,omitempty"`
}

// ProcessingEnd ends a run.
type ProcessingEnd struct {
	// Status is the run's status, such as "completed".
	Status string `json:"status"`
	// Usage includes the tokens of the run's sub-agents, whose own events report them, too.
	Usage llm.Usage `json:"usage"`
	// CostUSD is the price of Usage in US dollars; missing if it is not known.
	CostUSD *float64 `json:"cost_usd,omitempty"`
	// ModelCalls and ToolCalls do not include sub-agents.
	ModelCalls int   `json:"model_calls"`
	ToolCalls  int   `json:"tool_calls"`
	DurationMS int64 `json:"duration_ms"`
}

// TextStart is the start of the text of an answer.
type TextStart struct{}

// TextDelta is a piece of the answer's text. A Retry event voids the pieces before it.
type TextDelta struct {
	Text string `json:"text"`
}

// ReasoningDelta is a piece of the model's reasoning.
type ReasoningDelta struct {
	Text string `json:"text"`
}

// TextEnd is a complete answer; Text may be empty in an answer of tool calls.
type TextEnd struct {
	Text      string `json:"text"`
	Reasoning string `json:"reasoning,omitempty"`
	// Reflection means that the model looks for the cause of its failures.
	Reflection bool      `json:"reflection,omitempty"`
	ToolCalls  int       `json:"tool_calls"`
	Model      string    `json:"model,omitempty"`
	Usage      llm.Usage `json:"usage"`
	// CostUSD is the price of Usage in US dollars; missing if it is not known.
	CostUSD *float64 `json:"cost_usd,omitempty"`
}

// ModelUsage is what one model, as it was requested, was used for.
type ModelUsage struct {
	Model string `json:"model"`
	// Answers counts its answers, and Usage sums their tokens.
	Answers int       `json:"answers"`
	Usage   llm.Usage `json:"usage"`
	// CostUSD is the price of Usage in US dollars; missing if it is not known.
	CostUSD *float64 `json:"cost_usd,omitempty"`
}

// ToolArgumentsDelta is a piece of the arguments of a call, while the answer arrives. A Retry event
// voids the pieces before it. A call with a secret in its arguments has it.
type ToolArgumentsDelta struct {
	// Index tells the calls of an answer apart. Name is in the first piece of a call.
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	Text  string `json:"text"`
}

// ToolCallStart is the start of a tool call. Arguments is the JSON text of the model.
type ToolCallStart struct {
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolOutputDelta is a piece of a running tool's output.
type ToolOutputDelta struct {
	CallID string `json:"call_id"`
	Text   string `json:"text"`
}

// ToolCallEnd is the end of a tool call.
type ToolCallEnd struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	IsError bool   `json:"is_error"`
	// ErrorKind is set if IsError.
	ErrorKind string `json:"error_kind,omitempty"`
	// Failure is set if the call failed; missing while it waits for an approval. Resolved are the IDs
	// of the calls whose failures a success has made obsolete.
	Failure  *Failure `json:"failure,omitempty"`
	Resolved []string `json:"resolved,omitempty"`
	// Result is the text that the model sees; Truncated means that it is less than the output.
	Result    string `json:"result"`
	Truncated bool   `json:"truncated,omitempty"`
	// Steps are those that the call went through, in their order; only StepRecord for one that was not
	// tried.
	Steps []ToolStep `json:"steps,omitempty"`
	// Output is the whole output of the tool.
	Output     Output       `json:"-"`
	Changes    []FileChange `json:"changes,omitempty"`
	DurationMS int64        `json:"duration_ms"`
}

// ToolStep is a step of a tool call.
type ToolStep string

// Steps of a tool call. A call that fails in one of the first three goes on with StepCheck.
const (
	StepLookUp     ToolStep = "look_up"
	StepValidate   ToolStep = "validate"
	StepPermission ToolStep = "permission"
	// StepCache: the result of an equal call was given again, and what follows is StepRecord.
	StepCache ToolStep = "cache"
	// StepBackup: the content of the files that the tool changed was kept.
	StepBackup  ToolStep = "backup"
	StepExecute ToolStep = "execute"
	// StepRetry: the environment failed, and the tool was executed once more.
	StepRetry ToolStep = "retry"
	// StepCheck: the result was made valid text without secrets.
	StepCheck ToolStep = "check"
	// StepTruncate: the model sees less than the output.
	StepTruncate ToolStep = "truncate"
	// StepRecord: the result was written to the session's store. The event follows.
	StepRecord ToolStep = "record"
)

// SteeringInjected is a steering message that the loop added to the history.
type SteeringInjected struct {
	Text string `json:"text"`
}

// PermissionAsked is a call that a human has to approve.
type PermissionAsked struct {
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	// Parts are the parts of the call that no rule allows.
	Parts []PermissionPart `json:"parts"`
}

// PermissionPart is a part of a call with the decision about it.
type PermissionPart struct {
	Permission string `json:"permission"`
	Subject    string `json:"subject"`
	Decision   string `json:"decision"`
	// Rule made the decision, as PERMISSION:PATTERN after its action; empty if none did.
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// PermissionReplied is the decision about a call that needed an approval, or that rules deny.
type PermissionReplied struct {
	CallID string `json:"call_id"`
	// Answer is "once", "always", "deny", "later", or "abort", also if the run ended before an answer.
	Answer string `json:"answer"`
	// By is "human", "rule" or, if nobody can be asked, "nobody".
	By      string `json:"by"`
	Message string `json:"message,omitempty"`
}

// ModeChanged is a change of the mode by a tool.
type ModeChanged struct {
	// Mode is "build" or "plan".
	Mode string `json:"mode"`
}

// PlanUpdated is a new plan of the task by a tool.
type PlanUpdated struct{ plan.Plan }

// ContextUpdated reports that the conversation was shortened, because the context of the model was
// full.
type ContextUpdated struct {
	// Action is ContextPruned or ContextCompacted.
	Action string `json:"action"`
	// Before and After are estimates of the tokens of a request.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Outputs is the number of removed outputs of tools.
	Outputs int `json:"outputs,omitempty"`
	// Usage and CostUSD are those of the summary.
	Usage   llm.Usage `json:"usage,omitzero"`
	CostUSD *float64  `json:"cost_usd,omitempty"`
}

// Actions that shorten a conversation.
const (
	// ContextPruned: old outputs of tools were removed.
	ContextPruned = "pruned"
	// ContextCompacted: a summary of the model replaces all but the last turns.
	ContextCompacted = "compacted"
)

// TurnLimit is the limit that ended the run.
type TurnLimit struct {
	// Limit is "turns", "tool_rounds", "tool_calls", "tokens", "cost" or "output_tokens".
	Limit string `json:"limit"`
	// Value is in millionths of a US dollar for cost, and zero for output_tokens if the provider sets
	// the limit.
	Value int64 `json:"value"`
}

// LoopDetection is a warning to a model that repeats its calls.
type LoopDetection struct {
	Message string `json:"message"`
}

// Status is a step of the run's state machine.
type Status struct {
	From   string `json:"from"`
	Signal string `json:"signal"`
	To     string `json:"to"`
}

// Retry reports that the client repeats a request to the model after a delay.
type Retry struct {
	Attempt int    `json:"attempt"`
	DelayMS int64  `json:"delay_ms"`
	Error   string `json:"error"`
}

// Verify is the result of a check of the task.
type Verify struct {
	Command    string `json:"command"`
	Passed     bool   `json:"passed"`
	ExitCode   int    `json:"exit_code"`
	Attempt    int    `json:"attempt"`
	DurationMS int64  `json:"duration_ms"`
	// Output is that of a command that did not pass, cut in its middle; the model gets it too.
	Output string `json:"output,omitempty"`
}

// Warning is a problem that does not stop the run.
type Warning struct {
	// Code identifies the problem for programs, such as "context_usage".
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is a problem that ends the run.
type Error struct {
	// Code identifies the problem for programs, such as "auth".
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Gap counts the events that a slow subscriber missed.
type Gap struct {
	Missed int64 `json:"missed"`
}

// Result is the last event of the command line. A stream without one was cut off.
type Result struct {
	Status     string `json:"status"`
	ExitCode   int    `json:"exit_code"`
	Text       string `json:"text,omitempty"`
	Error      string `json:"error,omitempty"`
	Model      string `json:"model,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	SessionDir string `json:"session_dir,omitempty"`
	// Journal is the file of the session's journal; empty without one.
	Journal string `json:"journal,omitempty"`
	// Resume is the command line that goes on with the session; empty after a completed run.
	Resume string `json:"resume,omitempty"`
	// Approval is the call that waits for the approval of a human; missing without one.
	Approval *PermissionAsked `json:"approval,omitempty"`
	// Guarantees are those of the environment.
	Guarantees []env.Guarantee `json:"guarantees,omitempty"`
	Patch      string          `json:"patch,omitempty"`
	Turns      int             `json:"turns"`
	ModelCalls int             `json:"model_calls"`
	ToolCalls  int             `json:"tool_calls"`
	Usage      llm.Usage       `json:"usage"`
	// CostUSD is the price of the answers in US dollars; missing if it is not known, also because a
	// server reported no tokens. Models has the tokens and the price of each model.
	CostUSD *float64     `json:"cost_usd,omitempty"`
	Models  []ModelUsage `json:"models,omitempty"`
	// Changes lists the files that tools changed, and those that commands changed, unless
	// ChangesIncomplete is the reason why these are unknown.
	Changes           []FileChange `json:"changes,omitempty"`
	ChangesIncomplete string       `json:"changes_incomplete,omitempty"`
	// Disarmed are the files that would have made git outside of the environment run programs of a
	// command.
	Disarmed []Disarmed `json:"disarmed,omitempty"`
	// Unchecked is why the working directory was not checked, completely, for such files.
	Unchecked string `json:"unchecked,omitempty"`
	// ControlFiles are new and changed files that make other programs, such as editors and services
	// for continuous integration, run commands.
	ControlFiles []string `json:"control_files,omitempty"`
	// Refused are the calls, also those of sub-agents, that a rule or a human refused, or that needed
	// an approval where nobody can be asked: the first 100.
	Refused []Refusal `json:"refused,omitempty"`
	// Failures are those that the run survived, and the model's report that it cannot do the task: the
	// last 20. Those of sub-agents are not among them.
	Failures []Failure `json:"failures,omitempty"`
	// Tasks are the subtasks of the plan; missing without one.
	Tasks []plan.Task `json:"tasks,omitempty"`
	// Agents are the tasks of sub-agents; Usage includes their tokens, the counts above do not
	// include their calls.
	Agents     []AgentResult `json:"agents,omitempty"`
	DurationMS int64         `json:"duration_ms"`
}

// Refusal is one call that did not run because it was refused.
type Refusal struct {
	// AgentID is the sub-agent that made the call; empty for the root agent.
	AgentID string `json:"agent_id,omitempty"`
	CallID  string `json:"call_id"`
	Tool    string `json:"tool"`
	// By and Message are those of PermissionReplied.
	By      string `json:"by"`
	Message string `json:"message,omitempty"`
	// Parts are the parts of the call that no rule allows.
	Parts []PermissionPart `json:"parts"`
}

// Disarmed is one file that a command made or changed, and that was renamed or removed.
type Disarmed struct {
	// Path is relative to the working directory.
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Kept is the file with its content; empty without one.
	Kept string `json:"kept,omitempty"`
	// Error is set if the file is still in place.
	Error string `json:"error,omitempty"`
}

// AgentResult is the result of a sub-agent's task.
type AgentResult struct {
	ID string `json:"id"`
	// ParentID is the sub-agent that started it; empty for a child of the root agent.
	ParentID string `json:"parent_id,omitempty"`
	Kind     string `json:"kind"`
	// Status is "completed" or "failed".
	Status string `json:"status"`
	// Turns counts the requests to the model of its session so far; Usage is that of the task with
	// its own sub-agents, and CostUSD its price in US dollars, missing if it is not known.
	Turns   int       `json:"turns"`
	Usage   llm.Usage `json:"usage"`
	CostUSD *float64  `json:"cost_usd,omitempty"`
}

// Kind implements Data.
func (SessionStart) Kind() Kind { return KindSessionStart }

// Kind implements Data.
func (SessionEnd) Kind() Kind { return KindSessionEnd }

// Kind implements Data.
func (UserInput) Kind() Kind { return KindUserInput }

// Kind implements Data.
func (ProcessingEnd) Kind() Kind { return KindProcessingEnd }

// Kind implements Data.
func (TextStart) Kind() Kind { return KindTextStart }

// Kind implements Data.
func (TextDelta) Kind() Kind { return KindTextDelta }

// Kind implements Data.
func (ReasoningDelta) Kind() Kind { return KindReasoningDelta }

// Kind implements Data.
func (TextEnd) Kind() Kind { return KindTextEnd }

// Kind implements Data.
func (ToolArgumentsDelta) Kind() Kind { return KindToolArgumentsDelta }

// Kind implements Data.
func (ToolCallStart) Kind() Kind { return KindToolCallStart }

// Kind implements Data.
func (ToolOutputDelta) Kind() Kind { return KindToolOutputDelta }

// Kind implements Data.
func (ToolCallEnd) Kind() Kind { return KindToolCallEnd }

// Kind implements Data.
func (SteeringInjected) Kind() Kind { return KindSteeringInjected }

// Kind implements Data.
func (TurnLimit) Kind() Kind { return KindTurnLimit }

// Kind implements Data.
func (LoopDetection) Kind() Kind { return KindLoopDetection }

// Kind implements Data.
func (Status) Kind() Kind { return KindStatus }

// Kind implements Data.
func (PermissionAsked) Kind() Kind { return KindPermissionAsked }

// Kind implements Data.
func (PermissionReplied) Kind() Kind { return KindPermissionReplied }

// Kind implements Data.
func (ModeChanged) Kind() Kind { return KindModeChanged }

// Kind implements Data.
func (PlanUpdated) Kind() Kind { return KindPlanUpdated }

// Kind implements Data.
func (ContextUpdated) Kind() Kind { return KindContextUpdated }

// Kind implements Data.
func (Retry) Kind() Kind { return KindRetry }

// Kind implements Data.
func (Verify) Kind() Kind { return KindVerify }

// Kind implements Data.
func (Warning) Kind() Kind { return KindWarning }

// Kind implements Data.
func (Error) Kind() Kind { return KindError }

// Kind implements Data.
func (Gap) Kind() Kind { return KindGap }

// Kind implements Data.
func (Result) Kind() Kind { return KindResult }
