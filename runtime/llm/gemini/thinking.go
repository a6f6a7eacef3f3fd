package gemini

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// generationOf returns the generation in the name of a model, such as 2.5. It is the newest for a
// name without one, such as "gemini-flash-latest", and 0 for a model that is not a Gemini.
func generationOf(model string) float64 {
	name, ok := strings.CutPrefix(strings.TrimPrefix(model, "models/"), "gemini-")
	if !ok {
		return 0
	}
	number, _, _ := strings.Cut(name, "-")
	generation, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return math.MaxFloat64
	}
	return generation
}

// budget returns the tokens for an effort, for models without levels.
func budget(effort string) (int64, error) {
	switch effort {
	case "minimal", "low":
		return 1024, nil
	case "medium":
		return 8192, nil
	case "high":
		return 24576, nil
	}
	return 0, fmt.Errorf("the reasoning effort %q is neither none, minimal, low, medium, high nor "+
		"a number of tokens", effort)
}

// thinking returns the thinking configuration; nil means the default of the model without thoughts.
func thinking(model, effort string) (*wireThinkingConfig, error) {
	generation := generationOf(model)
	if effort == "" {
		// Models without thinking reject the request for thoughts, and these do not think by default.
		if generation < 2.5 || generation < 3 && strings.Contains(model, "flash-lite") {
			return nil, nil
		}
		return &wireThinkingConfig{IncludeThoughts: true}, nil
	}
	tokens, err := strconv.ParseInt(effort, 10, 32)
	switch {
	case err == nil:
	case effort == "none":
		tokens = 0
	case generation > 0 && generation < 3:
		if tokens, err = budget(effort); err != nil {
			return nil, err
		}
	default:
		return &wireThinkingConfig{IncludeThoughts: true, ThinkingLevel: strings.ToUpper(effort)}, nil
	}
	return &wireThinkingConfig{IncludeThoughts: tokens != 0, ThinkingBudget: new(int32(tokens))}, nil
}
