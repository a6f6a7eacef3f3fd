// Package profile describes the families of models: OpenAI's, Anthropic's and Gemini's. A [Profile]
// is the tools, instructions and limits of a model as data; the agent's loop treats all alike.
package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Profile describes a family of models and one model of it.
type Profile struct {
	// ID names the family, such as "openai".
	ID string
	// Model is the provider's name of the model.
	Model string
	// Tools are offered to the model in this order. A custom tool is added here or in the session's
	// registry.
	Tools []tool.Tool
	// Instructions are the family's base instructions, the first layer of the system prompt.
	Instructions string
	// ProjectDocs are the names, relative to a directory, of the files with a project's instructions
	// that this family reads. Within a directory, later ones have priority.
	ProjectDocs []string
	// CommandTimeout is the default timeout of the shell tool.
	CommandTimeout time.Duration
	// ContextWindow is the model's context in tokens, input and output together.
	ContextWindow int64
	// MaxOutputTokens bounds the tokens of an answer of the model; 0 means unknown.
	MaxOutputTokens int64
	// AnswerTokens is the limit that requests set for an answer; 0 leaves it to the provider.
	AnswerTokens int64
	// Price is the price of the model's tokens; nil if it is not known.
	Price *Price
	// KnowledgeCutoff is the last month of the model's knowledge, such as "2025-08"; empty if unknown.
	KnowledgeCutoff string
	// SupportsReasoning reports whether requests may set a reasoning effort, SupportsVision whether
	// they may contain images, SupportsStreaming whether text arrives in pieces, and
	// SupportsParallelToolCalls whether an answer may have several calls.
	SupportsReasoning         bool
	SupportsVision            bool
	SupportsStreaming         bool
	SupportsParallelToolCalls bool
	// Options are extra fields of the provider's requests.
	Options map[string]any

	// models is the table of the figures above, nil if they have another origin.
	models *Models
}

// WithModel returns the profile for another model of the same provider, with figures from the table
// that the profile was created with. A profile that [New], [OpenAI], [Anthropic] or [Gemini] did
// not return keeps its figures but the price. A profile for this model keeps all.
func (p Profile) WithModel(name string) Profile {
	switch {
	case name == p.Model:
		return p
	case p.models == nil:
		p.Model, p.Price = name, nil
		return p
	}
	return p.describe(name, *p.models)
}

// Surroundings describes the environment and the project to a model. It is taken once, when a
// session starts.
type Surroundings struct {
	WorkDir   string `json:"workdir"`
	Platform  string `json:"platform"`
	OSVersion string `json:"os_version,omitempty"`
	// Date is the day on which the session started, as YYYY-MM-DD.
	Date            string `json:"date"`
	Model           string `json:"model"`
	KnowledgeCutoff string `json:"knowledge_cutoff,omitempty"`
	// Git is nil outside a repository, or when git is missing.
	Git *Git `json:"git,omitempty"`
	// Docs are the project's instructions, outermost directory first.
	Docs []Doc `json:"docs,omitempty"`
}

// Git is the state of the repository when the session started.
type Git struct {
	Root string `json:"root"`
	// Branch is empty if no branch is checked out.
	Branch string `json:"branch"`
	// Status is nil if git did not report it in time.
	Status *GitStatus `json:"status,omitempty"`
	// ReadOnly reports that commands cannot change the repository.
	ReadOnly bool     `json:"read_only,omitempty"`
	Commits  []string `json:"commits,omitempty"`
}

// GitStatus counts files that differ from the last commit.
type GitStatus struct {
	Modified  int `json:"modified"`
	Untracked int `json:"untracked"`
	// More reports that not all files were counted.
	More bool `json:"more,omitempty"`
}

// Doc is a file with a project's instructions.
type Doc struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// System returns the system prompt. Its layers, of which later ones have priority, are the family's
// instructions, the surroundings, the tools, the project's instructions and the user's override. It
// lists tools that the instructions mention and that are not among tools. Equal arguments give
// equal bytes.
func (p Profile) System(s Surroundings, tools []llm.ToolSpec, override string) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(p.Instructions))
	b.WriteString("\n\n")
	s.write(&b)
	if len(tools) > 0 {
		b.WriteString("\n# Tools\n\n")
		for _, t := range tools {
			fmt.Fprintf(&b, "- %s: %s\n", t.Name, firstSentence(t.Description))
		}
	}
	if missing := p.missing(tools); len(missing) > 0 {
		fmt.Fprintf(&b, "\nNot available in this run, although mentioned above: `%s`.\n",
			strings.Join(missing, "`, `"))
	}
	if len(s.Docs) > 0 {
		b.WriteString("\n# Project instructions\n\nFrom files of the project; where they disagree, " +
			"the later one has priority.\n")
		for _, d := range s.Docs {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", d.Path, strings.TrimSpace(d.Text))
		}
	}
	if override = strings.TrimSpace(override); override != "" {
		fmt.Fprintf(&b, "\n# Instructions of the user\n\n"+
			"These have priority over everything above.\n\n%s\n", override)
	}
	return b.String()
}

// missing returns the names of the family's tools that the instructions mention and that are not
// among tools: a run, a sub-agent or an environment without a shell may have fewer.
func (p Profile) missing(tools []llm.ToolSpec) []string {
	known := p.Tools
	if f := family(p.ID); f != nil {
		known = f().Tools // the profile of a sub-agent holds only those that it is offered
	}
	var names []string
	for _, t := range known {
		if strings.Contains(p.Instructions, "`"+t.Name+"`") &&
			!slices.ContainsFunc(tools, func(have llm.ToolSpec) bool { return have.Name == t.Name }) {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s Surroundings) write(b *strings.Builder) {
	b.WriteString("<environment>\n")
	fmt.Fprintf(b, "Working directory: %s\n", s.WorkDir)
	fmt.Fprintf(b, "Is a git repository: %t\n", s.Git != nil)
	if s.Git != nil {
		fmt.Fprintf(b, "Git branch: %s\n", cmp.Or(s.Git.Branch, "none (detached HEAD)"))
	}
	fmt.Fprintf(b, "Platform: %s\n", s.Platform)
	fmt.Fprintf(b, "OS version: %s\n", cmp.Or(s.OSVersion, "unknown"))
	fmt.Fprintf(b, "Today's date: %s\n", s.Date)
	fmt.Fprintf(b, "Model: %s\n", s.Model)
	fmt.Fprintf(b, "Knowledge cut-off: %s\n", cmp.Or(s.KnowledgeCutoff, "unknown"))
	b.WriteString("</environment>\n")
	if s.Git == nil {
		return
	}
	b.WriteString("\n<git>\nThe repository when the session started; it may have changed since.\n")
	fmt.Fprintf(b, "Root: %s\n", s.Git.Root)
	if s.Git.ReadOnly {
		b.WriteString("The .git directory is read-only: do not stage, commit, stash or switch " +
			"branches; leave the changes in the files.\n")
	}
	if st := s.Git.Status; st != nil {
		atLeast := ""
		if st.More {
			atLeast = "at least "
		}
		fmt.Fprintf(b, "Modified files: %s%d\nUntracked files: %s%d\n",
			atLeast, st.Modified, atLeast, st.Untracked)
	}
	if len(s.Git.Commits) > 0 {
		b.WriteString("Last commits:\n")
		for _, c := range s.Git.Commits {
			fmt.Fprintf(b, "  %s\n", c)
		}
	}
	b.WriteString("</git>\n")
}

func firstSentence(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return s
}
