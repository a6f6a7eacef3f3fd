// Command batch runs tasks beside each other, each in a directory and an environment of its own,
// and prints their results in order. Here a script plays the model.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

const script = `
turns:
  - calls: [{tool: shell, args: {command: "echo 42 >answer && ls | wc -l"}}]
  - text: I have written the answer.
`

func main() {
	sandboxd.Main() // this program is the helper of its environments
	parallel := flag.Int("parallel", 4, "run this many tasks at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed := false
	for i, o := range runAll(ctx, flag.Args(), *parallel) {
		fmt.Printf("%d. %s: %s\n", i+1, flag.Arg(i), o)
		failed = failed || o.err != nil || o.result.Status != agent.StatusCompleted
	}
	stop()
	if failed {
		os.Exit(1)
	}
}

// outcome is the outcome of one task.
type outcome struct {
	result agent.RunResult
	err    error
}

func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprintf("%s: %s", o.result.Status, o.result.Final)
}

// runAll runs the tasks, at most parallel of them at once.
func runAll(ctx context.Context, tasks []string, parallel int) []outcome {
	outcomes := make([]outcome, len(tasks))
	free := make(chan struct{}, max(1, parallel))
	var wg sync.WaitGroup
	for i, task := range tasks {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			outcomes[i].result, outcomes[i].err = run(ctx, task)
		})
	}
	wg.Wait()
	return outcomes
}

// run runs one task.
func run(ctx context.Context, task string) (result agent.RunResult, err error) {
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	model, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		return result, err
	}
	dir, err := os.MkdirTemp("", "task-*")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e, err := local.Sandboxed(ctx, local.Config{Dir: dir}, sandboxd.Self(), env.Sandbox{})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.OpenAI("gpt-5.2"), Env: e,
		Verify: agent.Verify{Command: "grep -q 42 answer"},
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return a.Run(ctx, agent.Input{Text: task})
}
