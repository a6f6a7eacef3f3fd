package integration_test

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

// canary is an environment variable of this process that commands must not see.
const canary = "SANDBOXAGENT_CANARY_API_KEY"

// parallel is the least number of tests that run beside each other.
const parallel = 4

func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < parallel {
		_ = flag.Set("test.parallel", strconv.Itoa(parallel)) // most tests wait most of the time
	}
	if err := os.Setenv(canary, "canary-value"); err != nil {
		panic(err)
	}
	// It ends at its next tick, within 5 seconds.
	heartbeat := goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start")
	goleak.VerifyTestMain(m, heartbeat, goleak.Cleanup(func(code int) {
		removeBinary()
		removeKubeUsers()
		os.Exit(code)
	}))
}

// provider is a family of models: its profile, and a client of the family's interface.
type provider struct {
	name    string
	profile profile.Profile
	client  func(srv *llmtest.Server, idle time.Duration) (llm.Client, error)
}

// families lists the providers that have a profile. The first is the default of sessions.
func families() []provider {
	w := wires()
	return []provider{
		{"openai", profile.OpenAI("gpt-5.2"), w[0].client},
		{"anthropic", profile.Anthropic("claude-sonnet-4-5"), w[2].client},
		{"gemini", profile.Gemini("gemini-2.5-pro"), w[3].client},
	}
}

// withEach repeats a proof with each provider.
func withEach(prove func(*testing.T, provider)) func(*testing.T) {
	return func(t *testing.T) {
		all := families()
		if testing.Short() && backendOf(t) != "local" {
			all = all[:1]
		}
		for _, p := range all {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				prove(t, p)
			})
		}
	}
}

// withFirst makes a proof with the first provider from a proof with any.
func withFirst(prove func(*testing.T, provider)) func(*testing.T) {
	return func(t *testing.T) { prove(t, families()[0]) }
}

// session is a session in the environment of its test, with a strict model server over real HTTP.
type session struct {
	*agent.Session
	t      *testing.T
	dir    string
	env    env.Environment
	server *llmtest.Server
	agent  *agent.Agent

	mu     sync.Mutex
	events []event.Event
	// atCall is called once, when a tool call starts.
	atCall func()
}

// supervised opens this machine through a helper.
func supervised(
	ctx context.Context, t testing.TB, dir string,
) (*local.SupervisedEnvironment, error) {
	t.Helper()
	return local.Supervised(ctx, local.Config{Dir: dir}, remote.Helper{
		Binary: command(t),
		Args:   []string{"__sandboxd"},
	})
}

// newSession starts one with OpenAI's profile. The brain answers; change alters the agent's
// configuration before it is made.
func newSession(t *testing.T, brain llmtest.Brain, change ...func(*agent.Config)) *session {
	t.Helper()
	return newSessionIn(t, t.TempDir(), brain, change...)
}

func newSessionIn(
	t *testing.T, dir string, brain llmtest.Brain, change ...func(*agent.Config),
) *session {
	t.Helper()
	return families()[0].sessionIn(t, dir, brain, change...)
}

// session is newSession with this provider.
func (p provider) session(
	t *testing.T, brain llmtest.Brain, change ...func(*agent.Config),
) *session {
	t.Helper()
	return p.sessionIn(t, t.TempDir(), brain, change...)
}

func (p provider) sessionIn(
	t *testing.T, dir string, brain llmtest.Brain, change ...func(*agent.Config),
) *session {
	t.Helper()
	srv := llmtest.NewServer(t, brain)
	client, err := p.client(srv, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := p.sessionWith(t, dir, client, append([]func(*agent.Config){func(c *agent.Config) {
		c.Retry = llm.RetryPolicy{Clock: instant{}}
	}}, change...)...)
	s.server = srv
	return s
}

// sessionWith starts a session with this provider's profile and client.
func (p provider) sessionWith(
	t *testing.T, dir string, client llm.Client, change ...func(*agent.Config),
) *session {
	t.Helper()
	s := &session{t: t, dir: dir, env: openEnvironment(t, dir)}
	cfg := agent.Config{
		Client: client, Profile: p.profile, Env: s.env, Store: journal.OnDisk(filepath.Join(t.TempDir(),
			"sessions")),
		Sinks: []func(event.Event) error{s.sink}, Log: slog.New(slog.DiscardHandler),
	}
	for _, fn := range change {
		fn(&cfg)
	}
	var err error
	if s.agent, err = agent.New(cfg); err != nil {
		t.Fatal(err)
	}
	if s.Session, err = s.agent.NewSession(t.Context(), agent.SessionOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *session) sink(e event.Event) error {
	s.mu.Lock()
	s.events = append(s.events, e)
	var do func()
	if e.Kind() == event.KindToolCallStart {
		do, s.atCall = s.atCall, nil
	}
	s.mu.Unlock()
	if do != nil {
		do()
	}
	return nil
}

// submit submits an input, whose run must complete.
func (s *session) submit(text string) agent.RunResult {
	s.t.Helper()
	res, err := s.Submit(s.t.Context(), text)
	if err != nil || res.Status != agent.StatusCompleted {
		s.t.Fatalf("%q ended with %s, %v", text, res.Status, err)
	}
	return res
}

// request returns the n-th request to the model, from 0.
func (s *session) request(n int) *llmtest.Request {
	s.t.Helper()
	all := s.server.Requests()
	if n >= len(all) {
		s.t.Fatalf("the model got %d requests, not %d", len(all), n+1)
	}
	return all[n]
}

// shown returns the tool results at the end of the n-th request.
func (s *session) shown(n int) []string {
	s.t.Helper()
	return shown(s.request(n))
}

// shown returns the tool results at the end of a request; user messages may follow them.
func shown(r *llmtest.Request) []string {
	var out []string
	for _, res := range results(r) {
		out = append(out, res.Text())
	}
	return out
}

func results(r *llmtest.Request) []llm.ToolResult {
	var out []llm.ToolResult
	messages := r.Messages
	for len(messages) > 0 && messages[len(messages)-1].Role == llm.RoleUser {
		messages = messages[:len(messages)-1]
	}
	for i := len(messages) - 1; i >= 0 && messages[i].Role == llm.RoleTool; i-- {
		var list []llm.ToolResult
		for _, p := range messages[i].Parts {
			list = append(list, *p.ToolResult)
		}
		out = append(list, out...)
	}
	return out
}

// kinds lists the kinds of the events so far.
func (s *session) kinds() []event.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []event.Kind
	for _, e := range s.events {
		out = append(out, e.Kind())
	}
	return out
}

// data returns the data of all events of one type.
func data[T event.Data](s *session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for _, e := range s.events {
		if d, ok := e.Data.(T); ok {
			out = append(out, d)
		}
	}
	return out
}

func (s *session) write(name, content string) {
	s.t.Helper()
	if _, err := s.env.WriteFile(s.t.Context(), name, strings.NewReader(content),
		env.WriteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) read(name string) string {
	s.t.Helper()
	b, err := env.ReadFile(s.t.Context(), s.env, name, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// use makes a tool call from a map of arguments.
func use(name string, args map[string]any) llmtest.Call {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return llmtest.Call{Name: name, Arguments: string(b)}
}

// shell runs a command, which has all the time that a busy machine takes.
func shell(command string) llmtest.Call {
	return use("shell", map[string]any{"command": command, "timeout_ms": 600_000})
}

// endless answers every request with the same call.
func endless(c llmtest.Call) llmtest.Brain {
	return func(*llmtest.Request) llmtest.Reply { return llmtest.Use(c) }
}

// textBrain answers every request with text.
func textBrain(text string) llmtest.Brain {
	return func(*llmtest.Request) llmtest.Reply { return llmtest.Text(text) }
}

func wantContains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q:\n%.2000s", what, p, text)
		}
	}
}

// instant is a clock on which sleeping takes no time.
type instant struct{}

func (instant) Now() time.Time { return time.Now() }

func (instant) Sleep(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }

// writeTree writes files below dir.
func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
