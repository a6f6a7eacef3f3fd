package profile

import (
	_ "embed"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

//go:embed openai.md
var openaiInstructions string

// model is what is published about a model.
type model struct {
	prefix        string
	contextWindow int64
	cutoff        string
	reasoning     bool
}

// openaiModels is searched in order; the first prefix that fits counts. Figures are from OpenAI's model pages.
var openaiModels = []model{
	{"gpt-5.2", 400_000, "2025-08", true},
	{"gpt-5.1", 400_000, "2024-09", true},
	{"gpt-5-mini", 400_000, "2024-05", true},
	{"gpt-5-nano", 400_000, "2024-05", true},
	{"gpt-5", 400_000, "2024-09", true},
	{"gpt-4.1", 1_047_576, "2024-06", false},
	{"gpt-4o", 128_000, "2023-10", false},
	{"o3", 200_000, "2024-06", true},
	{"o4-mini", 200_000, "2024-06", true},
}

// unknownWindow is assumed for models that are not listed: most served today have at least this.
const unknownWindow = 128_000

// OpenAI is the profile for OpenAI's models, and for others that are served through one of its interfaces. The context window and
// cut-off of a model that is not known are 128,000 tokens and unknown.
func OpenAI(name string) Profile {
	p := Profile{
		ID:           "openai",
		Model:        name,
		Instructions: openaiInstructions,
		ProjectDocs:  []string{"AGENTS.md", ".codex/instructions.md"},
		Tools: []tool.Tool{
			tool.ReadFile(), tool.ApplyPatch(), tool.WriteFile(), tool.Shell(), tool.Grep(), tool.Glob(), tool.ListDir(),
			tool.AskUser(), tool.ExitTool(),
		},
		CommandTimeout:            10 * time.Second,
		ContextWindow:             unknownWindow,
		SupportsReasoning:         true,
		SupportsStreaming:         true,
		SupportsParallelToolCalls: true,
	}
	for _, m := range openaiModels {
		if strings.HasPrefix(name, m.prefix) {
			p.ContextWindow, p.KnowledgeCutoff, p.SupportsReasoning = m.contextWindow, m.cutoff, m.reasoning
			break
		}
	}
	return p
}
