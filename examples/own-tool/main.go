// Command own-tool gives a model a tool that this program has. Here a script plays the model.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const script = `
turns:
  - calls:
    - {tool: read_issue, args: {number: 7}}
    - {tool: read_issue, args: {number: 8}}
  - expect: {results: [{contains: MCMXC}, {contains: there is no issue 8}]}
    text: Parse fails for MCMXC.
`

// issues stands for the service that the tool asks.
var issues = map[int]string{7: "Parse fails for MCMXC."}

func main() {
	if err := run(context.Background(), "What is issue 7 about?"); err != nil {
		log.Fatal(err)
	}
}

// issueTool is a tool that looks up an issue. Run gets only arguments that fit Schema.
func issueTool() tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: "read_issue", Description: "Shows an issue of this project, with its comments.",
			Schema: json.RawMessage(`{"type": "object",
				"properties": {"number": {"type": "integer", "minimum": 1}},
				"required": ["number"], "additionalProperties": false}`),
		},
		ReadOnly: true, // so that calls may run beside each other
		Run: func(_ context.Context, call *tool.Call) (tool.Result, error) {
			var args struct{ Number int }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return tool.Result{}, err
			}
			text, ok := issues[args.Number]
			if !ok { // the model reads the error
				return tool.Result{}, fmt.Errorf("there is no issue %d", args.Number)
			}
			return tool.Result{Text: text}, nil
		},
	}
}

func run(ctx context.Context, task string) error {
	model, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.OpenAI("gpt-5.2"),
		Tools: []tool.Tool{issueTool()},
	})
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // the run has ended
	result, err := a.Run(ctx, agent.Input{Text: task})
	fmt.Println(result.Final)
	return err
}
