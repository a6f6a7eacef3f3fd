package recording_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/recording"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// wire is a wire format with its client.
type wire struct {
	name    string
	profile profile.Profile
	client  func(*llmtest.Server) (llm.Client, error)
}

func wires() []wire {
	chat := func(api openai.API) func(*llmtest.Server) (llm.Client, error) {
		return func(s *llmtest.Server) (llm.Client, error) {
			return openai.New(openai.Config{
				BaseURL: s.URL(), APIKey: s.Key(), HTTPClient: s.Client(), API: api,
			})
		}
	}
	return []wire{
		{"responses", profile.OpenAI("gpt-5.2"), chat(openai.Responses)},
		{"chat", profile.OpenAI("gpt-5.2"), chat(openai.Chat)},
		{"messages", profile.Anthropic("claude-opus-5-5"), func(s *llmtest.Server) (llm.Client, error) {
			return anthropic.New(anthropic.Config{
				BaseURL: s.Root(), APIKey: s.Key(), HTTPClient: s.Client(),
			})
		}},
		{"generate", profile.Gemini("gemini-3-pro-preview"), func(s *llmtest.Server) (llm.Client,
			error,
		) {
			return gemini.New(gemini.Config{BaseURL: s.Root(), APIKey: s.Key(), HTTPClient: s.Client()})
		}},
	}
}

// looks counts the calls of the tool look, each of which has another duration and file.
type looks int

func (n *looks) tool() tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: "look", Description: "Looks at a thing.", Schema: json.RawMessage(
				`{"type":"object","properties":{"at":{"type":"string"}}}`),
		},
		Class: policy.ClassShell,
		Run: func(_ context.Context, c *tool.Call) (tool.Result, error) {
			*n++
			return tool.Result{Text: fmt.Sprintf("in /tmp/tmp.abcd%04d after %d.%dms", *n, *n, *n)}, nil
		},
	}
}

// config is that of a session with the model m.
func config(p profile.Profile, m llm.Client, n *looks) agent.Config {
	return agent.Config{
		Client: m, Profile: p, Tools: []tool.Tool{n.tool()},
		Retry: llm.RetryPolicy{MaxRetries: -1},
	}
}

// past is the clock of recordings, whose date no replay has.
type past struct{}

func (past) Now() time.Time { return time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC) }

func (past) Sleep(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }

// record runs inputs in a session that is stored in a directory, which it returns.
func record(t *testing.T, cfg agent.Config, inputs ...string) string {
	t.Helper()
	dir := t.TempDir()
	cfg.Store, cfg.Clock = session.OnDisk(dir), past{}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.NewSession(t.Context(), agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		if res, err := s.Submit(t.Context(), in); err != nil && res.RunID == "" {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Dir()
}

func open(t *testing.T, dir string) *recording.Session {
	t.Helper()
	s, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play plays a recording with recorded tools, and returns its events.
func play(
	t *testing.T, s *recording.Session, cfg agent.Config, o recording.PlayOptions,
) (string, error) {
	t.Helper()
	var out bytes.Buffer
	enc := event.NewEncoder(&out)
	cfg.Sinks = append(cfg.Sinks, enc.Encode)
	_, err := s.NewPlayer().Play(t.Context(), cfg, o)
	return out.String(), err
}

// live runs the first input of a recording with live tools.
func live(t *testing.T, s *recording.Session, cfg agent.Config) (*recording.Client, error) {
	t.Helper()
	client := s.NewClient("")
	cfg.Client = client
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // nothing is stored
	again, err := a.NewSession(t.Context(), agent.SessionOptions{Surroundings: s.Surroundings()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = again.Run(t.Context(), s.Input(0))
	return client, err
}

func conversation() llmtest.Brain {
	return llmtest.Sequence(
		llmtest.Reply{
			Text: "I look.", Reasoning: "Where to look?",
			Calls: []llmtest.Call{
				{Name: "look", Arguments: `{"at":"a"}`}, {Name: "look", Arguments: `{"at":"b"}`},
			},
		},
		llmtest.Use(llmtest.Call{Name: "look", Arguments: `{"at": 3}`}), llmtest.Text("Seen."),
		llmtest.Use(llmtest.Call{Name: "look", Arguments: `{"at":"c"}`}), llmtest.Text("Seen again."),
	)
}

// TestWires records a session of each provider and replays it, with live and with recorded tools.
func TestWires(t *testing.T) {
	for _, w := range wires() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, conversation())
			client, err := w.client(srv)
			if err != nil {
				t.Fatal(err)
			}
			var n looks
			s := open(t, record(t, config(w.profile, client, &n), "first", "second"))
			s.Runs[1].Ended.DurationMS = 123_456
			again := n
			if c, err := live(t, s, config(w.profile, nil, &again)); err != nil || c.Remaining() != 2 {
				t.Errorf("with live tools: %v, %d answers are left", err, c.Remaining())
			}
			if again != n+2 {
				t.Errorf("%d tools ran, want 2", again-n)
			}
			before := again
			first, err := play(t, s, config(w.profile, nil, &again), recording.PlayOptions{})
			if err != nil {
				t.Fatalf("with recorded tools: %v", err)
			}
			second, err := play(t, s, config(w.profile, nil, &again), recording.PlayOptions{})
			if err != nil || first != second {
				t.Errorf("a second replay: %v:\n%s\n%s", err, first, second)
			}
			if again != before {
				t.Error("a tool ran, although results are recorded")
			}
			for _, want := range []string{
				"/tmp/tmp.abcd0001 after 1.1ms", `"status":"completed"`, "Seen again.", s.ID,
				`"duration_ms":123456`,
				s.Runs[1].RunID,
			} {
				if !strings.Contains(first, want) {
					t.Errorf("the events lack %s:\n%s", want, first)
				}
			}
		})
	}
}

// scripted is a client that plays a script.
func scripted(t *testing.T, text string) llm.Client {
	t.Helper()
	s, err := replay.ParseScript([]byte(text), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return replay.NewScript(s)
}

const script = `
turns:
  - {text: one, calls: [{tool: look, args: {at: a}}]}
  - {calls: [{tool: look, args: {at: b}}]}
  - {text: done}
`

func simple(m llm.Client, n *looks) agent.Config {
	return config(profile.Profile{ID: "p", Model: "m", Instructions: "Be good."}, m, n)
}

// TestClient sends the recorded requests themselves.
func TestClient(t *testing.T) {
	s := open(t, record(t, simple(scripted(t, script), new(looks)), "go"))
	c := s.NewClient("")
	want := []llm.FinishReason{llm.FinishToolCalls, llm.FinishToolCalls, llm.FinishStop}
	for i, x := range s.Exchanges {
		resp, err := llm.Complete(t.Context(), c, x.Request())
		if err != nil || resp.Finish != want[i] || resp.Message.Text() != x.Answer.Text() {
			t.Errorf("the answer %d is %+v, %v", i+1, resp, err)
		}
	}
	if n := c.Remaining(); n > 0 {
		t.Errorf("%d answers are left", n)
	}
}

// TestMiss changes what requests have, and expects the difference.
func TestMiss(t *testing.T) {
	var n looks
	s := open(t, record(t, simple(scripted(t, script), &n), "look around"))
	tests := map[string]struct {
		change  func(*agent.Config)
		options recording.PlayOptions
		want    []string
	}{
		"system prompt": {
			func(c *agent.Config) { c.Profile.Instructions = "Be bad." },
			recording.PlayOptions{},
			[]string{"request 1 differs from the recorded one\n", "\n-Be good.", "\n+Be bad."},
		},
		"tool": {
			func(c *agent.Config) { c.Tools[0].Description = "Sees." },
			recording.PlayOptions{},
			[]string{"request 1 differs", "\n-Looks at a thing.", "\n+Sees."},
		},
		"task": {
			func(*agent.Config) {},
			recording.PlayOptions{Task: "look away"},
			[]string{"request 1 differs", "\n-look around", "\n+look away"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := simple(nil, &n)
			tt.change(&cfg)
			_, err := play(t, s, cfg, tt.options)
			var miss *recording.MissError
			if !errors.As(err, &miss) || miss.Number != 1 || miss.Nearest != 1 {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
		})
	}
	t.Run("live", func(t *testing.T) {
		cfg := simple(nil, &n)
		cfg.Profile.Instructions = "Be bad."
		c, err := live(t, s, cfg)
		if llm.KindOf(err) != llm.KindReplay || c.Err() == nil {
			t.Errorf("the error is %v, that of the client %v", err, c.Err())
		}
	})
}
