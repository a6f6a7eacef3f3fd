package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/policy"
)

// Defaults of Subagents.
const (
	DefaultAgentDepth = 1
	DefaultAgentTurns = 50
	DefaultMaxAgents  = 8
)

// Subagents configures the agents that a model starts with the tools spawn_agent, send_input, wait
// and close_agent.
//
// A sub-agent has a separate session, which belongs to the session of its parent, the agent that
// started it: a separate history, the same environment or a directory of it, and at most the same
// tools. It ends
// with the run that started it, or when the check of that run starts. After its task it accepts
// others until it is closed.
//
// Limits of rounds, calls and turns count for each agent alone, and no agent gets more turns than
// its parent. The limit of tokens counts for an agent and all agents below it
// together, and MaxDuration for all agents of a run.
type Subagents struct {
	// MaxDepth is the depth of nested agents; zero means DefaultAgentDepth, less than zero disables
	// sub-agents.
	MaxDepth int
	// MaxTurns is Limits.MaxTurns of a sub-agent without one in its call or kind; zero means
	// DefaultAgentTurns.
	MaxTurns int
	// MaxRunning bounds the running sub-agents of an agent; zero means DefaultMaxAgents.
	MaxRunning int
	// Kinds are offered besides the built-in general and explore, or replace built-in kinds by their
	// names: also KindCompaction, KindTitle and KindSummary, of which only instructions and the model
	// count, the model not of KindSummary.
	Kinds []Kind
}

func (s Subagents) validate() error {
	if s.MaxTurns < 0 || s.MaxRunning < 0 {
		return fmt.Errorf("agent: %w: a limit of sub-agents is negative", ErrConfig)
	}
	for _, k := range s.Kinds {
		if err := k.validate(); err != nil {
			return fmt.Errorf("agent: %w: %w", ErrConfig, err)
		}
	}
	return nil
}

func (s Subagents) withDefaults() Subagents {
	s.MaxDepth = cmp.Or(s.MaxDepth, DefaultAgentDepth)
	s.MaxTurns = cmp.Or(s.MaxTurns, DefaultAgentTurns)
	s.MaxRunning = cmp.Or(s.MaxRunning, DefaultMaxAgents)
	return s
}

// Kind is a kind of sub-agent.
type Kind struct {
	// Name identifies the kind for a model: lower-case letters, digits and dashes.
	Name string
	// Description is its purpose, for a model that chooses.
	Description string
	// Instructions are the last layer of its system prompt, after the user's.
	Instructions string
	// Tools are the names of its tools, of those of the agent that starts it; nil means all of these.
	// No sub-agent has ask_user.
	Tools []string
	// ReadOnly removes all tools that change anything, and makes the environment read-only.
	ReadOnly bool
	// Model is another model of the same provider; empty means that of the agent that starts it.
	Model string
	// MaxTurns is the limit of turns without one in the call; zero means Subagents.MaxTurns.
	MaxTurns int
	// MaxToolCalls bounds the calls of a task, and MaxTokens the tokens of the agent; zero means no
	// limit but those of the agents above.
	MaxToolCalls int
	MaxTokens    int64
	// Rules tighten those of the agent that starts it; may be nil.
	Rules *policy.Policy
}

// role tells what a kind is for. One that replaces a built-in kind has its role.
type role int

const (
	roleAny     role = iota // a sub-agent, and the user's agent
	rolePrimary             // the user's agent only
	roleHidden              // requests of the loop
)

func (k Kind) role() role {
	switch k.Name {
	case KindBuild, KindPlan:
		return rolePrimary
	case KindCompaction, KindTitle, KindSummary:
		return roleHidden
	}
	return roleAny
}

// isBuiltin reports whether k is a built-in kind, with its instructions.
func (k Kind) isBuiltin() bool {
	return slices.ContainsFunc(builtinKinds(), func(b Kind) bool {
		return b.Name == k.Name && b.Instructions == k.Instructions
	})
}

func builtinKinds() []Kind {
	return []Kind{
		{
			Name:        "general",
			Description: "does any part of the work, with all the tools that you have.",
			Instructions: "You were started by another agent for one part of its work. It sees nothing " +
				"but your last text: end with what " +
				"you did, what you found and what is left, with file names and line numbers where they matter.",
		},
		{
			Name: "explore",
			Description: "looks for something in the files and answers a question about them; it can " +
				"change nothing and run nothing.",
			Instructions: "You were started by another agent to find something out. You can read and " +
				"search, nothing else. It sees nothing but " +
				"your last text: answer its question there, with file names and line numbers, and say what " +
				"you are not sure of.",
			ReadOnly: true,
		},
		{Name: KindBuild, Description: "does the work."},
		{Name: KindPlan, Description: "plans the work, and changes nothing."},
		{
			Name: KindCompaction, Description: "summarizes a conversation that is too long.",
			Instructions: summarySystem,
		},
		{
			Name: KindTitle, Description: "writes the title of a session.",
			Instructions: titleSystem,
		},
		{
			Name: KindSummary, Description: "writes the report at the end of a run without an answer.",
			Instructions: reportInstructions,
		},
	}
}

var kindName = lazyregexp.New(`^[a-z][a-z0-9-]{0,63}$`)

func (k Kind) validate() error {
	switch {
	case !kindName().MatchString(k.Name):
		return fmt.Errorf("agent kind: the name %q is not made of lower-case letters, digits and "+
			"dashes, or is longer than 64", k.Name)
	case strings.TrimSpace(k.Description) == "":
		return fmt.Errorf("agent kind %s: the description is missing", k.Name)
	case k.MaxTurns < 0 || k.MaxToolCalls < 0 || k.MaxTokens < 0:
		return fmt.Errorf("agent kind %s: max_turns, max_tool_calls or max_tokens is negative", k.Name)
	}
	return nil
}

// ParseKind reads a kind of sub-agent from Markdown: a YAML front matter between two lines "---",
// with name and description and, optionally, tools, read_only, model, max_turns, max_tool_calls,
// max_tokens, and deny and ask, lists of rules PERMISSION:PATTERN; then the instructions.
//
//	---
//	name: reviewer
//	description: reads a change and reports its defects
//	tools: [read_file, grep, glob]
//	---
//	Look for errors first, for style last.
func ParseKind(markdown []byte) (Kind, error) {
	if !utf8.Valid(markdown) {
		return Kind{}, errors.New("agent kind: the text is not UTF-8")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(markdown), "\ufeff"), "\r\n", "\n")
	head, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return Kind{}, errors.New("agent kind: the first line is not ---")
	}
	head, body, ok := strings.Cut(head, "\n---\n")
	if !ok {
		if head, ok = strings.CutSuffix(head, "\n---"); !ok {
			return Kind{}, errors.New("agent kind: the front matter has no end (a line --- is missing)")
		}
	}
	var fields struct {
		Name        string   `yaml:"name"`
		Description string   `yaml:"description"`
		Tools       []string `yaml:"tools"`
		ReadOnly    bool     `yaml:"read_only"`
		Model       string   `yaml:"model"`
		MaxTurns    int      `yaml:"max_turns"`

		MaxToolCalls int      `yaml:"max_tool_calls"`
		MaxTokens    int64    `yaml:"max_tokens"`
		Deny         []string `yaml:"deny"`
		Ask          []string `yaml:"ask"`
	}
	// The first line of the file is ---; errors count lines from there.
	dec := yaml.NewDecoder(strings.NewReader("\n" + head))
	dec.KnownFields(true)
	if err := dec.Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return Kind{}, yamlError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Kind{}, errors.New("agent kind: text after the YAML of the front matter (its last line " +
			"must be ---)")
	}
	k := Kind{
		Name: fields.Name, Description: strings.TrimSpace(fields.Description),
		Instructions: strings.TrimSpace(body), Tools: fields.Tools,
		ReadOnly: fields.ReadOnly, Model: fields.Model, MaxTurns: fields.MaxTurns,
		MaxToolCalls: fields.MaxToolCalls, MaxTokens: fields.MaxTokens,
	}
	var rules []policy.Rule
	for _, list := range []struct {
		action policy.Action
		texts  []string
	}{{policy.Deny, fields.Deny}, {policy.Ask, fields.Ask}} {
		for _, text := range list.texts {
			rule, err := policy.ParseRule(list.action, text, "the kind "+k.Name)
			if err != nil {
				return Kind{}, fmt.Errorf("agent kind: %s: %w", list.action, err)
			}
			rules = append(rules, rule)
		}
	}
	if len(rules) > 0 {
		k.Rules = &policy.Policy{Rules: rules, Default: policy.Allow}
	}
	return k, k.validate()
}

// yamlError returns the first error of a front matter, without the names of Go types.
func yamlError(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) || len(wrong.Errors) == 0 {
		return fmt.Errorf("agent kind: %w", err)
	}
	text, _, _ := strings.Cut(wrong.Errors[0], " in type struct")
	return fmt.Errorf("agent kind: %s", text)
}

// kinds returns the kinds that a model may start.
func (s Subagents) kinds() []Kind {
	return slices.DeleteFunc(s.all(), func(k Kind) bool { return k.role() != roleAny })
}

// all returns the built-in kinds and the configured ones, which replace those of the same name.
func (s Subagents) all() []Kind {
	list := builtinKinds()
	for _, k := range s.Kinds {
		if i := slices.IndexFunc(list, func(have Kind) bool { return have.Name == k.Name }); i >= 0 {
			list[i] = k
			continue
		}
		list = append(list, k)
	}
	return list
}

// kind returns the kind with a name, which a built-in one has.
func (s Subagents) kind(name string) Kind {
	list := s.all()
	return list[slices.IndexFunc(list, func(k Kind) bool { return k.Name == name })]
}
