package anthropic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// splitOptions returns the options that are fields of the body, and the value of the header
// anthropic-beta.
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
				return nil, "", fmt.Errorf(`the option "betas" has %v, which is no name`, v)
			}
			names = append(names, name)
		}
	default:
		return nil, "", errors.New(`the option "betas" is no list of names`)
	}
	for _, name := range names {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f ||
				r == ','
		}) {
			return nil, "", fmt.Errorf(`the option "betas" has %q, which is no name`, name)
		}
	}
	fields = maps.Clone(options)
	delete(fields, "betas")
	return fields, strings.Join(names, ","), nil
}

// reason asks for thinking as the model of req takes it.
func reason(body *wireRequest, req llm.Request) error {
	if req.ReasoningEffort == "" {
		return nil
	}
	_, own := req.Options["thinking"]
	if !wantsBudget(req.Model) {
		body.OutputConfig = &wireOutputConfig{Effort: req.ReasoningEffort}
		if !own {
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
		return fmt.Errorf("the reasoning effort %q is none of low, medium, high, xhigh and max",
			req.ReasoningEffort)
	}
	const least = 1024 // what the server takes
	budget = min(budget, body.MaxTokens/2)
	if !own && budget >= least && mayThink(body.Messages) {
		body.Thinking = &wireThinking{Type: "enabled", BudgetTokens: budget}
	}
	return nil
}

// wantsBudget reports whether a model takes a budget of thinking tokens and not adaptive thinking.
// Those are old models only, so that a name that is not known is that of a newer one.
func wantsBudget(model string) bool {
	// Gateways write versions with a dot, and put something before the name.
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

// mayThink reports whether thinking with a budget may be on: the server refuses it if the last
// answer has calls and did not begin with thinking.
func mayThink(messages []wireMessage) bool {
	for _, m := range slices.Backward(messages) {
		if m.Role == roleAssistant {
			calls := slices.ContainsFunc(m.Content, func(b *wireBlock) bool { return b.Type == blockToolUse })
			return !calls || isThinking(m.Content[0])
		}
	}
	return true
}

// markCache sets the four marks that a request may have: what each one covers is all that comes
// before it, tools first.
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
