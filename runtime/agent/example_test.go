package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// work lets a model work on a task in the directory dir of this machine, and keeps the session in
// sessions.
func work(
	ctx context.Context, client llm.Client, dir, sessions, task string,
) (agent.Result, error) {
	// or local.Supervised, or the Open of a docker.Engine or an ssh.Host
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		return agent.Result{}, err
	}
	defer func() { _ = e.Close() }() // ends every process that is left
	a, err := agent.New(agent.Config{
		Client: client, Profile: profile.Anthropic("claude-sonnet-5-5"), Env: e,
		Store: session.OnDisk(sessions),
	})
	if err != nil {
		return agent.Result{}, err
	}
	defer func() { _ = a.Close() }()
	return a.Run(ctx, agent.Input{Text: task})
}

// Run a task. The client of a real model comes from a package of runtime/llm:
// anthropic.New(anthropic.Config{APIKey: key}).
func Example() {
	client := scripted(`
turns:
  - calls: [{tool: write_file, args: {file_path: hello.txt, content: "hello\n"}}]
  - text: I have written hello.txt.
`)
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	res, err := work(context.Background(), client, dir, filepath.Join(dir, "sessions"),
		"Greet me in a file.")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, len(res.Changes), "file:", res.Final)
	// Output: completed 1 file: I have written hello.txt.
}

// issueTool is a tool that looks up an issue.
func issueTool(find func(ctx context.Context, number int) (string, error)) tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: "read_issue", Description: "Shows an issue of this project, with its comments.",
			Schema: json.RawMessage(`{"type": "object",
				"properties": {"number": {"type": "integer", "minimum": 1}},
				"required": ["number"], "additionalProperties": false}`),
		},
		ReadOnly: true, // so that calls may run beside each other
		Run: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			var args struct{ Number int }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return tool.Result{}, err
			}
			text, err := find(ctx, args.Number)
			return tool.Result{Text: text}, err // the model reads the error
		},
	}
}

// Give the model a tool of your own. Its arguments are checked against the schema before Run sees
// them.
func Example_customTool() {
	issues := map[int]string{7: "Parse fails for MCMXC."}
	find := func(_ context.Context, number int) (string, error) {
		if text, ok := issues[number]; ok {
			return text, nil
		}
		return "", fmt.Errorf("there is no issue %d", number)
	}
	a, err := agent.New(agent.Config{
		Client: scripted(`
turns:
  - calls:
    - {tool: read_issue, args: {number: 7}}
    - {tool: read_issue, args: {number: 8}}
    - {tool: read_issue, args: {number: no}}
  - expect: {results: [{contains: MCMXC}, {contains: there is no issue 8}, {contains: number}]}
    text: Parse fails for MCMXC.
`),
		Profile: profile.OpenAI("gpt-5.2"), Tools: []tool.Tool{issueTool(find)},
		Store: session.InMemory(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = a.Close() }()
	res, err := a.Run(context.Background(), agent.Input{Text: "What is issue 7 about?"})
	fmt.Println(res.Final, err)
	for _, c := range res.ToolCalls {
		fmt.Println(c.Arguments, c.Success)
	}
	// Unordered output:
	// Parse fails for MCMXC. <nil>
	// {"number":7} true
	// {"number":8} false
	// {"number":"no"} false
}

// Talk to the model while it works: the message reaches it after the calls that run now.
func ExampleSession_Steer() {
	var s *agent.Session
	a, err := agent.New(agent.Config{
		Client: scripted(`
turns:
  - calls: [{tool: think, args: {}}]
  - expect: {user: {contains: "Use tabs."}}
    text: I use tabs.
`),
		Profile: profile.Gemini("gemini-2.5-pro"), Store: session.InMemory(),
		Tools: []tool.Tool{{
			ToolSpec: llm.ToolSpec{
				Name: "think", Description: "Thinks.", Schema: json.RawMessage(`{"type": "object"}`),
			},
			Run: func(context.Context, *tool.Call) (tool.Result, error) {
				return tool.Result{Text: "thought"}, nil
			},
		}},
		Sinks: []func(event.Event) error{func(e event.Event) error {
			if e.Kind() == event.KindToolCallStart { // here a person would type something
				return s.Steer("Use tabs.")
			}
			return nil
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = a.Close() }()
	if s, err = a.NewSession(context.Background(), agent.SessionOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	res, err := s.Submit(context.Background(), "Format the file.")
	fmt.Println(res.Final, err)
	for _, turn := range s.History() {
		fmt.Println(turn.Kind)
	}
	// Output:
	// I use tabs. <nil>
	// user
	// assistant
	// tool_results
	// steering
	// assistant
}

// serve answers POST requests, whose body is a task, with the events of the run, one a line. Each
// request has an environment of its own, from open. The run ends when the client goes away.
func serve(
	a *agent.Agent, open func(context.Context) (env.Environment, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		task, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		e, err := open(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = e.Close() }()
		s, err := a.NewSession(r.Context(), agent.SessionOptions{Env: e})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = s.Close() }()
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines, flush := event.NewEncoder(w), http.NewResponseController(w)
		in := agent.Input{SessionID: s.ID(), Text: string(task)}
		for ev, err := range a.RunStream(r.Context(), in, nil) {
			if err != nil {
				return // the last event, PROCESSING_END, has reported it
			}
			if err := errors.Join(lines.Encode(ev), flush.Flush()); err != nil {
				return // which aborts the run
			}
		}
	}
}

// Embed agents in a server: an agent is safe for concurrent use, and each request has a session and
// an environment of its own.
func Example_server() {
	parent, err := os.MkdirTemp("", "example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(parent) }()
	open := func(context.Context) (env.Environment, error) { // or the Open of a docker.Engine
		dir, err := os.MkdirTemp(parent, "request-*")
		if err != nil {
			return nil, err
		}
		return local.New(local.Config{Dir: dir})
	}
	a, err := agent.New(agent.Config{
		Client: scripted(`turns: [{text: All is well.}]`), Profile: profile.OpenAI("gpt-5.2"),
		Store: session.InMemory(), Limits: agent.Limits{MaxToolRounds: 20, MaxTokens: 200_000},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = a.Close() }()
	server := httptest.NewServer(serve(a, open))
	defer server.Close()
	resp, err := http.Post(server.URL, "text/plain", strings.NewReader("How are you?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	for dec := json.NewDecoder(resp.Body); ; {
		var e struct{ Type string }
		if err := dec.Decode(&e); err != nil {
			break
		}
		if e.Type == "user_input" || e.Type == "assistant_text_end" || e.Type == "processing_end" {
			fmt.Println(e.Type)
		}
	}
	// Output:
	// user_input
	// assistant_text_end
	// processing_end
}

// scripted plays a model from a script.
func scripted(yaml string) llm.Client {
	script, err := replay.ParseScript([]byte(yaml), "example")
	if err != nil {
		panic(err)
	}
	return replay.NewScript(script)
}

// Test an agent without a model: a script has the answers of the model, and conditions for the
// requests. A condition that does not hold ends the run with an error that has the actual text.
func Example_scriptedModel() {
	client := scripted(`
turns:
  - expect: {user: {contains: count the lines}}
    calls: [{tool: shell, args: {command: "wc -l < list.txt"}}]
  - expect: {result: {contains: "3"}}
    text: There are 3 lines.
`)
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = e.Close() }()
	if _, err := e.WriteFile(context.Background(), "list.txt", strings.NewReader("a\nb\nc\n"),
		env.WriteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	a, err := agent.New(agent.Config{
		Client: client, Profile: profile.OpenAI("gpt-5.2"), Env: e, Store: session.InMemory(),
		Verify: agent.Verify{Command: "test -f list.txt"}, // checks the model's claim
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = a.Close() }()
	res, err := a.Run(context.Background(), agent.Input{Text: "Please count the lines of list.txt."})
	fmt.Println(res.Status, res.Final, err)
	// Output: completed There are 3 lines. <nil>
}
