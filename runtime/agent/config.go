package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Defaults of limits and settings.
const (
	DefaultMaxToolRounds     = 200
	DefaultMaxCommandTimeout = 10 * time.Minute
	DefaultLoopWindow        = 10
	DefaultMaxReplans        = 2
	DefaultMaxParallel       = 8
	DefaultVerifyAttempts    = 3
	DefaultVerifyTimeout     = 10 * time.Minute
)

// Config configures an Agent. Client, Profile and Store are required.
type Config struct {
	// Client sends requests to the model. The agent adds retries according to Retry.
	Client  llm.Client
	Profile profile.Profile
	// Env is the environment of the tools, for sessions without one in their SessionOptions. A session
	// without either has no tools that need one. The caller closes it after the agent's sessions.
	Env env.Environment
	// Tools are offered besides the profile's; they replace tools of the profile with the same name.
	Tools []tool.Tool
	// Executor runs the calls of tools; nil runs each with [tool.Registry.Run].
	Executor ToolExecutor
	// Store creates the store of a session, such as session.OnDisk(dir); nil means session.InMemory,
	// which keeps no record of it.
	Store func(sessionID string) (session.Store, error)
	Retry llm.RetryPolicy
	// Budget bounds all sessions together that have the same one; nil bounds none.
	Budget *Budget
	// Settings are the initial settings of sessions.
	Settings Settings
	Limits   Limits
	Policy   ToolPolicy
	// Rules decide which calls of tools may run; nil allows all. A call that they ask about runs if
	// Approve approves it, and with a nil Approve it does not run. Sub-agents have the same rules.
	Rules *policy.Policy
	// Modes gives sessions the modes build and plan; nil means build only.
	Modes *Modes
	// Approve gets the decision of a human; calls do not overlap if it returns when ctx ends. Its
	// error refuses the call, as does the end of ApproveTimeout, which ends ctx; zero means no limit.
	Approve        func(ctx context.Context, a Approval) (Reply, error)
	ApproveTimeout time.Duration
	// Redactor replaces secrets in the results of tools, the output of Verify and the instructions of
	// the project, before they enter the history, the store, events and requests; nil replaces none.
	Redactor *redact.Redactor
	// Subagents configures the agents that a model may start.
	Subagents Subagents
	// Backups copies each file to the store before a tool writes or removes it; the tool fails if the
	// copy does. Changes by commands are not covered. A store without backups, such as
	// session.InMemory, disables it.
	Backups bool
	// ReadFirst makes tools fail to change a file that the session has not read with a tool or a
	// command such as cat, or that has changed since; see tool.Reads. A sub-agent reads for itself.
	ReadFirst bool
	// Verify is the check of a completed task.
	Verify Verify
	// Answer returns the answer of the user to a question of the model. With nil a question ends the
	// run, with status awaiting_human, and the next input is the answer.
	Answer func(ctx context.Context, question string) (string, error)
	// FinalAnswer lets the model write the answer of a run that ends without one: at a limit of
	// turns, tool rounds or tool calls, or without text in the last answer, such as by the exit tool
	// without a reason. One more request, beyond MaxTurns and without tool calls, asks for a report.
	// The status of the run stays. The request is not sent if a limit of tokens or money has no room
	// for it; then, and if it fails, a warning "final_answer" has the reason. Sub-agents report, too.
	FinalAnswer bool
	// Titles has the model write a title of each session at the end of its first run, in one more
	// request, beyond MaxTurns, which is not sent if a limit of tokens or money has no room for it.
	// The kind KindTitle has its model and its instructions.
	Titles bool
	// Context decides how conversations get shorter. Nil removes old outputs of tools, and then
	// replaces all but the newest rounds by a summary of the model, when the context is full.
	Context ContextManager
	// Planner gives sessions the tools plan_write, plan_update and plan_read, and tells the model its
	// open plan again after each round that changed it, and every ten rounds. Sub-agents have none.
	Planner bool
	// ProgressFile is the name of a file in the environment to which a line is added for each failure,
	// also of sub-agents, such as progress.md; empty means none. In plan mode nothing is added.
	ProgressFile string
	// progressEnv is the environment with the file of the root agent; nil means Env.
	progressEnv env.Environment
	// PastFailures returns the failures of earlier sessions in the same project, the newest last. The
	// model is told of one that is like its own, and what helped then. A session calls it at its first
	// failure; nil means none.
	PastFailures func(context.Context) []failure.Past
	// Program is JSON for the program that uses the agent. The journals of its sessions, but for those
	// of sub-agents, record it, so that the program can resume them; nil records nothing.
	Program json.RawMessage
	// Sinks receive every event of every session, in order; the loop waits for them. The error of a
	// sink ends the run.
	Sinks []func(event.Event) error
	// Observers receive events in separate goroutines. At most ObserverBuffer (default 1024) events
	// wait for an observer; a slower one gets a gap event.
	Observers      []func(event.Event)
	ObserverBuffer int
	// Log receives diagnostics such as the stack of a panic; nil means slog.Default.
	Log *slog.Logger
	// Clock is a test seam; nil means the system's clock.
	Clock llm.Clock
	// NewID returns the IDs of sessions and runs; nil means random UUIDs in order of time. It may be
	// called concurrently.
	NewID func() string
	// Aggregate returns an aggregator for each answer of a model; nil means an llm.Assembler.
	Aggregate func() Aggregator
	// ArgumentDeltas sends the pieces of the arguments of calls as events, too.
	ArgumentDeltas bool
	// IsQuestion reports whether an answer without calls is a question to the user. Then the run does
	// what it does for the tool ask_user. Nil means that none is.
	IsQuestion func(text string) bool
	// kindInstructions are those of the kind of the agent, after the user's.
	kindInstructions string
	// BuildSystem returns the system prompt of a request; nil means p.System. Equal arguments must
	// give equal texts.
	BuildSystem func(p profile.Profile, s profile.Surroundings, tools []llm.ToolSpec,
		instructions string) string
}

// Aggregator makes one response of the deltas of an answer, by the rules of llm.Assembler.
type Aggregator interface {
	Add(d llm.Delta)
	Response() (llm.Response, error)
}

// ToolExecutor runs one call c of a tool that is offered, and returns its outcome. It may call
// tools.Run, with s or a changed copy, or do without: then it calls s.Permit, and s.Starting right
// before the effects of the call, itself. The agent sets the call, and the ID and the name of the
// result. Read-only calls may overlap. Sub-agents have the same executor. When ctx ends, the
// executor stops the call, waits for it, and returns.
type ToolExecutor func(
	ctx context.Context, tools *tool.Registry, s tool.Scope, c llm.ToolCall,
) tool.Outcome

// Settings can change during a session; a change takes effect with the next model call or tool
// call.
type Settings struct {
	// Model overrides the profile's model.
	Model string
	// ReasoningEffort is "low", "medium", "high", another value of the provider, or empty for its
	// default.
	ReasoningEffort string
	// Instructions are the user's instructions, the last layer of the system prompt.
	Instructions string
	// CommandTimeout is the shell tool's default; zero means the profile's.
	CommandTimeout time.Duration
	// MaxCommandTimeout caps the timeout of a call; zero means DefaultMaxCommandTimeout.
	MaxCommandTimeout time.Duration
	// ToolLimits replace the limits of tool outputs that the model sees, by the tool's name.
	ToolLimits map[string]tool.Limit
}

// Limits end a run. The default of MaxToolRounds is DefaultMaxToolRounds, that of LoopWindow is
// DefaultLoopWindow, that of MaxReplans is DefaultMaxReplans. The model is told when 80 % of a
// limit is used.
type Limits = session.Limits

// ToolPolicy selects the tools that are offered, and bounds their calls. The zero value offers all.
type ToolPolicy struct {
	// Disabled offers no tools at all.
	Disabled bool
	// Allow lists the tools that are offered; nil means all.
	Allow []string
	// MaxParallel bounds the read-only calls that run at once; default DefaultMaxParallel.
	MaxParallel int
	// MaxCalls bounds the calls of a run, as Limits.MaxToolCalls; zero means no limit.
	MaxCalls int
	// RequireApproval makes each call that no rule decides need an approval, but for those of tools
	// that are safe.
	RequireApproval bool
}

// narrow returns what both p and q allow; a nil q allows all.
func (p ToolPolicy) narrow(q *ToolPolicy) ToolPolicy {
	if q == nil {
		return p
	}
	p.Disabled, p.RequireApproval = p.Disabled || q.Disabled, p.RequireApproval || q.RequireApproval
	p.MaxParallel = stricter(p.MaxParallel, q.MaxParallel)
	p.MaxCalls = stricter(p.MaxCalls, q.MaxCalls)
	switch {
	case p.Allow == nil:
		p.Allow = q.Allow
	case q.Allow != nil:
		p.Allow = slices.DeleteFunc(slices.Clone(p.Allow), func(name string) bool {
			return !slices.Contains(q.Allow, name)
		})
	}
	return p
}

// limit returns limits with the bound of p.
func (p ToolPolicy) limit(l Limits) Limits {
	l.MaxToolCalls = stricter(l.MaxToolCalls, p.MaxCalls)
	return l
}

// rulesOr returns the rules of runs with the policy, from those of their configuration.
func (p ToolPolicy) rulesOr(rules *policy.Policy) *policy.Policy {
	if !p.RequireApproval || rules != nil && rules.Default == policy.Deny {
		return rules
	}
	if rules == nil {
		rules = &policy.Policy{Default: policy.Allow}
	}
	safe := policy.Rule{Permission: string(policy.Safe), Action: policy.Allow}
	asks := *rules
	asks.Rules, asks.Default = append(slices.Clone(rules.Rules), safe), policy.Ask
	return &asks
}

// Verify is a command that checks a task which the model reports as completed.
type Verify struct {
	// Command runs in the environment's shell; empty means no check. Exit code 0 passes.
	Command string
	// Attempts is the number of checks that may fail before the run fails; the model gets the output
	// of all failed checks but the last. Default DefaultVerifyAttempts.
	Attempts int
	// Timeout bounds one check; default DefaultVerifyTimeout.
	Timeout time.Duration
}

// Input is the input of one run.
type Input struct {
	// Text is the task or the user's next message.
	Text string
	// Parts come after Text, such as images.
	Parts []llm.Part
	// SessionID names the session to continue; empty creates one. An empty RunID is generated.
	SessionID, RunID string
	// CreateSession creates the session SessionID if it does not exist; otherwise that is
	// ErrNoSession.
	CreateSession bool
	// Instructions replace Settings.Instructions for this run.
	Instructions string
	// Policy narrows Config.Policy for this run; nil does not.
	Policy *ToolPolicy
	// AllowedTools narrows the policy's tools; nil means all of them. An unknown name is an error.
	AllowedTools []string
	// ToolOrder puts these tools first, in this order.
	ToolOrder []string
	// Limits, if not nil, replace the session's for this run.
	Limits *Limits
	// Hints are facts about this run that are added to the text.
	Hints []string
	// Reply decides about the call that waits since a Reply with Postpone; Text and Parts are empty
	// then. Its Verdict is ApproveOnce, ApproveAlways or Refuse.
	Reply *Reply
}

// allowed returns the names of tools in the lists of in.
func (in Input) allowed() []string {
	if in.Policy == nil {
		return in.AllowedTools
	}
	return slices.Concat(in.AllowedTools, in.Policy.Allow)
}

// ErrConfig is wrapped by errors that only another Config or Input avoids.
var ErrConfig = errors.New("invalid configuration")

func (c *Config) validate() error {
	switch {
	case c.Client == nil:
		return fmt.Errorf("agent: %w: no client", ErrConfig)
	case c.Profile.ID == "":
		return fmt.Errorf("agent: %w: no profile", ErrConfig)
	case c.Profile.Model == "" && c.Settings.Model == "":
		return fmt.Errorf("agent: %w: no model", ErrConfig)
	}
	return errors.Join(validateLimits(c.Limits), c.Subagents.validate())
}

// validate reports whether e, which may be nil, can run the check.
func (v Verify) validate(e env.Environment) error {
	switch {
	case v.Command == "":
		return nil
	case e == nil:
		return fmt.Errorf("agent: %w: Verify.Command needs an environment", ErrConfig)
	case len(e.Info().Shell) == 0:
		return fmt.Errorf("agent: %w: Verify.Command needs a shell: %s", ErrConfig, e.Info().NoShell)
	}
	return nil
}

func validateLimits(l Limits) error {
	if l.MaxToolRounds < 0 || l.MaxTurns < 0 || l.MaxToolCalls < 0 || l.MaxTokens < 0 ||
		l.MaxProcesses < 0 || !(l.MaxCost >= 0) || math.IsInf(l.MaxCost, 0) || l.MaxDuration < 0 ||
		l.LoopWindow < 0 {
		return fmt.Errorf("agent: %w: a limit is negative or no number", ErrConfig)
	}
	return nil
}

func (c *Config) setDefaults() {
	if c.Clock == nil {
		c.Clock = llm.SystemClock()
	}
	if c.NewID == nil {
		c.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Store == nil {
		c.Store = session.InMemory()
	}
	if c.ObserverBuffer <= 0 {
		c.ObserverBuffer = 1024
	}
	if c.Aggregate == nil {
		c.Aggregate = func() Aggregator { return &llm.Assembler{} }
	}
	if c.BuildSystem == nil {
		c.BuildSystem = profile.Profile.System
	}
	if c.Context == nil {
		c.Context = whenFull{}
	}
	if c.Policy.MaxParallel <= 0 {
		c.Policy.MaxParallel = DefaultMaxParallel
	}
	if c.Verify.Attempts <= 0 {
		c.Verify.Attempts = DefaultVerifyAttempts
	}
	if c.Verify.Timeout <= 0 {
		c.Verify.Timeout = DefaultVerifyTimeout
	}
	c.Limits = withDefaultLimits(c.Limits)
	c.Subagents = c.Subagents.withDefaults()
	c.Settings = c.Settings.withDefaults(c.Profile)
}

func withDefaultLimits(l Limits) Limits {
	l.MaxToolRounds = cmp.Or(l.MaxToolRounds, DefaultMaxToolRounds)
	l.LoopWindow = cmp.Or(l.LoopWindow, DefaultLoopWindow)
	l.MaxReplans = cmp.Or(l.MaxReplans, DefaultMaxReplans)
	return l
}

// clone returns a deep copy.
func (s Settings) clone() Settings {
	s.ToolLimits = maps.Clone(s.ToolLimits)
	return s
}

func (s Settings) withDefaults(p profile.Profile) Settings {
	if s.Model == "" {
		s.Model = p.Model
	}
	if s.CommandTimeout <= 0 {
		s.CommandTimeout = p.CommandTimeout
	}
	if s.MaxCommandTimeout <= 0 {
		s.MaxCommandTimeout = DefaultMaxCommandTimeout
	}
	return s
}

// offered returns the names of the tools that a run may use, in the order of the run: those that
// the policy and the run allow, without tools whose environment or shell is missing, or that rules
// always deny.
func offered(
	r *tool.Registry, p ToolPolicy, rules *policy.Policy, in Input, e env.Environment,
) []string {
	if p.Disabled {
		return nil
	}
	var names []string
	for _, name := range r.Names() {
		t, ok := r.Get(name)
		switch {
		case !ok,
			t.NeedsEnv && e == nil,
			rules != nil && rules.Hides(t.Request()),
			t.NeedsShell && (e == nil || len(e.Info().Shell) == 0),
			p.Allow != nil && !slices.Contains(p.Allow, name),
			in.AllowedTools != nil && !slices.Contains(in.AllowedTools, name):
			continue
		}
		names = append(names, name)
	}
	rank := func(name string) int {
		if i := slices.Index(in.ToolOrder, name); i >= 0 {
			return i
		}
		return len(in.ToolOrder)
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}
