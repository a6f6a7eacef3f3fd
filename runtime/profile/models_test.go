package profile_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

func TestDefaultModels(t *testing.T) {
	m := profile.DefaultModels()
	if _, err := time.Parse(time.DateOnly, m.AsOf()); err != nil {
		t.Error(err)
	}
	list := m.List()
	for _, provider := range profile.Providers() {
		if !slices.ContainsFunc(list, func(e profile.Model) bool { return e.Provider == provider }) {
			t.Errorf("no models of %s", provider)
		}
	}
	for _, e := range list {
		// An entry that no name can reach is a mistake.
		if got, ok := m.Lookup(e.Provider, e.Prefix); !ok || got != e {
			t.Errorf("%s finds %v", e.Prefix, got)
		}
	}
	data, err := os.ReadFile("models.json")
	if err != nil {
		t.Fatal(err)
	}
	checked, err := profile.ParseModels(data)
	if err != nil || checked.AsOf() != m.AsOf() {
		t.Errorf("the checked table is of %q, %v", checked.AsOf(), err)
	}
	if diff := cmp.Diff(checked.List(), list); diff != "" {
		t.Error("-checked +unchecked:", diff)
	}
	list[0].ContextWindow = 1
	if m.List()[0].ContextWindow == 1 {
		t.Error("List gives the table itself")
	}
}

func TestModelsOfProfiles(t *testing.T) {
	for _, tt := range []struct {
		profile     profile.Profile
		window, out int64
		cutoff      string
		reasoning   bool
		vision      bool
	}{
		{profile.OpenAI("gpt-5.2-codex"), 400_000, 128_000, "2025-08", true, true},
		{profile.OpenAI("gpt-5-mini-2025-08-07"), 400_000, 128_000, "2024-05", true, true},
		{profile.OpenAI("gpt-4.1-nano"), 1_047_576, 32_768, "2024-06", false, true},
		{profile.OpenAI("gpt-4o-mini"), 128_000, 16_384, "2023-10", false, true},
		{profile.OpenAI("o3"), 200_000, 100_000, "2024-06", true, true},
		{profile.OpenAI("o3-mini"), 200_000, 100_000, "2023-10", true, false},
		{profile.OpenAI("my-model"), 128_000, 0, "", true, false},
		{profile.OpenAI("gpt-5.99"), 128_000, 0, "", true, false},
		{profile.OpenAI("claude-opus-4-6"), 128_000, 0, "", true, false},
		{profile.Anthropic("claude-opus-4-6"), 1_000_000, 128_000, "2025-05", true, true},
		{profile.Anthropic("claude-sonnet-4-5-20250929"), 200_000, 64_000, "2025-01", true, true},
		{profile.Anthropic("claude-haiku-4-5@20251001"), 200_000, 64_000, "2025-02", true, true},
		{profile.Anthropic("claude-sonnet-4-20250514"), 200_000, 64_000, "2025-01", true, true},
		{profile.Anthropic("claude-3-5-sonnet-latest"), 200_000, 8_192, "2024-04", false, true},
		{profile.Anthropic("claude-next"), 128_000, 0, "", true, true},
		{profile.Gemini("gemini-2.5-pro"), 1_048_576, 65_536, "2025-01", true, true},
		{
			profile.Gemini("gemini-2.5-flash-lite-preview-09-2025"), 1_048_576, 65_536, "2025-01", true,
			true,
		},
		{profile.Gemini("gemini-3-flash-preview"), 1_048_576, 65_536, "2025-01", true, true},
		{profile.Gemini("models/gemini-2.5-pro"), 1_048_576, 65_536, "2025-01", true, true},
		{profile.OpenAI("openai/gpt-4o:free"), 128_000, 16_384, "2023-10", false, true},
		{profile.OpenAI("anthropic/claude-opus-4-6"), 128_000, 0, "", true, false},
		{profile.OpenAI("gpt-5/x"), 400_000, 128_000, "2024-09", true, true},
		{profile.OpenAI("gpt-4-turbo-2024-04-09"), 128_000, 4_096, "2023-12", false, true},
		{profile.OpenAI("gpt-4"), 8_192, 8_192, "2023-12", false, false},
		{profile.OpenAI("gpt-4-0613"), 8_192, 8_192, "2023-12", false, false},
		{profile.OpenAI("gpt-3.5-turbo-0125"), 16_385, 4_096, "2021-09", false, false},
		{profile.Gemini("gemini-next"), 128_000, 0, "", true, true},
	} {
		p := tt.profile
		if p.ContextWindow != tt.window || p.MaxOutputTokens != tt.out ||
			p.KnowledgeCutoff != tt.cutoff || p.SupportsReasoning != tt.reasoning ||
			p.SupportsVision != tt.vision {
			t.Errorf("%s %s: window %d, output %d, cut-off %q, reasoning %v, vision %v", p.ID, p.Model,
				p.ContextWindow, p.MaxOutputTokens, p.KnowledgeCutoff, p.SupportsReasoning, p.SupportsVision)
		}
	}
}

func TestParseModels(t *testing.T) {
	m, err := profile.ParseModels([]byte(`{"as_of": "2031-05-06", "models": [
		{"provider": "openai", "prefix": "gpt-5.2", "context_window": 1000, "max_output": 10},
		{"provider": "openai", "prefix": "gpt-5.2-nine", "vision": false, "reasoning": false,
			"knowledge_cutoff": "2030-01"},
		{"provider": "anthropic", "prefix": "claude-opus-4-1", "context_window": 30000},
		{"provider": "gemini", "prefix": "gemma-9", "context_window": 8192},
		{"provider": "gemini", "prefix": "gemini-2.5-flash-x", "context_window": 9000}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	if m.AsOf() != "2031-05-06" || len(m.List()) != len(profile.DefaultModels().List())+3 {
		t.Errorf("as of %s, %d entries", m.AsOf(), len(m.List()))
	}
	for _, tt := range []struct {
		provider, name string
		want           profile.Model
	}{
		{"openai", "gpt-5.2", profile.Model{
			Provider: "openai", Prefix: "gpt-5.2", ContextWindow: 1000,
			MaxOutput: 10, KnowledgeCutoff: "2025-08", Reasoning: true, Vision: true,
		}},
		{"openai", "gpt-5.2-nine-a", profile.Model{
			Provider: "openai", Prefix: "gpt-5.2-nine",
			ContextWindow: 400_000, MaxOutput: 128_000, KnowledgeCutoff: "2030-01",
		}},
		{"anthropic", "claude-opus-4-1-20250805", profile.Model{
			Provider: "anthropic", Prefix: "claude-opus-4-1", ContextWindow: 30_000, MaxOutput: 30_000,
			KnowledgeCutoff: "2025-01", Reasoning: true, Vision: true,
		}},
		{"gemini", "gemini-2.5-flash-x-1", profile.Model{
			Provider: "gemini", Prefix: "gemini-2.5-flash-x", ContextWindow: 9000, MaxOutput: 9000,
			KnowledgeCutoff: "2025-01", Reasoning: true, Vision: true,
		}},
		{"gemini", "gemma-9:27b", profile.Model{
			Provider: "gemini", Prefix: "gemma-9", ContextWindow: 8192,
		}},
	} {
		got, ok := m.Lookup(tt.provider, tt.name)
		got.Price = nil // TestPrices has prices
		if diff := cmp.Diff(tt.want, got); diff != "" || !ok {
			t.Errorf("%s: %v\n%s", tt.name, ok, diff)
		}
	}
	if _, ok := m.Lookup("openai", "gemma-9"); ok {
		t.Error("a model is found at another provider")
	}
	if m, err := profile.ParseModels([]byte(`{}`)); err != nil ||
		m.AsOf() != profile.DefaultModels().AsOf() {
		t.Errorf("as of %q, %v", m.AsOf(), err)
	}
}

func TestParseModelsErrors(t *testing.T) {
	entry := func(s string) string { return "{\"models\": [\n" + s + "\n]}" }
	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "models: line 1: unexpected end of JSON input"},
		{"syntax", "{\n\n\"models\": [,]}", "models: line 3: invalid character ','"},
		{"more than a value", "{}\n{}", "models: line 2: invalid character '{' after top-level value"},
		{"list", "[]", "models: line 1: a table of models must be an object"},
		{"unknown key", "{\n\"modles\": []}", `models: line 2: "modles": unknown key`},
		{"no list", `{"models": {}}`, `models: line 1: "models": the value must be a list`},
		{"day", `{"as_of": "May"}`, `models: line 1: "as_of": "May" is not a day`},
		{
			"half a price", entry(`{"price": {"input": 1}}`),
			`models: line 2: "models": entry 1: "price": input or output is missing`,
		},
		{
			"negative price", entry(`{"price": {"input": -1}}`),
			`models: line 2: "models": entry 1: "price": "input": -1 is not a number of dollars`,
		},
		{
			"long price without a bound", entry(`{"price": {"input": 1, "output": 1, "long": {"input": 1,
				"output": 1}}}`),
			`models: line 3: "models": entry 1: "price": long and long_above need each other`,
		},
		{
			"longer than long", entry(`{"price": {"long": {"long": {}}}}`),
			`models: line 2: "models": entry 1: "price": "long": "long": unknown key`,
		},
		{"no entry", entry(`1`), `models: line 2: "models": entry 1: an entry must be an object`},
		{
			"unknown key of an entry", entry(`{"provider": "openai",` + "\n" + `"Prefix": "x"}`),
			`models: line 3: "models": entry 1: "Prefix": unknown key`,
		},
		{
			"twice in an entry", entry(`{"prefix": "x", "prefix": "y"}`),
			`models: line 2: "models": entry 1: the key "prefix" is given twice`,
		},
		{"text", entry(`{"provider": 7}`), `the value must be a string`},
		{"null", entry(`{"context_window": null}`), `the value must be a number`},
		{"number", entry(`{"context_window": "many"}`), `the value must be a number`},
		{"fraction", entry(`{"context_window": 1.5}`), `1.5 is not a whole number`},
		{"zero", entry(`{"context_window": 0}`), `0 is not a whole number from 1`},
		{"too many", entry(`{"max_output": 1000000001}`), `1000000001 is not a whole number from 1`},
		{"boolean", entry(`{"vision": "yes"}`), `"vision": the value must be true or false`},
		{"month", entry(`{"knowledge_cutoff": "2025"}`), `"2025" is not a month such as 2025-08`},
		{
			"provider", entry(`{"provider": "open", "prefix": "x", "context_window": 1}`),
			`unknown provider "open" (known: openai, anthropic, gemini)`,
		},
		{"no prefix", entry(`{"provider": "openai", "context_window": 1}`), `the prefix is missing`},
		{"no window", entry(`{"provider": "openai", "prefix": "x"}`), `context_window is missing`},
		{
			"output", entry(`{"provider": "openai", "prefix": "x", "context_window": 1, "max_output": 2}`),
			`max_output 2 is more than the context window of 1`,
		},
		{"two", entry(`{"provider": "openai", "prefix": "x", "context_window": 1},` + "\n" +
			`{"provider": "openai", "prefix": "x", "context_window": 2}`), `models: line 3: "models": ` +
			`entry 2: another entry is for openai "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := profile.ParseModels([]byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(m.List()) > 0 {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// FuzzParseModels checks that an error names a line, and that a valid table has usable entries.
func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"as_of": "2026-01-02", "models": [{"provider": "openai", "prefix": "x", ` +
		`"context_window": 7, "max_output": 1, "knowledge_cutoff": "2025-08", "reasoning": true, ` +
		`"vision": false}]}`))
	f.Add([]byte("{\"models\": [\n{\"provider\": \"gemini\", \"prefix\": \"gemini-2.5-pro\"}]}"))
	f.Add([]byte(`{"models": [{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := profile.ParseModels(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "models: line ") {
				t.Errorf("the error names no line: %v", err)
			}
			return
		}
		for _, e := range m.List() {
			if got, ok := m.Lookup(e.Provider, e.Prefix); !ok || got != e {
				t.Errorf("%q finds %v", e.Prefix, got)
			}
			if e.ContextWindow < 1 || e.MaxOutput < 0 || e.MaxOutput > e.ContextWindow {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestPrices looks up the prices of models and of their versions.
func TestPrices(t *testing.T) {
	table, err := profile.ParseModels([]byte(`{"models": [
		{"provider": "openai", "prefix": "own", "context_window": 1000, "price": {"input": 1, "output": 4,
			"cache_read": 0.1, "long_above": 500, "long": {"input": 2, "output": 6}}},
		{"provider": "openai", "prefix": "own-2", "context_window": 1000}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, known := range map[string]bool{
		"own": true, "own-2026-01-31": true, "models/own-latest": true, "own-preview-0131": true,
		"own@20260131": true, "own-09-2025": true, "own-05-06": true,
		"own-mini": false, "own-3b": false, "own-3": false, "own-2": false, "owner": false,
	} {
		p, err := profile.New("openai", name, table)
		if err != nil || (p.Price != nil) != known {
			t.Errorf("%s: %+v, %v", name, p.Price, err)
		}
		if known && p.WithModel("own-mini").Price != nil {
			t.Errorf("%s: with another model the price stays", name)
		}
	}
	p, err := profile.New("openai", "own", table)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		usage llm.Usage
		want  float64 // for a million times the usage
	}{
		{llm.Usage{Input: 100, CacheRead: 200, CacheWrite: 200, Output: 10, Reasoning: 5}, 360},
		{llm.Usage{Input: 101, CacheRead: 200, CacheWrite: 200, Output: 10}, 2*501 + 60},
	} {
		if got := p.Price.Of(tt.usage) * 1e6; math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%+v costs %f, want %f", tt.usage, got, tt.want)
		}
	}
	for dollars, want := range map[float64]int64{
		100e-6: 0, 99e-6: -1, 141e-6: 10, 1: 50, // the limit of the answer
	} {
		if got := p.Price.Affords(dollars, 100, 50); got != want {
			t.Errorf("%g dollars afford %d tokens, want %d", dollars, got, want)
		}
	}
	if got := p.Price.Most(400, 0); math.Abs(got-800e-6) > 1e-12 { // it may have more than 500
		t.Errorf("a request near the bound costs %g dollars at most", got)
	}
	hand := profile.Profile{Model: "m", Price: &profile.Price{Input: 1}}
	if hand.WithModel("m").Price == nil || hand.WithModel("n").Price != nil {
		t.Error("the price of a profile made by hand is for its model only")
	}
}
