package llmtest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

// speaker is a client of one of the wire formats, with its model and options.
type speaker struct {
	client func(*llmtest.Server) (llm.Client, error)
	model  string
	// options are options of the provider, and cache those of its cache; may be nil.
	options, cache map[string]any
}

func speakers() map[string]speaker {
	openaiClient := func(api openai.API) func(s *llmtest.Server) (llm.Client, error) {
		return func(s *llmtest.Server) (llm.Client, error) {
			return openai.New(openai.Config{
				BaseURL: s.URL(), APIKey: s.Key(), HTTPClient: s.Client(), API: api,
			})
		}
	}
	return map[string]speaker{
		llmtest.Responses: {
			openaiClient(openai.Responses), "gpt-5.2",
			map[string]any{"reasoning": map[string]any{"summary": "auto"}, "service_tier": "flex"},
			map[string]any{"prompt_cache_key": "own"},
		},
		llmtest.Chat: {openaiClient(openai.Chat), "some", map[string]any{"temperature": 0.5}, nil},
		llmtest.Messages: {
			func(s *llmtest.Server) (llm.Client, error) {
				return anthropic.New(anthropic.Config{
					BaseURL: s.Root(), APIKey: s.Key(), HTTPClient: s.Client(),
				})
			}, "claude-opus-5-5",
			map[string]any{
				"betas": []string{"some-beta"}, "metadata": map[string]any{"user_id": "u"},
				"thinking": map[string]any{"type": "disabled"},
			},
			map[string]any{"cache_control": map[string]any{"type": "ephemeral", "ttl": "1h"}},
		},
		llmtest.Generate: {
			func(s *llmtest.Server) (llm.Client, error) {
				return gemini.New(gemini.Config{BaseURL: s.Root(), APIKey: s.Key(), HTTPClient: s.Client()})
			}, "gemini-3-pro",
			map[string]any{
				"generationConfig": map[string]any{"seed": 7},
				"tools":            []any{map[string]any{"googleSearch": map[string]any{}}},
			},
			map[string]any{"cachedContent": "cachedContents/c"},
		},
	}
}

// goldenCase is a conversation.
type goldenCase struct {
	change func(*llm.Request, speaker)
	// reply, if it has calls, is answered to the first request. The results are sent with the second
	// one.
	reply   llmtest.Reply
	results []llm.ToolResult
}

func goldenCases() map[string]goldenCase {
	look := llmtest.Call{Name: "read_file", Arguments: `{"file_path":"a <b> & c",` +
		`"n":12345678901234567890}`}
	image := llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
	text := func(s string) []llm.Part { return []llm.Part{llm.Text(s)} }
	tools := func(r *llm.Request, _ speaker) {
		r.System = "Be brief."
		r.Tools = []llm.ToolSpec{
			{
				Name: "read_file", Description: "Reads a file.",
				Schema: json.RawMessage(`{"type":"object","properties":{"file_path":{"type":"string"},` +
					`"n":{"type":"integer"}},"required":["file_path"]}`),
			},
			{Name: "list_dir", Description: "Lists a folder.", Schema: json.RawMessage(`{"type":"object"}`)},
		}
	}
	with := func(more func(*llm.Request, speaker)) func(*llm.Request, speaker) {
		return func(r *llm.Request, s speaker) { tools(r, s); more(r, s) }
	}
	return map[string]goldenCase{
		"plain":            {},
		"system_and_tools": {change: tools},
		"one_call_only": {change: with(func(r *llm.Request, _ speaker) {
			r.ParallelToolCalls = false
		})},
		"limit":  {change: func(r *llm.Request, _ speaker) { r.MaxOutputTokens = 1000 }},
		"effort": {change: func(r *llm.Request, _ speaker) { r.ReasoningEffort = "low" }},
		"image": {change: func(r *llm.Request, _ speaker) {
			r.Messages = []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{llm.Text("Look."), image}}}
		}},
		"options": {change: with(func(r *llm.Request, s speaker) { r.Options = s.options })},
		"conversation": {change: with(func(r *llm.Request, _ speaker) {
			r.SessionID = "session-1"
			for range 2 {
				r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Parts: text("Yes.")},
					llm.UserText("More."))
			}
		})},
		"cache": {change: with(func(r *llm.Request, s speaker) {
			r.Options, r.SessionID = s.cache, "session-1"
		})},
		"thinking_and_result": {
			change: with(func(r *llm.Request, _ speaker) { r.ReasoningEffort = "high" }),
			reply: llmtest.Reply{
				Reasoning: "I should look.", Text: "I look.", Calls: []llmtest.Call{look},
			},
			results: []llm.ToolResult{{Parts: text("the <content>")}},
		},
		"parallel_calls": {
			change: tools, reply: llmtest.Reply{Reasoning: "Both.", Calls: []llmtest.Call{look, {
				Name: "list_dir", Arguments: "",
			}}},
			results: []llm.ToolResult{{Parts: text("first")}, {Parts: text("second")}},
		},
		"error_result": {
			change: tools, reply: llmtest.Use(look), results: []llm.ToolResult{{
				Parts: text("no such file"), IsError: true,
			}},
		},
		"image_result": {
			change: tools, reply: llmtest.Use(look),
			results: []llm.ToolResult{{Parts: []llm.Part{llm.Text("a picture"), image}}},
		},
	}
}

// The bodies of requests that the strict server takes are compared with files, so that a change of
// review shows the requests.
func TestGoldenRequests(t *testing.T) {
	for wire, s := range speakers() {
		for name, tt := range goldenCases() {
			t.Run(wire+"/"+name, func(t *testing.T) {
				last := converse(t, s, tt)
				var pretty bytes.Buffer
				for _, h := range []string{"Anthropic-Beta"} {
					if v := last.Header.Get(h); v != "" {
						pretty.WriteString("// " + h + ": " + v + "\n")
					}
				}
				pretty.WriteString("// " + last.Path + "\n")
				if err := json.Indent(&pretty, last.Body, "", "  "); err != nil {
					t.Fatal(err)
				}
				pretty.WriteByte('\n')
				golden := filepath.Join("testdata", wire, name+".golden")
				if *update {
					if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"),
					pretty.String()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", golden, diff)
				}
			})
		}
	}
}

// converse runs the conversation of a case, and returns the last request.
func converse(t *testing.T, s speaker, tt goldenCase) *llmtest.Request {
	t.Helper()
	replies := []llmtest.Reply{llmtest.Text("done")}
	if len(tt.reply.Calls) > 0 {
		replies = slices.Insert(replies, 0, tt.reply)
	}
	srv := llmtest.NewServer(t, llmtest.Sequence(replies...))
	client, err := s.client(srv)
	if err != nil {
		t.Fatal(err)
	}
	req := llm.Request{
		Model: s.model, Messages: []llm.Message{llm.UserText("Go.")}, ParallelToolCalls: true,
	}
	if tt.change != nil {
		tt.change(&req, s)
	}
	before := maps.Clone(req.Options)
	for range replies {
		resp, err := llm.Complete(t.Context(), client, req)
		if err != nil {
			t.Fatal(err)
		}
		answer := llm.Message{Role: llm.RoleTool}
		for i, call := range resp.Message.ToolCalls() {
			r := tt.results[i]
			r.CallID, r.Name = call.ID, call.Name
			answer.Parts = append(answer.Parts, llm.Part{Kind: llm.PartToolResult, ToolResult: &r})
		}
		req.Messages = append(req.Messages, resp.Message, answer)
	}
	if diff := cmp.Diff(before, req.Options); diff != "" {
		t.Errorf("the options were changed:\n%s", diff)
	}
	all := srv.Requests()
	if len(all) != len(replies) {
		t.Fatalf("%d requests", len(all))
	}
	return all[len(all)-1]
}

// Each file belongs to a case.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	cases := goldenCases()
	for _, name := range files {
		if _, ok := cases[strings.TrimSuffix(filepath.Base(name), ".golden")]; !ok {
			t.Errorf("%s belongs to no case", name)
		}
	}
	if want := len(cases) * len(speakers()); len(files) != want {
		t.Errorf("%d files, want %d", len(files), want)
	}
}
