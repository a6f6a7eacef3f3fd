// Command batch has each of its arguments done as a task, some at the same time, each in a
// directory and an environment of its own. Their results are kept: started again after a crash, it
// goes on with the tasks that have none. Here a script plays the model.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/event"
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
	parallel := flag.Int("parallel", batch.DefaultParallel, "run this many tasks at once")
	dir := flag.String("results", "results", "keep the results in this directory")
	flag.Parse()
	var tasks []batch.Task
	for i, prompt := range flag.Args() {
		tasks = append(tasks, batch.Task{ID: strconv.Itoa(i + 1), Prompt: prompt})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	totals, err := batch.Run(ctx, batch.Config{
		Dir: *dir, Run: attempt, Parallel: *parallel, Retries: 1,
	}, tasks)
	stop()
	if err != nil {
		log.Fatal(err)
	}
	records := make(map[string]*batch.Record)
	for r, err := range batch.Results(*dir) {
		if err != nil {
			log.Fatal(err)
		}
		records[r.TaskID] = r
	}
	for _, t := range tasks {
		if r := records[t.ID]; r != nil {
			fmt.Printf("%s. %s: %s: %s\n", t.ID, t.Prompt, r.Status, cmp.Or(r.Error, r.Text))
		}
	}
	if totals.Passed < totals.Tasks {
		os.Exit(1)
	}
}

// attempt makes one attempt at a task. The next one has another directory, so it may be made after
// any error.
func attempt(ctx context.Context, a *batch.Attempt) batch.Outcome {
	result, err := run(ctx, a)
	o := batch.Outcome{
		Result: event.Result{
			Status: string(result.Status), Text: result.Final, Usage: result.Usage,
			CostUSD: result.CostUSD,
		},
		Repeatable: err != nil,
	}
	if err != nil {
		o.Status, o.Error = string(agent.StatusEnvironmentError), err.Error()
	}
	if err != nil || result.Status != agent.StatusCompleted {
		o.ExitCode = 1
	}
	return o
}

// run runs the agent of an attempt.
func run(ctx context.Context, attempt *batch.Attempt) (result agent.RunResult, err error) {
	model, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		return result, err
	}
	e, err := local.Sandboxed(ctx, local.Config{Dir: attempt.Dir}, sandboxd.Self(), env.Sandbox{})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	attempt.Opened()
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.OpenAI("gpt-5.2"), Env: e,
		Verify: agent.Verify{Command: "grep -q 42 answer"},
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return a.Run(ctx, agent.Input{Text: attempt.Task.Prompt})
}
