package profile_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

func families() []profile.Profile {
	return []profile.Profile{profile.OpenAI("m"), profile.Anthropic("m"), profile.Gemini("m")}
}

func TestFamilies_9_2(t *testing.T) {
	for _, tt := range []struct {
		profile profile.Profile
		id      string
		tools   string
		docs    string
		timeout time.Duration
		vision  bool
	}{
		{profile.OpenAI("m"), "openai", "read_file apply_patch write_file shell grep glob list_dir " +
			"ask_user exit", "AGENTS.md .codex/instructions.md", 10 * time.Second, false},
		{profile.Anthropic("m"), "anthropic", "read_file write_file edit_file shell grep glob " +
			"list_dir ask_user exit", "AGENTS.md CLAUDE.md", 120 * time.Second, true},
		{profile.Gemini("m"), "gemini", "read_file read_many_files write_file edit_file shell grep " +
			"glob list_dir ask_user exit", "AGENTS.md GEMINI.md", 10 * time.Second, true},
	} {
		t.Run(tt.id, func(t *testing.T) {
			p := tt.profile
			if p.ID != tt.id || p.Model != "m" || p.CommandTimeout != tt.timeout ||
				p.SupportsVision != tt.vision {
				t.Errorf("%s %s, timeout %v, vision %v", p.ID, p.Model, p.CommandTimeout, p.SupportsVision)
			}
			if !p.SupportsStreaming || !p.SupportsReasoning || !p.SupportsParallelToolCalls {
				t.Errorf("streaming %v, reasoning %v, parallel calls %v", p.SupportsStreaming,
					p.SupportsReasoning, p.SupportsParallelToolCalls)
			}
			var names []string
			for _, tool := range p.Tools {
				names = append(names, tool.Name)
			}
			if diff := cmp.Diff(tt.tools, strings.Join(names, " ")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.docs, strings.Join(p.ProjectDocs, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSearchParameters checks the parameters of the search tools of each family, and their aliases.
func TestSearchParameters(t *testing.T) {
	const all = "case_insensitive glob_filter max_results output_mode path pattern*"
	want := map[string][2]string{
		"openai grep": {all, ""},
		"openai glob": {"path pattern*", ""},
		"anthropic grep": {
			"-A -B -C -n " + all + " multiline offset type",
			"-i=case_insensitive context=-C glob=glob_filter head_limit=max_results",
		},
		"anthropic glob": {"path pattern*", ""},
		"gemini grep": {
			all + " after before case_sensitive context exclude_pattern fixed_strings " +
				"max_matches_per_file names_only no_ignore",
			"dir_path=path include_pattern=glob_filter total_max_matches=max_results",
		},
		"gemini glob": {"case_sensitive path pattern* respect_git_ignore", "dir_path=path"},
	}
	for _, p := range families() {
		for _, tool := range p.Tools {
			w, ok := want[p.ID+" "+tool.Name]
			if !ok {
				continue
			}
			var schema struct {
				Properties map[string]any
				Required   []string
			}
			if err := json.Unmarshal(tool.Schema, &schema); err != nil {
				t.Fatal(err)
			}
			var names, aliases []string
			for name := range schema.Properties {
				if slices.Contains(schema.Required, name) {
					name += "*"
				}
				names = append(names, name)
			}
			for alias, name := range tool.Aliases {
				aliases = append(aliases, alias+"="+name)
				if _, known := schema.Properties[name]; !known {
					t.Errorf("%s: %s of %s is an alias of %s, which is no parameter", p.ID, alias, tool.Name, name)
				}
			}
			slices.Sort(names)
			slices.Sort(aliases)
			wanted := strings.Fields(w[0])
			slices.Sort(wanted)
			if diff := cmp.Diff([]string{strings.Join(wanted, " "), w[1]}, []string{
				strings.Join(names, " "), strings.Join(aliases, " "),
			}); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", p.ID, tool.Name, diff)
			}
		}
	}
}

// TestInstructions_9_2_4 checks that the instructions of each family treat all topics.
func TestInstructions_9_2_4(t *testing.T) {
	shared := map[string]string{
		"identity": `^You are a software engineer`, "changing files": `(?m)^# Changing files$`,
		"project documents": `AGENTS\.md`,
		"coding practice":   `(?m)^# How to work$`, "tool use": `(?m)^# Tools in general$`,
		"errors":       `(?m)^# When something fails$`,
		"verification": `Run the project's own tests`, "the end": `(?m)^# When you are done$`,
		"reading first": "(?i)read[^.]* before you (edit|patch|change)|about to change first",
		"history":       `Do not commit`, "no keyboard": `no keyboard`,
	}
	own := map[string]map[string]string{
		"openai": {
			"the patch format": `(?s)\*\*\* Begin Patch.*\*\*\* End Patch`,
			"its documents":    `\.codex/instructions\.md`, "timeout": `ten seconds|timeout_ms`,
		},
		"anthropic": {
			"which tool":       `(?m)^# Which tool for what$`,
			"edits, not files": "Prefer editing an existing file",
			"edit, not write":  "`edit_file` to `write_file`",
			"old_string":       "`old_string` exactly", "it is unique": `exactly once|unique`,
			"replace_all": "replace_all", "its documents": `CLAUDE\.md`,
			"timeout": "two minutes", "output modes": "files_with_matches", "lines around": "`-C`",
		},
		"gemini": {
			"several files": "read_many_files", "its documents": `GEMINI\.md`,
			"old_string": "`old_string` must be exactly", "it is unique": `occur only once`,
			"timeout": "ten seconds", "lines around": "`context`",
		},
	}
	for _, p := range families() {
		for _, topics := range []map[string]string{shared, own[p.ID]} {
			for topic, pattern := range topics {
				if !regexp.MustCompile(pattern).MatchString(p.Instructions) {
					t.Errorf("%s: nothing of %s (%s)", p.ID, topic, pattern)
				}
			}
		}
		// The instructions name no tool or file that the model does not have.
		offered := map[string]bool{}
		for _, tool := range p.Tools {
			offered[tool.Name] = true
		}
		for _, name := range []string{"apply_patch", "edit_file", "read_many_files"} {
			if strings.Contains(p.Instructions, name) && !offered[name] {
				t.Errorf("%s: the instructions name %s, which is not offered", p.ID, name)
			}
		}
		docs := strings.Join(p.ProjectDocs, " ")
		for _, name := range []string{"CLAUDE.md", "GEMINI.md", ".codex/instructions.md"} {
			if strings.Contains(p.Instructions, name) != strings.Contains(docs, name) {
				t.Errorf("%s: %s is named in only one of the two", p.ID, name)
			}
		}
	}
}

// Every family's prompt has all layers, later ones below, and its own instructions first.
func TestLayers_9_8(t *testing.T) {
	s := profile.Surroundings{
		WorkDir: "/w", Platform: "linux", OSVersion: "6.1", Date: "2026-01-02", Model: "m",
		KnowledgeCutoff: "2025-08", Git: &profile.Git{Root: "/w", Branch: "trunk"},
		Docs: []profile.Doc{{Path: "/w/AGENTS.md", Text: "DOC"}},
	}
	seen := map[string]string{}
	for _, p := range families() {
		var specs []llm.ToolSpec
		for _, tool := range p.Tools {
			specs = append(specs, tool.ToolSpec)
		}
		got := p.System(s, specs, "OVERRIDE")
		if other := seen[p.Instructions]; other != "" {
			t.Errorf("%s and %s have the same instructions", p.ID, other)
		}
		seen[p.Instructions] = p.ID
		at := -1
		for _, want := range []string{
			"You are", "# When you are done", "<environment>\nWorking directory: /w\n", "OS version: 6.1",
			"Model: m", "Knowledge cut-off: 2025-08", "<git>", "\n# Tools\n", "- exit: ",
			"\n# Project instructions\n\nFrom files", "DOC", "OVERRIDE",
		} {
			i := strings.LastIndex(got, want)
			if i <= at {
				t.Errorf("%s: %q is at %d, after %d", p.ID, want, i, at)
			}
			at = i
		}
		for _, tool := range p.Tools {
			if !strings.Contains(got, "\n- "+tool.Name+": ") {
				t.Errorf("%s: %s is not described", p.ID, tool.Name)
			}
		}
	}
}

func TestNew(t *testing.T) {
	models, err := profile.ParseModels([]byte(`{"models": [{"provider": "gemini", "prefix": ` +
		`"mine", "context_window": 5000, "max_output": 700, "knowledge_cutoff": "2020-02"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range profile.Providers() {
		p, err := profile.New(id, "mine", models)
		if err != nil || p.ID != id || p.Model != "mine" {
			t.Fatalf("%s: %s %s, %v", id, p.ID, p.Model, err)
		}
		want := [2]int64{profile.UnknownContextWindow, 0}
		if id == "gemini" {
			want = [2]int64{5000, 700}
		}
		if got := [2]int64{p.ContextWindow, p.MaxOutputTokens}; got != want ||
			(p.KnowledgeCutoff != "") != (id == "gemini") {
			t.Errorf("%s: %v, cut-off %q, want %v", id, got, p.KnowledgeCutoff, want)
		}
	}
	if p, err := profile.New("gpt", "m", models); err == nil ||
		!strings.Contains(err.Error(), "openai, anthropic, gemini") || p.ID != "" {
		t.Errorf("%v", err)
	}
	if p, err := profile.New("openai", "gpt-5.2", profile.Models{}); err != nil ||
		p.ContextWindow != profile.UnknownContextWindow {
		t.Errorf("the empty table has a model: %d, %v", p.ContextWindow, err)
	}
}
