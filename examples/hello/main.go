// Command hello has a model write a file in the current directory. Here a script plays the model;
// the client of a real one is anthropic.New(anthropic.Config{APIKey: key}).
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

const script = `
turns:
  - calls: [{tool: write_file, args: {file_path: hello.txt, content: "hello\n"}}]
  - text: I have written hello.txt.
`

func main() {
	if err := run(context.Background(), "Greet me in a file."); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, task string) error {
	model, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		return err
	}
	e, err := local.New(local.Config{}) // or the Open of a docker.Engine or an ssh.Host
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // it ends every process that is left
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.Anthropic("claude-sonnet-5-5"), Env: e,
		Store: session.InMemory(),
	})
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // the run has ended
	result, err := a.Run(ctx, agent.Input{Text: task})
	fmt.Println(result.Status, len(result.Changes), "file:", result.Final)
	return err
}
