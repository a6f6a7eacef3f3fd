// Command own-client runs an agent with a model of its own: a client that sends no request, and
// answers by a rule.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// shout is a model that repeats the user's message in capitals. The client of a service sends req
// here, and yields each piece of the answer as it comes, or an *llm.Error as the last element.
func shout(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		for word := range strings.SplitAfterSeq(strings.ToUpper(last.Text()), " ") {
			if !yield(llm.Delta{Kind: llm.DeltaText, Text: word}, nil) {
				return
			}
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: llm.FinishStop}}, nil)
	}
}

func main() {
	if err := run(context.Background(), "hear me"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, task string) error {
	a, err := agent.New(agent.Config{
		Client: llm.ClientFunc(shout), Profile: profile.OpenAI("gpt-5.2"),
	})
	if err != nil {
		return err
	}
	defer a.Close() //nolint:errcheck // the run has ended
	result, err := a.Run(ctx, agent.Input{Text: task})
	fmt.Println(result.Final)
	return err
}
