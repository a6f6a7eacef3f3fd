package profile_test

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

func TestLayersInOrder(t *testing.T) {
	p := profile.OpenAI("gpt-5.2")
	p.Instructions = "BASE"
	s := profile.Surroundings{
		WorkDir: "/w", Platform: "linux", Date: "2026-01-02", Model: "gpt-5.2",
		Git:  &profile.Git{Root: "/w", Branch: "trunk", Status: &profile.GitStatus{Modified: 2, Untracked: 1}, Commits: []string{"abc x"}},
		Docs: []profile.Doc{{Path: "/AGENTS.md", Text: "OUTER"}, {Path: "/w/AGENTS.md", Text: "INNER"}},
	}
	tools := []llm.ToolSpec{{Name: "shell", Description: "Runs a command. And more."}}
	got := p.System(s, tools, "OVERRIDE")
	at := -1
	for _, want := range []string{"BASE", "<environment>", "trunk", "</environment>", "<git>", "Modified files: 2", "abc x", "- shell: Runs a command.\n", "OUTER", "INNER", "OVERRIDE"} {
		i := strings.Index(got, want)
		if i <= at {
			t.Errorf("%q stands at %d, after %d:\n%s", want, i, at, got)
		}
		at = i
	}
	if got != p.System(s, tools, "OVERRIDE") {
		t.Error("equal arguments give different bytes")
	}
}

// TestUnknownIsNotInvented leaves out what could not be found out.
func TestUnknownIsNotInvented(t *testing.T) {
	p := profile.OpenAI("some-model")
	p.Instructions = ""
	got := p.System(profile.Surroundings{WorkDir: "/w", Git: &profile.Git{Root: "/w"}}, nil, "")
	for _, not := range []string{"Modified files", "Untracked files", "# Tools", "# Project instructions", "# Instructions of the user"} {
		if strings.Contains(got, not) {
			t.Errorf("the prompt holds %q:\n%s", not, got)
		}
	}
	if !strings.Contains(got, "Knowledge cut-off: unknown") || !strings.Contains(got, "none (detached HEAD)") {
		t.Errorf("%s", got)
	}
}
