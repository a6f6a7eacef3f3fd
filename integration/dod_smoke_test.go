package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
)

// The tasks of the smoke test. The program is a shell script, for every environment has a shell.
const (
	smokeCreate = "Create a file hello.sh, a shell script that prints Hello World."
	smokeEdit   = "Read hello.sh and add a second command that prints Goodbye."
	smokeRun    = "Run hello.sh with sh and show what it prints."
	smokeRead   = "Read big.txt with read_file, once, and say in a sentence what is in it."
	smokeApp    = "Look into the working directory first. Then create app.py, a Flask web " +
		"application with the routes / and /users."
	smokeSteer = "Actually, make it only one route for now, /health, and neither of the others."
	smokeSpawn = "Spawn a sub-agent that writes test_hello.sh, a shell script that tests " +
		"hello.sh. Wait for it, and review what it wrote."
	smokeTimeout = "Run the command sleep 30 once with the shell tool, without setting timeout_ms. " +
		"Whatever happens, do not run it again, and say what happened."
)

// smokeProofs prove 9.13.
var smokeProofs = map[string]func(*testing.T){
	"9.13": withEach(func(t *testing.T, p provider) {
		s := p.session(t, smokeModel(p), p.smokeConfig)
		smoke(t, s)
		wantContains(t, "the result for big.txt", s.afterInput(smokeRead, 1),
			"characters are left out", "xxx")
		if n := strings.Count(s.afterInput(smokeRead, 1), "x"); n < 49_000 || n > 50_000 {
			t.Errorf("the model is shown %d characters of big.txt", n)
		}
		wantContains(t, "the result for hello.sh", s.afterInput(smokeRun, 1),
			"Hello World\nGoodbye\n")
		s.wantFile("app.py", "@app.route('/health')\n")
		wantContains(t, "the sub-agent's result", s.afterInput(smokeSpawn, 2), "success: true",
			"I wrote test_hello.sh")
		wantContains(t, "the result of the test", s.afterInput(smokeSpawn, 3), "passed\n")
		wantContains(t, "the result of sleep", s.afterInput(smokeTimeout, 1), "more than 10000 ms")
	}),
}

// smokeConfig gives commands ten seconds, which is the default of two of the profiles.
func (p provider) smokeConfig(c *agent.Config) {
	if p.name == "anthropic" {
		c.Settings.CommandTimeout = 10 * time.Second
	}
}

// smoke submits the seven tasks to a session and checks their results.
func smoke(t *testing.T, s *session) {
	t.Helper()
	s.submit(smokeCreate)
	wantContains(t, "hello.sh", s.read("hello.sh"), "Hello")

	s.submit(smokeEdit)
	wantContains(t, "hello.sh", s.read("hello.sh"), "Hello", "Goodbye")

	res := s.submit(smokeRun)
	if !slices.ContainsFunc(res.ToolCalls, func(c agent.ToolCallRecord) bool {
		return c.Name == "shell" && c.Success && strings.Contains(c.Result, "Hello") &&
			strings.Contains(c.Result, "Goodbye")
	}) {
		t.Errorf("hello.sh was not run: %+v", res.ToolCalls)
	}

	s.write("big.txt", strings.Repeat("x", 100_000))
	before := len(data[event.ToolCallEnd](s))
	s.submit(smokeRead)
	if !slices.ContainsFunc(data[event.ToolCallEnd](s)[before:], func(end event.ToolCallEnd) bool {
		return end.Name == "read_file" && end.Truncated && strings.Count(string(end.Output.Inline),
			"x") == 100_000 &&
			len(end.Result) < 60_000 && strings.Contains(end.Result, "are left out")
	}) {
		t.Error("no event has all of big.txt and a shorter result")
	}

	stop := s.steerAtCall(smokeSteer)
	s.submit(smokeApp)
	stop()
	if n := len(data[event.SteeringInjected](s)); n != 1 {
		t.Errorf("%d messages were injected", n)
	}
	app := s.read("app.py")
	wantContains(t, "app.py", app, "/health")
	if strings.Contains(app, "/users") {
		t.Errorf("the model did not change its mind: %s", app)
	}

	res = s.submit(smokeSpawn)
	var byAgents int
	s.mu.Lock()
	for _, e := range s.events {
		if e.AgentID != "" && e.Kind() == event.KindToolCallEnd {
			byAgents++
		}
	}
	s.mu.Unlock()
	if byAgents == 0 || len(res.Agents) == 0 || res.Agents[0].Status != "completed" {
		t.Errorf("%d calls of sub-agents, which ended as %+v", byAgents, res.Agents)
	}
	if !slices.ContainsFunc(data[event.ToolCallStart](s),
		func(c event.ToolCallStart) bool { return c.Name == "spawn_agent" }) {
		t.Error("no event is of spawn_agent")
	}
	wantContains(t, "test_hello.sh", s.read("test_hello.sh"), "hello.sh")

	res = s.submit(smokeTimeout)
	if !slices.ContainsFunc(res.Failures, func(f event.Failure) bool {
		return f.Source == event.FailureTimeout && strings.Contains(f.Message, "more than 10000 ms")
	}) {
		t.Errorf("sleep was not stopped: %+v", res.Failures)
	}
	if res.Final == "" || s.State() != agent.SessionIdle {
		t.Errorf("after the timeout the answer is %q, and the session is %s", res.Final, s.State())
	}
}

// steerAtCall steers when the next call of a tool begins, unless stop is called before.
func (s *session) steerAtCall(text string) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atCall = func() { _ = s.Steer(text) } // the proof finds a message that is not delivered
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.atCall = nil
	}
}

// afterInput returns the results that the model was shown n rounds of calls after an input.
func (s *session) afterInput(input string, n int) string {
	s.t.Helper()
	for _, r := range s.server.Requests() {
		if from, rounds := lastInput(r); from == input && rounds == n {
			return strings.Join(shown(r), "\n")
		}
	}
	s.t.Errorf("the model got no request %d rounds after %q", n, input)
	return ""
}

// lastInput returns the last of the session's inputs and the number of answers since.
func lastInput(r *llmtest.Request) (input string, answers int) {
	for _, m := range slices.Backward(r.Messages) {
		switch {
		case m.Role == llm.RoleAssistant:
			answers++
		case m.Role == llm.RoleUser && m.Text() != smokeSteer:
			return m.Text(), answers
		}
	}
	return "", answers
}

// smokeModel is a model that does the tasks.
func smokeModel(p provider) llmtest.Brain {
	const write = "Write test_hello.sh, which runs hello.sh and looks for Goodbye."
	test := "sh hello.sh | grep -q Goodbye && echo passed\n"
	tasks := map[string][]llmtest.Reply{
		smokeCreate: {llmtest.Use(p.create("hello.sh", "echo Hello World\n"))},
		smokeEdit: {llmtest.Use(readFile("hello.sh")), llmtest.Use(p.edit("hello.sh",
			"echo Hello World", "echo Hello World; echo Goodbye"))},
		smokeRun:  {llmtest.Use(shell("sh hello.sh"))},
		smokeRead: {llmtest.Use(readFile("big.txt"))},
		smokeSpawn: {
			llmtest.Use(spawn(write)), llmtest.Use(waitFor("agent_1")),
			llmtest.Use(readFile("test_hello.sh"), shell("sh test_hello.sh")),
		},
		write:        {llmtest.Use(p.create("test_hello.sh", test))},
		smokeTimeout: {llmtest.Use(use("shell", map[string]any{"command": "sleep 30"}))},
	}
	return func(r *llmtest.Request) llmtest.Reply {
		input, n := lastInput(r)
		if input == smokeApp {
			last := r.Messages[len(r.Messages)-1].Text()
			switch {
			case n == 0:
				return llmtest.Use(use("list_dir", map[string]any{"path": "."}))
			case n == 1 && last == smokeSteer:
				return llmtest.Use(p.create("app.py", "@app.route('/health')\n"))
			case n == 1:
				return llmtest.Use(p.create("app.py", "@app.route('/')\n@app.route('/users')\n"))
			}
			return llmtest.Text("It is there.")
		}
		replies, ok := tasks[input]
		switch {
		case !ok:
			return llmtest.Reply{Violation: fmt.Sprintf("unknown task %q", input)}
		case n < len(replies):
			return replies[n]
		case input == write:
			return llmtest.Text("I wrote test_hello.sh.")
		}
		return llmtest.Text("It is done.")
	}
}

// TestSmokeReal does the smoke test with the real services, each if its key is given. It costs
// money.
func TestSmokeReal(t *testing.T) {
	t.Parallel()
	for _, p := range families() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := p.sessionWith(t, t.TempDir(), realClient(t, p.name), p.smokeConfig, func(c *agent.Config) {
				c.Limits.MaxToolRounds, c.Limits.MaxDuration = 30, 5*time.Minute
			})
			smoke(t, s)
		})
	}
}

// realClient connects to a real service. Without a key the test is skipped, or fails if the
// variable SANDBOXAGENT_REQUIRE holds real-models.
func realClient(t *testing.T, name string) llm.Client {
	t.Helper()
	vars := map[string][]string{
		"openai": {"OPENAI_API_KEY"}, "anthropic": {"ANTHROPIC_API_KEY"}, "gemini": {
			"GEMINI_API_KEY", "GOOGLE_API_KEY",
		},
	}[name]
	key := ""
	for _, v := range vars {
		if key == "" {
			key = os.Getenv(v)
		}
	}
	if key == "" {
		reason := fmt.Sprintf("the smoke test was not run with the real service of %s: %s is not set",
			name, strings.Join(vars, " or "))
		if slices.Contains(strings.Split(os.Getenv(daemons.RequireVar), ","), "real-models") {
			t.Fatalf("%s demands real-models: %s", daemons.RequireVar, reason)
		}
		t.Skip(reason)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: transport}
	var client llm.Client
	var err error
	switch name {
	case "openai":
		client, err = openai.New(openai.Config{APIKey: key, HTTPClient: web})
	case "anthropic":
		client, err = anthropic.New(anthropic.Config{APIKey: key, HTTPClient: web})
	default:
		client, err = gemini.New(gemini.Config{APIKey: key, HTTPClient: web})
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}
