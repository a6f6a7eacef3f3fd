// Command own-decorator counts what an agent does in its environment. Here a script plays the
// model.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

const script = `
turns:
  - calls: [{tool: write_file, args: {file_path: list.txt, content: "a\nb\n"}}]
  - calls: [{tool: shell, args: {command: "wc -l list.txt"}}]
  - text: There are 2 lines.
`

func main() {
	if err := run(context.Background(), "Count the lines."); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, task string) error {
	model, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		return err
	}
	inner, err := local.New(local.Config{})
	if err != nil {
		return err
	}
	m := &metrics{inner: inner}
	defer m.Close() //nolint:errcheck // it ends every process that is left
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.Anthropic("claude-sonnet-5-5"), Env: m,
	})
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // the run has ended
	result, err := a.Run(ctx, agent.Input{Text: task})
	fmt.Println(result.Final)
	fmt.Printf("commands: %t, reads: %t, writes: %d\n", m.commands.Load() > 0, m.reads.Load() > 0,
		m.writes.Load())
	return err
}
