package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
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
) (agent.RunResult, error) {
	// or local.Supervised, or the Open of a docker.Engine or an ssh.Host
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		return agent.RunResult{}, err
	}
	defer func() { _ = e.Close() }() // ends every process that is left
	a, err := agent.New(agent.Config{
		Client: client, Profile: profile.Anthropic("claude-sonnet-5-5"), Env: e,
		Store: session.OnDisk(sessions),
	})
	if err != nil {
		return agent.RunResult{}, err
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
		Tools: []tool.Tool{think()},
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

// think is a tool that does nothing.
func think() tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: "think", Description: "Thinks.", Schema: json.RawMessage(`{"type": "object"}`),
		},
		Run: func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Text: "thought"}, nil
		},
	}
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
