package llm_test

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// loud is a client of a model of your own, which repeats the last message in capitals.
func loud(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for word := range strings.FieldsSeq(req.Messages[len(req.Messages)-1].Text()) {
			if ctx.Err() != nil {
				yield(llm.Delta{}, &llm.Error{Kind: llm.KindCanceled, Err: context.Cause(ctx)})
				return
			}
			if !yield(llm.Delta{Kind: llm.DeltaText, Text: strings.ToUpper(word) + "!"}, nil) {
				return
			}
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: llm.FinishStop}}, nil)
	}
}

// Use a model that no package of this module connects to. agent.Config.Client takes such a client,
// and adds retries.
func ExampleClientFunc() {
	resp, err := llm.Complete(context.Background(), llm.ClientFunc(loud), llm.Request{
		Messages: []llm.Message{llm.UserText("is anybody there")},
	})
	fmt.Println(resp.Message.Text(), err)
	// Output: IS!ANYBODY!THERE! <nil>
}
