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
)

// Defaults of Subagents.
const (
	DefaultAgentDepth = 1
	DefaultAgentTurns = 50
	DefaultMaxAgents  = 8
)

// Subagents says whether and how agents may start others: with the tools spawn_agent, send_input,
// wait and close_agent.
//
// A sub-agent has a session of its own within that of the agent that started it: its own history,
// the same environment, of which it may be confined to a folder, and no more tools. It ends with
// the run in which it works, or when the host's check of that run begins; one that has ended its
// task can be given another until the session is closed.
//
// Limits of rounds, calls and turns hold for each agent by itself, and no agent may take more turns
// than the one that starts it. The limit of tokens holds for an agent and all that it starts
// together, and the time of a run for all that work in it.
type Subagents struct {
	// MaxDepth is how deep agents may be nested; zero means DefaultAgentDepth, less than zero no
	// sub-agents.
	MaxDepth int
	// MaxTurns is how many turns a sub-agent may take if neither the call nor its kind says; zero
	// means DefaultAgentTurns.
	MaxTurns int
	// MaxRunning is how many sub-agents of an agent may run at once; zero means DefaultMaxAgents.
	MaxRunning int
	// Kinds are offered besides the built-in general and explore; one of the same name takes the
	// other's place.
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
	// Name is what a model calls it by: lower-case letters, digits and dashes.
	Name string
	// Description tells a model what it is good for.
	Description string
	// Instructions are the last layer of its system prompt, below the user's own.
	Instructions string
	// Tools are the names of the tools that it is offered, of those that the agent which starts it
	// has; nil means all of these. No sub-agent can ask the user.
	Tools []string
	// ReadOnly leaves it nothing that changes anything: neither tools nor an environment.
	ReadOnly bool
	// Model is another model of the same provider; empty means that of the agent which starts it.
	Model string
	// MaxTurns is how many turns it may take if the call does not say; zero means Subagents.MaxTurns.
	MaxTurns int
}

// builtinKinds are there unless they are replaced.
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
	case k.MaxTurns < 0:
		return fmt.Errorf("agent kind %s: max_turns is negative", k.Name)
	}
	return nil
}

// ParseKind reads a kind of sub-agent from Markdown: a head between two lines "---", in YAML, with
// name and description and, if wanted, tools, read_only, model and max_turns, and after it the
// instructions.
//
//	---
//	name: reviewer
//	description: reads a change and says what is wrong with it
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
			return Kind{}, errors.New("agent kind: the head has no end; a line --- is missing")
		}
	}
	var fields struct {
		Name        string   `yaml:"name"`
		Description string   `yaml:"description"`
		Tools       []string `yaml:"tools"`
		ReadOnly    bool     `yaml:"read_only"`
		Model       string   `yaml:"model"`
		MaxTurns    int      `yaml:"max_turns"`
	}
	// so that lines count from the first of the file
	dec := yaml.NewDecoder(strings.NewReader("\n" + head))
	dec.KnownFields(true)
	if err := dec.Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return Kind{}, headError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Kind{}, errors.New("agent kind: there is something after the end of the head's YAML; " +
			"the line after the head must be --- and no more")
	}
	k := Kind{
		Name: fields.Name, Description: strings.TrimSpace(fields.Description),
		Instructions: strings.TrimSpace(body), Tools: fields.Tools,
		ReadOnly: fields.ReadOnly, Model: fields.Model, MaxTurns: fields.MaxTurns,
	}
	return k, k.validate()
}

// headError is the error of a head, of which several values may be wrong: the first of them,
// without the names of Go.
func headError(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) || len(wrong.Errors) == 0 {
		return fmt.Errorf("agent kind: %w", err)
	}
	text, _, _ := strings.Cut(wrong.Errors[0], " in type struct")
	return fmt.Errorf("agent kind: %s", text)
}

// kinds returns the built-in kinds and those of the host, of which one of the same name takes the
// other's place.
func (s Subagents) kinds() []Kind {
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
