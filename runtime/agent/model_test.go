package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// shownImages counts the images of a request, and the texts that replace images.
func shownImages(req llm.Request) (images, texts int) {
	var count func(parts []llm.Part)
	count = func(parts []llm.Part) {
		for _, p := range parts {
			switch {
			case p.Kind == llm.PartImage:
				images++
			case p.ToolResult != nil:
				count(p.ToolResult.Parts)
			case strings.Contains(p.Text, "an image, image/png, 3 bytes"):
				texts++
			}
		}
	}
	for _, m := range req.Messages {
		count(m.Parts)
	}
	return images, texts
}

// TestImagesOnlyForVisionModels sends a text for each image to a model without vision. The history
// keeps the images for a model with vision.
func TestImagesOnlyForVisionModels(t *testing.T) {
	picture := newTool("picture", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: "here", Images: []llm.Image{{MIME: "image/png", Data: []byte("png")}}},
			nil
	})
	table, err := profile.ParseModels([]byte(`{"models": [
		{"provider": "openai", "prefix": "blind", "context_window": 100000, "vision": false},
		{"provider": "openai", "prefix": "seeing", "context_window": 200000, "vision": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := &model{answers: []answer{
		calls(call("a", "picture", nil), call("b", "picture", nil)), calls(call("c", "picture", nil)),
		{text: "ok"},
		{text: "I see"},
		{text: "no more"},
	}}
	cfg := config(m, picture)
	if cfg.Profile, err = profile.New("openai", "blind", table); err != nil {
		t.Fatal(err)
	}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	for i, name := range []string{"blind", "seeing", "blind"} {
		s.Update(func(settings *agent.Settings) { settings.Model = name })
		if res, err := s.Submit(t.Context(), "look"); err != nil || res.Status != agent.StatusCompleted {
			t.Fatalf("input %d: %s, %v", i, res.Status, err)
		}
	}
	for i, want := range [][2]int{{0, 0}, {0, 2}, {0, 3}, {3, 0}, {0, 3}} {
		if images, texts := shownImages(m.request(t, i)); images != want[0] || texts != want[1] {
			t.Errorf("request %d has %d images and %d texts, want %v", i, images, texts, want)
		}
	}
	warned := 0
	for _, e := range ev.all {
		if w, ok := e.Data.(event.Warning); ok && w.Code == "images" {
			warned++
			if !strings.Contains(w.Message, "blind") {
				t.Errorf("the warning does not name the model: %s", w.Message)
			}
		}
	}
	if warned != 1 {
		t.Errorf("%d warnings", warned)
	}
}

// TestModelDataFollowsTheModel changes the model during a session.
func TestModelDataFollowsTheModel(t *testing.T) {
	table, err := profile.ParseModels([]byte(`{"models": [
		{"provider": "anthropic", "prefix": "large", "context_window": 100000, "max_output": 20000,
			"reasoning": true},
		{"provider": "anthropic", "prefix": "small", "context_window": 2000, "max_output": 500,
			"reasoning": false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := &model{answers: []answer{
		{text: "one", usage: llm.Usage{Input: 1700}}, {text: "two", usage: llm.Usage{Input: 1700}},
	}}
	cfg := config(m)
	if cfg.Profile, err = profile.New("anthropic", "large", table); err != nil {
		t.Fatal(err)
	}
	cfg.Profile.Tools = nil
	cfg.Settings.ReasoningEffort = "high"
	ev := watch(&cfg)
	s := newSession(t, cfg)
	for _, name := range []string{"large", "small"} {
		s.Update(func(settings *agent.Settings) { settings.Model = name })
		submit(t, s, "go")
	}
	if r := m.request(t, 0); r.Model != "large" || r.MaxOutputTokens != 20_000 ||
		r.ReasoningEffort != "high" {
		t.Errorf("first request: %s, %d, %q", r.Model, r.MaxOutputTokens, r.ReasoningEffort)
	}
	if r := m.request(t, 1); r.Model != "small" || r.MaxOutputTokens != 500 ||
		r.ReasoningEffort != "" {
		t.Errorf("second request: %s, %d, %q", r.Model, r.MaxOutputTokens, r.ReasoningEffort)
	}
	var codes []string
	for _, e := range ev.all {
		if w, ok := e.Data.(event.Warning); ok {
			codes = append(codes, w.Code)
		}
	}
	// 1,700 tokens exceed the share of 2,000, not that of 100,000.
	if strings.Join(codes, " ") != "reasoning_effort context_usage" {
		t.Errorf("warnings: %v", codes)
	}
}
