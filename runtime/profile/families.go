package profile

import (
	_ "embed" // For the instructions.
	"fmt"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// The instructions of a family are its text followed by the common text.
var (
	//go:embed common.md
	commonInstructions string
	//go:embed openai.md
	openaiInstructions string
	//go:embed anthropic.md
	anthropicInstructions string
	//go:embed gemini.md
	geminiInstructions string
)

// Providers returns the IDs of the profiles that [New] can return.
func Providers() []string { return []string{"openai", "anthropic", "gemini"} }

// New returns the profile of a provider for one of its models, with figures from models. A model
// that is not listed has a context window of [UnknownContextWindow] tokens and an unknown cut-off.
// A provider that is not one of [Providers] is an error.
func New(provider, name string, models Models) (Profile, error) {
	f := family(provider)
	if f == nil {
		return Profile{}, fmt.Errorf("profile: unknown provider %.100q (known: %s)", provider,
			strings.Join(Providers(), ", "))
	}
	return f().describe(name, models), nil
}

// OpenAI returns the profile for OpenAI's models, and for others that a server offers through one
// of OpenAI's APIs. Files are edited with apply_patch, and the timeout of commands is 10 seconds.
// Figures are from [DefaultModels], see [New].
func OpenAI(name string) Profile { return openai().describe(name, DefaultModels()) }

// Anthropic returns the profile for Anthropic's Claude models. Files are edited with edit_file,
// grep and glob are [tool.AnthropicGrep] and [tool.AnthropicGlob], and the timeout of commands is
// 120 seconds. Figures are from [DefaultModels], see [New].
func Anthropic(name string) Profile { return anthropic().describe(name, DefaultModels()) }

// Gemini returns the profile for Google's Gemini models. Files are edited with edit_file,
// read_many_files reads several at once, grep and glob are [tool.GeminiGrep] and [tool.GeminiGlob],
// and the timeout of commands is 10 seconds. Figures are from [DefaultModels], see [New].
func Gemini(name string) Profile { return gemini().describe(name, DefaultModels()) }

// family returns the constructor of a provider's profile without a model, or nil.
func family(provider string) func() Profile {
	switch provider {
	case "openai":
		return openai
	case "anthropic":
		return anthropic
	case "gemini":
		return gemini
	}
	return nil
}

func openai() Profile {
	return Profile{
		ID:           "openai",
		Instructions: openaiInstructions + commonInstructions,
		ProjectDocs:  []string{"AGENTS.md", ".codex/instructions.md"},
		Tools: []tool.Tool{
			tool.ReadFile(), tool.ApplyPatch(), tool.WriteFile(), tool.Shell(), tool.Grep(), tool.Glob(),
			tool.ListDir(), tool.AskUser(), tool.ExitTool(),
		},
		CommandTimeout: 10 * time.Second,
	}
}

func anthropic() Profile {
	return Profile{
		ID:           "anthropic",
		Instructions: anthropicInstructions + commonInstructions,
		ProjectDocs:  []string{"AGENTS.md", "CLAUDE.md"},
		Tools: []tool.Tool{
			tool.ReadFile(), tool.WriteFile(), tool.EditFile(), tool.Shell(), tool.AnthropicGrep(),
			tool.AnthropicGlob(), tool.ListDir(), tool.AskUser(), tool.ExitTool(),
		},
		CommandTimeout: 120 * time.Second,
	}
}

func gemini() Profile {
	return Profile{
		ID:           "gemini",
		Instructions: geminiInstructions + commonInstructions,
		ProjectDocs:  []string{"AGENTS.md", "GEMINI.md"},
		Tools: []tool.Tool{
			tool.ReadFile(), tool.ReadManyFiles(), tool.WriteFile(), tool.EditFile(), tool.Shell(),
			tool.GeminiGrep(), tool.GeminiGlob(), tool.ListDir(), tool.AskUser(), tool.ExitTool(),
		},
		CommandTimeout: 10 * time.Second,
	}
}

// maxAnswerTokens limits answers where a request must set a limit. Servers count the limit and the
// input against the context together, so the largest possible limit would take context away from
// the input.
const maxAnswerTokens = 32_000

// describe completes the profile of a family for one model.
func (p Profile) describe(name string, models Models) Profile {
	p.Model, p.models = name, &models
	p.SupportsReasoning, p.SupportsStreaming, p.SupportsParallelToolCalls = true, true, true
	// Servers with OpenAI's APIs offer models of every kind, many of which accept no images.
	p.SupportsVision = p.ID != "openai"
	p.ContextWindow, p.MaxOutputTokens, p.KnowledgeCutoff = UnknownContextWindow, 0, ""
	p.Price = nil
	if m, ok := models.Lookup(p.ID, name); ok {
		p.ContextWindow, p.MaxOutputTokens = m.ContextWindow, m.MaxOutput
		p.KnowledgeCutoff = m.KnowledgeCutoff
		p.SupportsReasoning, p.SupportsVision, p.Price = m.Reasoning, m.Vision, m.priceOf(name)
	}
	if p.ID == "anthropic" {
		p.AnswerTokens = maxAnswerTokens
		if p.MaxOutputTokens > 0 {
			p.AnswerTokens = min(p.AnswerTokens, p.MaxOutputTokens)
		}
	}
	return p
}
