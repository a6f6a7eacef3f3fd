// Package profile holds what differs between families of models: which tools they are offered, what
// they are told, and what they can do. A profile is data; the loop treats all of them alike.
package profile

import (
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
	// Model is the model's name as the provider knows it.
	Model string
	// Tools are what the model is offered, in this order. A custom tool is added here or in the
	// session's registry.
	Tools []tool.Tool
	// Instructions are the family's base instructions, the first layer of the system prompt.
	Instructions string
	// ProjectDocs are the names of the files with a project's own instructions that this family reads,
	// relative to a folder; in one folder, later ones weigh more.
	ProjectDocs []string
	// CommandTimeout is the shell tool's default.
	CommandTimeout time.Duration
	// ContextWindow is the model's context in tokens, input and output together.
	ContextWindow int64
	// MaxOutputTokens is how many tokens one answer of the model may have; 0 means unknown.
	MaxOutputTokens int64
	// AnswerTokens is the limit that requests set for an answer; 0 leaves it to the provider.
	AnswerTokens int64
	// KnowledgeCutoff is when the model's knowledge ends, such as "2025-08"; empty if unknown.
	KnowledgeCutoff string
	// SupportsReasoning and SupportsParallelToolCalls say what requests may ask for: a reasoning
	// effort, and several calls in one answer. SupportsStreaming tells a host whether text comes piece
	// by piece. SupportsVision says that the model takes images.
	SupportsReasoning         bool
	SupportsVision            bool
	SupportsStreaming         bool
	SupportsParallelToolCalls bool
	// Options are extra fields of the provider's requests.
	Options map[string]any

	// models is the table that the figures are from, nil if they are from elsewhere.
	models *Models
}

// WithModel returns the profile for another model of the same provider, with the figures of the
// table that the profile was made with. A profile that was not made by [New], [OpenAI], [Anthropic]
// or [Gemini] keeps its figures, and so does one that is for this model already.
func (p Profile) WithModel(name string) Profile {
	if p.models == nil || name == p.Model {
		p.Model = name
		return p
	}
	return p.describe(name, *p.models)
}

// Surroundings is what a model is told about the place it works in. It is taken once, when a
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
	// Docs are the project's instructions, outermost folder first.
	Docs []Doc `json:"docs,omitempty"`
}

// Git is the state of the repository when the session started.
type Git struct {
	Root string `json:"root"`
	// Branch is empty if no branch is checked out.
	Branch string `json:"branch"`
	// Status is nil if it could not be found out in time.
	Status  *GitStatus `json:"status,omitempty"`
	Commits []string   `json:"commits,omitempty"`
}

// GitStatus counts files that differ from the last commit.
type GitStatus struct {
	Modified  int `json:"modified"`
	Untracked int `json:"untracked"`
	// More says that there are more files than were counted.
	More bool `json:"more,omitempty"`
}

// Doc is a file with a project's instructions.
type Doc struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// System builds the system prompt. Layers, of which later ones weigh more: the family's
// instructions, the surroundings, the tools, the project's instructions, the user's override. If
// tools lack some that the instructions speak of, it says so. Equal arguments give equal bytes.
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
		fmt.Fprintf(&b, "\nNot offered here, whatever the text above says of them: `%s`.\n",
			strings.Join(missing, "`, `"))
	}
	if len(s.Docs) > 0 {
		b.WriteString("\n# Project instructions\n\nFrom files of the project; where they disagree, " +
			"the later one counts.\n")
		for _, d := range s.Docs {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", d.Path, strings.TrimSpace(d.Text))
		}
	}
	if override = strings.TrimSpace(override); override != "" {
		fmt.Fprintf(&b, "\n# Instructions of the user\n\nThese outweigh everything above.\n\n%s\n",
			override)
	}
	return b.String()
}

// missing returns the names of the family's tools that the instructions speak of and that are not
// among tools: a run, a sub-agent or an environment without a shell may have fewer.
func (p Profile) missing(tools []llm.ToolSpec) []string {
	known := p.Tools
	if f := family(p.ID); f != nil {
		known = f().Tools // of a sub-agent's profile, Tools are only what it is offered
	}
	var names []string
	for _, t := range known {
		if strings.Contains(p.Instructions, "`"+t.Name+"`") && !slices.ContainsFunc(tools,
			func(have llm.ToolSpec) bool { return have.Name == t.Name }) {
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
		branch := s.Git.Branch
		if branch == "" {
			branch = "none (detached HEAD)"
		}
		fmt.Fprintf(b, "Git branch: %s\n", branch)
	}
	fmt.Fprintf(b, "Platform: %s\n", s.Platform)
	fmt.Fprintf(b, "OS version: %s\n", orUnknown(s.OSVersion))
	fmt.Fprintf(b, "Today's date: %s\n", s.Date)
	fmt.Fprintf(b, "Model: %s\n", s.Model)
	fmt.Fprintf(b, "Knowledge cut-off: %s\n", orUnknown(s.KnowledgeCutoff))
	b.WriteString("</environment>\n")
	if s.Git == nil {
		return
	}
	b.WriteString("\n<git>\nThe repository when the session started; it may have changed since.\n")
	fmt.Fprintf(b, "Root: %s\n", s.Git.Root)
	if st := s.Git.Status; st != nil {
		atLeast := ""
		if st.More {
			atLeast = "at least "
		}
		fmt.Fprintf(b, "Modified files: %s%d\nUntracked files: %s%d\n", atLeast, st.Modified, atLeast,
			st.Untracked)
	}
	if len(s.Git.Commits) > 0 {
		b.WriteString("Last commits:\n")
		for _, c := range s.Git.Commits {
			fmt.Fprintf(b, "  %s\n", c)
		}
	}
	b.WriteString("</git>\n")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func firstSentence(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return s
}
