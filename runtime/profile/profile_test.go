package profile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

func TestLayersInOrder(t *testing.T) {
	p := profile.OpenAI("gpt-5.2")
	p.Instructions = "BASE"
	s := profile.Surroundings{
		WorkDir: "/w", Platform: "linux", Date: "2026-01-02", Model: "gpt-5.2",
		Git: &profile.Git{Root: "/w", Branch: "trunk", ReadOnly: true, Status: &profile.GitStatus{
			Modified: 2, Untracked: 1,
		}, Commits: []string{"abc x"}},
		Docs: []profile.Doc{{Path: "/AGENTS.md", Text: "OUTER"}, {Path: "/w/AGENTS.md", Text: "INNER"}},
	}
	tools := []llm.ToolSpec{{Name: "shell", Description: "Runs a command. And more."}}
	got := p.System(s, tools, "OVERRIDE")
	at := -1
	for _, want := range []string{
		"BASE", "<environment>", "trunk", "</environment>", "<git>",
		"do not stage, commit", "Modified files: 2", "abc x", "- shell: Runs a command.\n", "OUTER",
		"INNER", "OVERRIDE",
	} {
		i := strings.Index(got, want)
		if i <= at {
			t.Errorf("%q is at %d, after %d:\n%s", want, i, at, got)
		}
		at = i
	}
	if got != p.System(s, tools, "OVERRIDE") {
		t.Error("equal arguments give different bytes")
	}
}

// TestUnknownIsNotInvented checks that unknown facts are left out.
func TestUnknownIsNotInvented(t *testing.T) {
	p := profile.OpenAI("some-model")
	p.Instructions = ""
	got := p.System(profile.Surroundings{WorkDir: "/w", Git: &profile.Git{Root: "/w"}}, nil, "")
	for _, not := range []string{
		"Modified files", "Untracked files", "read-only", "# Tools",
		"# Project instructions", "# Instructions of the user",
	} {
		if strings.Contains(got, not) {
			t.Errorf("the prompt holds %q:\n%s", not, got)
		}
	}
	if !strings.Contains(got, "Knowledge cut-off: unknown") ||
		!strings.Contains(got, "none (detached HEAD)") {
		t.Errorf("%s", got)
	}
}

// TestToolsThatAreNotOffered checks that the prompt names the tools which the instructions mention
// and the run does not offer.
func TestToolsThatAreNotOffered(t *testing.T) {
	const sentence = "\nNot available in this run, although mentioned above: "
	for _, p := range []profile.Profile{
		profile.OpenAI("m"), profile.Anthropic("m"), profile.Gemini("m"),
	} {
		var all, reading []llm.ToolSpec
		for _, tool := range p.Tools {
			all = append(all, tool.ToolSpec)
			if tool.ReadOnly {
				reading = append(reading, tool.ToolSpec)
			}
		}
		if got := p.System(profile.Surroundings{}, all, ""); strings.Contains(got, sentence) {
			t.Errorf("%s: something is missing:\n%s", p.ID, got)
		}
		for _, offered := range [][]llm.ToolSpec{reading, nil} {
			less := p
			less.Tools = nil // as in a sub-agent, whose profile has no more than it is offered
			got := less.System(profile.Surroundings{}, offered, "")
			if other := p.System(profile.Surroundings{}, offered, ""); other != got {
				t.Errorf("%s: what the profile has counts:\n%s", p.ID, cmp.Diff(other, got))
			}
			_, list, _ := strings.Cut(got, sentence)
			list, _, _ = strings.Cut(list, "\n")
			for _, tool := range p.Tools {
				name := "`" + tool.Name + "`"
				here := slices.ContainsFunc(offered, func(s llm.ToolSpec) bool { return s.Name == tool.Name })
				if want := !here &&
					strings.Contains(p.Instructions, name); strings.Contains(list, name) != want {
					t.Errorf("%s, %d tools: %s is listed as missing: %v, in %q", p.ID, len(offered), name, !want,
						list)
				}
			}
			if !strings.Contains(list, "`shell`") || !strings.Contains(list, "`ask_user`") {
				t.Errorf("%s: %q", p.ID, list)
			}
		}
		// A tool is named in one way, so that it is found.
		for _, tool := range p.Tools {
			if strings.Contains(tool.Name, "_") &&
				strings.Count(p.Instructions, tool.Name) != strings.Count(p.Instructions, "`"+tool.Name+"`") {
				t.Errorf("%s: %s is not in quotes", p.ID, tool.Name)
			}
		}
	}
}

func TestWithModel(t *testing.T) {
	table, err := profile.ParseModels([]byte(`{"models": [
		{"provider": "anthropic", "prefix": "big", "context_window": 500000, "max_output": 100000,
			"knowledge_cutoff": "2026-01", "reasoning": true, "vision": false},
		{"provider": "anthropic", "prefix": "small", "context_window": 5000, "max_output": 1000,
			"reasoning": false, "vision": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	type figures struct {
		Model, Cutoff           string
		Window, Output, Answers int64
		Reasoning, Vision       bool
	}
	of := func(p profile.Profile) figures {
		return figures{
			p.Model, p.KnowledgeCutoff, p.ContextWindow, p.MaxOutputTokens, p.AnswerTokens,
			p.SupportsReasoning, p.SupportsVision,
		}
	}
	big, err := profile.New("anthropic", "big", table)
	if err != nil {
		t.Fatal(err)
	}
	own := profile.Profile{ID: "anthropic", Model: "mine", ContextWindow: 7}
	changed := big
	changed.ContextWindow = 9
	for name, tt := range map[string]struct {
		got  profile.Profile
		want figures
	}{
		"as made":  {big, figures{"big", "2026-01", 500_000, 100_000, 32_000, true, false}},
		"smaller":  {big.WithModel("small"), figures{"small", "", 5_000, 1_000, 1_000, false, true}},
		"and back": {big.WithModel("small").WithModel("big"), of(big)},
		"not listed": {big.WithModel("other"), figures{
			"other", "", profile.UnknownContextWindow, 0, 32_000, true, true,
		}},
		"the host's table": {changed.WithModel("big"), figures{
			"big", "2026-01", 9, 100_000, 32_000, true, false,
		}},
		"without a table": {own.WithModel("theirs"), figures{Model: "theirs", Window: 7}},
		"OpenAI limits itself": {profile.OpenAI("gpt-5").WithModel("gpt-4o"), figures{
			"gpt-4o", "2023-10", 128_000, 16_384, 0, false, true,
		}},
	} {
		if diff := cmp.Diff(tt.want, of(tt.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(big.WithModel("small").Tools) != len(big.Tools) ||
		big.WithModel("small").Instructions != big.Instructions {
		t.Error("another model has other tools or instructions")
	}
}
