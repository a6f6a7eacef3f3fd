package anthropic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// splitOptions separates the fields of the body from the value of the header anthropic-beta.
func splitOptions(options map[string]any) (fields map[string]any, betas string, err error) {
	value, ok := options["betas"]
	if !ok {
		return options, "", nil
	}
	var names []string
	switch value := value.(type) {
	case nil:
	case []string:
		names = value
	case []any:
		for _, v := range value {
			name, ok := v.(string)
			if !ok {
				return nil, "", fmt.Errorf(`the option "betas" has %v, which is not a valid tool name`, v)
			}
			names = append(names, name)
		}
	default:
		return nil, "", errors.New(`the option "betas" is no list of names`)
	}
	for _, name := range names {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || r == ','
		}) {
			return nil, "", fmt.Errorf(`the option "betas" has %q, which is not a valid tool name`, name)
		}
	}
	fields = maps.Clone(options)
	delete(fields, "betas")
	return fields, strings.Join(names, ","), nil
}

// reason sets the thinking fields that the model of req accepts.
func reason(body *wireRequest, req llm.Request) error {
	if req.ReasoningEffort == "" {
		return nil
	}
	_, replaced := req.Options["thinking"]
	if !hasBudget(req.Model) {
		body.OutputConfig = &wireOutputConfig{Effort: req.ReasoningEffort}
		if !replaced {
			body.Thinking = &wireThinking{Type: "adaptive", Display: "summarized"}
		}
		return nil
	}
	budgets := map[string]int64{
		"low": 4 << 10, "medium": 12 << 10, "high": 24 << 10,
		"xhigh": 64 << 10, "max": 64 << 10,
	}
	budget, ok := budgets[req.ReasoningEffort]
	if !ok {
		return fmt.Errorf("the reasoning effort %q is not one of low, medium, high, xhigh and max",
			req.ReasoningEffort)
	}
	const least = 1024 // what the server takes
	budget = min(budget, body.MaxTokens/2)
	if !replaced && budget >= least && mayThink(body.Messages) {
		body.Thinking = &wireThinking{Type: "enabled", BudgetTokens: budget}
	}
	return nil
}

// hasBudget reports whether a model has a budget of thinking tokens instead of adaptive thinking.
// Only old models do, so an unknown name is that of a newer one.
func hasBudget(model string) bool {
	// Gateways write versions with a dot, and prefix the name.
	model = strings.ReplaceAll(model, ".", "-")
	for _, name := range []string{
		"claude-3-7", "claude-sonnet-4-0", "claude-sonnet-4-2025", "claude-opus-4-0",
		"claude-opus-4-2025", "claude-opus-4-1",
		"claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-5",
	} {
		if strings.Contains(model, name) {
			return true
		}
	}
	return false
}

// mayThink reports whether the server accepts thinking with a budget: it does not if the last
// answer has calls and did not start with thinking.
func mayThink(messages []wireMessage) bool {
	for _, m := range slices.Backward(messages) {
		if m.Role == roleAssistant {
			calls := slices.ContainsFunc(m.Content, func(b *wireBlock) bool {
				return b.Type == blockToolUse
			})
			return !calls || isThinking(m.Content[0])
		}
	}
	return true
}

// markCache sets the four marks that a request may have. A mark covers everything before it, tools
// first.
func markCache(body *wireRequest) {
	mark := &wireCacheControl{Type: "ephemeral"}
	if n := len(body.Tools); n > 0 {
		body.Tools[n-1].CacheControl = mark
	}
	if n := len(body.System); n > 0 {
		body.System[n-1].CacheControl = mark
	}
	left := 2
	for _, m := range slices.Backward(body.Messages) {
		if m.Role != roleUser {
			continue
		}
		m.Content[len(m.Content)-1].CacheControl = mark
		if left--; left == 0 {
			return
		}
	}
}
