package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Defaults of limits and settings.
const (
	DefaultMaxToolRounds     = 200
	DefaultMaxCommandTimeout = 10 * time.Minute
	DefaultLoopWindow        = 10
	DefaultMaxParallel       = 8
	DefaultVerifyAttempts    = 3
	DefaultVerifyTimeout     = 10 * time.Minute
)

// Config is what an Agent is made of. Client, Profile and Store are required.
type Config struct {
	// Client talks to the model. The agent adds retries as Retry says.
	Client  llm.Client
	Profile profile.Profile
	// Env is where tools act. Without one, tools that need it are not offered. The caller closes it
	// after the agent's sessions are closed.
	Env env.Environment
	// Tools are offered besides the profile's; one of the same name takes the profile's place.
	Tools []tool.Tool
	// Store makes the place where a session is kept; see OnDisk and InMemory.
	Store func(sessionID string) (Store, error)
	Retry llm.RetryPolicy
	// Settings are what sessions start with.
	Settings Settings
	Limits   Limits
	Policy   ToolPolicy
	// Subagents says whether and how the model may start other agents.
	Subagents Subagents
	// Backups keeps in the store what each file held before a tool wrote or removed it. A file that
	// cannot be kept is not changed. What commands change is not kept, and neither is anything by a
	// store that keeps nothing, such as InMemory.
	Backups bool
	// Verify checks the work from outside when the model says it is done.
	Verify Verify
	// Ask puts a model's question to the user and returns the answer. With nil a question ends the
	// run, with status awaiting_human, and the next input is the answer.
	Ask func(ctx context.Context, question string) (string, error)
	// Sinks receive every event of every session, in order; the loop waits for them. A sink that fails
	// while a run goes on ends it.
	Sinks []func(event.Event) error
	// Observers receive events in goroutines of their own, with at most ObserverBuffer (1024) waiting;
	// one that is too slow gets a gap event.
	Observers      []func(event.Event)
	ObserverBuffer int
	// Log receives what is of no concern to the model or the user, such as the stack of a panic; nil
	// means slog.Default.
	Log *slog.Logger
	// Clock and NewID are test seams; nil means the system's clock and random UUIDs in order of time.
	Clock llm.Clock
	NewID func() string
}

// Settings can be changed while a session lives; a change counts from the next model call or tool
// call on.
type Settings struct {
	// Model overrides the profile's model.
	Model string
	// ReasoningEffort is "low", "medium", "high", a provider's own value, or empty for its default.
	ReasoningEffort string
	// Instructions are the user's own, the last layer of the system prompt.
	Instructions string
	// CommandTimeout is the shell tool's default; zero means the profile's.
	CommandTimeout time.Duration
	// MaxCommandTimeout caps what a model may ask for; zero means DefaultMaxCommandTimeout.
	MaxCommandTimeout time.Duration
	// ToolLimits replace how much of a tool's output the model sees, by the tool's name.
	ToolLimits map[string]tool.Limit
}

// Limits end a run with a status of its own. Zero values mean the defaults given here.
type Limits struct {
	// MaxToolRounds counts rounds of tool calls in one input; default DefaultMaxToolRounds.
	MaxToolRounds int `json:"max_tool_rounds,omitempty"`
	// MaxTurns counts the entries of a session: inputs, answers, and sets of results; default no
	// limit.
	MaxTurns int `json:"max_turns,omitempty"`
	// MaxToolCalls counts the tool calls of one run; default no limit.
	MaxToolCalls int `json:"max_tool_calls,omitempty"`
	// MaxTokens counts all tokens that a session used, guessed where the server does not tell; default
	// no limit.
	MaxTokens int64 `json:"max_tokens,omitempty"`
	// MaxDuration is wall-clock time of one run; default no limit.
	MaxDuration time.Duration `json:"max_duration_ns,omitempty"`
	// LoopWindow is how many calls are compared to find a loop; default DefaultLoopWindow.
	// NoLoopDetection turns it off.
	LoopWindow      int  `json:"loop_window,omitempty"`
	NoLoopDetection bool `json:"no_loop_detection,omitempty"`
}

// ToolPolicy says which tools are offered and how they run. The zero value offers all.
type ToolPolicy struct {
	// Disabled offers no tools at all.
	Disabled bool
	// Allow lists the tools that are offered; nil means all.
	Allow []string
	// MaxParallel bounds how many read-only calls run at once; default DefaultMaxParallel.
	MaxParallel int
}

// Verify is the host's check of finished work.
type Verify struct {
	// Command is run by the environment's shell; empty means no check. Exit status 0 passes.
	Command string
	// Attempts is how often the check is made before the run fails, so that a failure goes back to the
	// model one time fewer; default DefaultVerifyAttempts.
	Attempts int
	// Timeout bounds one check; default DefaultVerifyTimeout.
	Timeout time.Duration
}

// Input is what one run works on.
type Input struct {
	// Text is the task or the user's next message.
	Text string
	// Parts come after Text, such as images.
	Parts []llm.Part
	// SessionID names the session to continue; empty makes a new one. RunID is made if empty.
	SessionID, RunID string
	// CreateSession makes the session SessionID if there is none; otherwise that is an error.
	CreateSession bool
	// Instructions replace Settings.Instructions for this run.
	Instructions string
	// AllowedTools narrows the policy's tools further; nil means no further limit.
	AllowedTools []string
	// ToolOrder puts these tools first, in this order.
	ToolOrder []string
	// Limits, if not nil, replace the session's for this run.
	Limits *Limits
	// Hints are facts about this run that the model is told along with the text.
	Hints []string
}

// ErrConfig is wrapped by errors that a caller can only mend by changing its Config or Input.
var ErrConfig = errors.New("invalid configuration")

func (c *Config) validate() error {
	switch {
	case c.Client == nil:
		return fmt.Errorf("agent: %w: no client", ErrConfig)
	case c.Store == nil:
		return fmt.Errorf("agent: %w: no store; use OnDisk or InMemory", ErrConfig)
	case c.Profile.ID == "":
		return fmt.Errorf("agent: %w: no profile", ErrConfig)
	case c.Profile.Model == "" && c.Settings.Model == "":
		return fmt.Errorf("agent: %w: no model", ErrConfig)
	case c.Verify.Command != "" && c.Env == nil:
		return fmt.Errorf("agent: %w: a check needs an environment", ErrConfig)
	case c.Verify.Command != "" && len(c.Env.Info().Shell) == 0:
		return fmt.Errorf("agent: %w: a check needs a shell: %s", ErrConfig, c.Env.Info().NoShell)
	}
	return errors.Join(c.Limits.validate(), c.Subagents.validate())
}

func (l Limits) validate() error {
	if l.MaxToolRounds < 0 || l.MaxTurns < 0 || l.MaxToolCalls < 0 || l.MaxTokens < 0 ||
		l.MaxDuration < 0 || l.LoopWindow < 0 {
		return fmt.Errorf("agent: %w: a limit is negative", ErrConfig)
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
	if c.ObserverBuffer <= 0 {
		c.ObserverBuffer = 1024
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
	c.Limits = c.Limits.withDefaults()
	c.Subagents = c.Subagents.withDefaults()
	c.Settings = c.Settings.withDefaults(c.Profile)
}

func (l Limits) withDefaults() Limits {
	if l.MaxToolRounds == 0 {
		l.MaxToolRounds = DefaultMaxToolRounds
	}
	if l.LoopWindow == 0 {
		l.LoopWindow = DefaultLoopWindow
	}
	return l
}

// clone returns a copy that shares nothing with s.
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

// offered returns the tools of r that a run may use, in the order of the run: what the policy and
// the run both allow, and nothing that needs an environment or a shell that is not there.
func offered(r *tool.Registry, p ToolPolicy, in Input, e env.Environment) []string {
	if p.Disabled {
		return nil
	}
	var names []string
	for _, name := range r.Names() {
		t, ok := r.Get(name)
		switch {
		case !ok,
			t.NeedsEnv && e == nil,
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
