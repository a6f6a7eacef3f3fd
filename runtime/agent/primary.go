package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// Names of the built-in kinds that no model starts. Build and plan are for the agent of the user;
// the others write summaries, titles and final reports.
const (
	KindBuild      = "build"
	KindPlan       = "plan"
	KindCompaction = "compaction"
	KindTitle      = "title"
	KindSummary    = "summary"
)

// stricter returns the smaller one of two limits, of which zero is none.
func stricter[N int | int64](a, b N) N {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// WithKind returns c for an agent of a kind: with its instructions, unless they are those of a
// built-in sub-agent, after the user's, its model, its tools, its limits and its rules. Build is c
// itself, and plan begins in plan mode. Other names are those of Subagents; an unknown one is an
// error that wraps ErrConfig.
func (c Config) WithKind(name string) (Config, error) {
	kinds := c.Subagents.all()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name && k.role() != roleHidden })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			if k.role() != roleHidden {
				names = append(names, k.Name)
			}
		}
		return Config{}, fmt.Errorf("agent: %w: unknown kind of agent %q (known: %s)", ErrConfig, name,
			strings.Join(names, ", "))
	}
	k := kinds[i]
	if k.Name == KindPlan {
		modes := Modes{}
		if c.Modes != nil {
			modes = *c.Modes
		}
		modes.Plan = true
		c.Modes = &modes
	}
	c.Settings = c.Settings.clone()
	c.kindInstructions = k.Instructions
	if k.isBuiltin() {
		c.kindInstructions = "" // they are for a sub-agent
	}
	if k.Model != "" {
		c.Settings.Model = k.Model
	}
	c.Limits.MaxTurns = stricter(c.Limits.MaxTurns, k.MaxTurns)
	c.Limits.MaxToolCalls = stricter(c.Limits.MaxToolCalls, k.MaxToolCalls)
	c.Limits.MaxTokens = stricter(c.Limits.MaxTokens, k.MaxTokens)
	if k.Rules != nil {
		c.Rules = c.Rules.Tighten(k.Rules)
	}
	c.Policy = c.Policy.narrow(&ToolPolicy{Allow: k.Tools})
	switch {
	case !k.ReadOnly:
		return c, nil
	case c.Verify.Command != "":
		return Config{}, fmt.Errorf(
			"agent: %w: an agent of the kind %s changes nothing that a check could "+
				"check",
			ErrConfig,
			k.Name,
		)
	}
	c.ProgressFile = ""
	readOnly := append([]string{exit, askUser}, plannerTools[:]...)
	for _, t := range slices.Concat(c.Profile.Tools, c.Tools) {
		if t.ReadOnly {
			readOnly = append(readOnly, t.Name)
		}
	}
	c.Policy = c.Policy.narrow(&ToolPolicy{Allow: readOnly})
	if c.Env != nil {
		c.Env = wrap.ReadOnly(c.Env, nil)
	}
	return c, nil
}
