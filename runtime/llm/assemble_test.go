package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

func list(deltas ...llm.Delta) []llm.Delta { return deltas }

func text(s string) llm.Delta    { return llm.Delta{Kind: llm.DeltaText, Text: s} }
func thought(s string) llm.Delta { return llm.Delta{Kind: llm.DeltaReasoning, Text: s} }
func done(f llm.FinishReason) llm.Delta {
	return llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: f, Usage: llm.Usage{
		Input: 3, Output: 2,
	}, ResponseID: "r", Model: "m"}}
}

func call(index int, id, name string) llm.Delta {
	return llm.Delta{Kind: llm.DeltaToolCall, Index: index, Call: &llm.ToolCall{ID: id, Name: name}}
}

func args(index int, s string) llm.Delta {
	return llm.Delta{Kind: llm.DeltaArguments, Index: index, Text: s}
}

func callPart(id, name, arguments string) llm.Part {
	return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
		ID: id, Name: name, Arguments: arguments,
	}}
}

func reasoningPart(s string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: s}}
}

func TestAssembler(t *testing.T) {
	opaque := llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{
		Text: "whole", Provider: "p", Opaque: json.RawMessage(`{}`),
	}}
	tests := map[string]struct {
		deltas []llm.Delta
		want   []llm.Part
	}{
		"empty answer": {list(done(llm.FinishStop)), nil},
		"text in pieces": {
			list(text("a"), text(""), text("b"), done(llm.FinishStop)), parts(llm.Text("ab")),
		},
		"parts keep their order": {
			list(thought("t"), text("a"), call(0, "1", "x"), args(0, "{}"), text("b"),
				done(llm.FinishToolCalls)),
			parts(reasoningPart("t"), llm.Text("a"), callPart("1", "x", "{}"), llm.Text("b")),
		},
		"parallel calls interleaved": {
			list(call(7, "1", "x"), call(3, "2", "y"), args(7, `{"a`), args(3, `{"b`), args(7, `":1}`),
				args(3, `":2}`),
				done(llm.FinishToolCalls)),
			parts(callPart("1", "x", `{"a":1}`), callPart("2", "y", `{"b":2}`)),
		},
		"missing id stays empty, late name is filled in": {
			list(args(0, "{"), call(0, "", "x"), args(0, "}"), call(0, "", "other"),
				done(llm.FinishToolCalls)),
			parts(callPart("", "x", "{}")),
		},
		"equal ids are two calls": {
			list(call(0, "1", "x"), call(1, "1", "x"), done(llm.FinishToolCalls)),
			parts(callPart("1", "x", ""), callPart("1", "x", "")),
		},
		"a retry voids what was before": {
			list(text("lost"), call(0, "1", "x"), llm.Delta{
				Kind: llm.DeltaRetry, Retry: &llm.RetryNotice{},
			}, text("kept"),
				call(0, "2", "y"), done(llm.FinishToolCalls)),
			parts(llm.Text("kept"), callPart("2", "y", "")),
		},
		"a whole part replaces pieces of reasoning": {
			list(thought("wh"), thought("ole"), llm.Delta{Kind: llm.DeltaPart, Part: &opaque},
				thought("more"), text("a"),
				done(llm.FinishStop)),
			parts(opaque, reasoningPart("more"), llm.Text("a")),
		},
		"two whole parts are two parts": {
			list(llm.Delta{Kind: llm.DeltaPart, Part: &opaque}, llm.Delta{
				Kind: llm.DeltaPart, Part: &opaque,
			}, done(llm.FinishStop)),
			parts(opaque, opaque),
		},
		"a cut answer has no calls": {
			list(text("a"), call(0, "1", "x"), args(0, `{"a":`), done(llm.FinishLength)),
			parts(llm.Text("a")),
		},
		"what follows the end is ignored": {
			list(text("a"), done(llm.FinishStop), text("b"), llm.Delta{Kind: llm.DeltaRetry}),
			parts(llm.Text("a")),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var a llm.Assembler
			for _, d := range tt.deltas {
				a.Add(d)
			}
			resp, err := a.Response()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(llm.Message{Role: llm.RoleAssistant, Parts: tt.want},
				resp.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAssemblerEnd(t *testing.T) {
	var a llm.Assembler
	a.Add(text("a"))
	if _, err := a.Response(); llm.KindOf(err) != llm.KindStream {
		t.Errorf("without an end: %v, want kind %s", err, llm.KindStream)
	}
	a.Add(done(llm.FinishStop))
	resp, err := a.Response()
	if err != nil {
		t.Fatal(err)
	}
	want := llm.Response{
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{llm.Text("a")}},
		Finish:  llm.FinishStop, Usage: llm.Usage{Input: 3, Output: 2}, ResponseID: "r", Model: "m",
	}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

// attempts is a Client whose n-th answer is the n-th element; one more repeats the last.
type attempts struct {
	list []attempt
	sent int
}

type attempt struct {
	deltas []llm.Delta
	err    error
}

func (a *attempts) Stream(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		this := a.list[min(a.sent, len(a.list)-1)]
		a.sent++
		for _, d := range this.deltas {
			if !yield(d, nil) {
				return
			}
		}
		if this.err != nil {
			yield(llm.Delta{}, this.err)
		}
	}
}

func TestComplete(t *testing.T) {
	t.Run("answer", func(t *testing.T) {
		c := &attempts{list: []attempt{{deltas: list(text("a"), done(llm.FinishStop))}}}
		resp, err := llm.Complete(t.Context(), c, llm.Request{})
		if err != nil || resp.Message.Text() != "a" {
			t.Errorf("got %q, %v", resp.Message.Text(), err)
		}
	})
	t.Run("error", func(t *testing.T) {
		want := &llm.Error{Kind: llm.KindAuth}
		_, err := llm.Complete(t.Context(), &attempts{list: []attempt{{
			deltas: list(text("a")), err: want,
		}}}, llm.Request{})
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	})
	t.Run("no end", func(t *testing.T) {
		_, err := llm.Complete(t.Context(), &attempts{list: []attempt{{deltas: list(text("a"))}}},
			llm.Request{})
		if llm.KindOf(err) != llm.KindStream {
			t.Errorf("got %v, want kind %s", err, llm.KindStream)
		}
	})
	t.Run("no end since the context ended", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		_, err := llm.Complete(ctx, &attempts{list: []attempt{{deltas: list(text("a"))}}},
			llm.Request{})
		if llm.KindOf(err) != llm.KindCanceled || !errors.Is(err, cause) {
			t.Errorf("got %v, want kind %s around the cause", err, llm.KindCanceled)
		}
	})
}

func TestErrorText(t *testing.T) {
	tests := map[string]struct {
		err  llm.Error
		want string
	}{
		"server": {
			llm.Error{Kind: llm.KindServer, Provider: "p", Status: 503, Message: "busy"},
			"p: server (HTTP 503): busy",
		},
		"stream": {
			llm.Error{Kind: llm.KindStream, Provider: "p", Status: 200, Message: "cut"}, "p: stream: cut",
		},
		"cause":   {llm.Error{Kind: llm.KindCanceled, Err: errors.New("enough")}, "canceled: enough"},
		"nothing": {llm.Error{Kind: llm.KindNetwork}, "network"},
	}
	for name, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte("tracTRd"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var a llm.Assembler
		for _, b := range script {
			kinds := []llm.DeltaKind{
				llm.DeltaText, llm.DeltaReasoning, llm.DeltaToolCall, llm.DeltaArguments, llm.DeltaPart,
				llm.DeltaRetry, llm.DeltaDone, "?",
			}
			a.Add(llm.Delta{
				Kind: kinds[b%8], Text: strings.Repeat("x", int(b%3)), Index: int(b % 5),
			})
		}
		first, err1 := a.Response()
		second, err2 := a.Response()
		if (err1 == nil) != (err2 == nil) || !cmp.Equal(first, second) {
			t.Error("a second call gives another answer")
		}
	})
}

func parts(p ...llm.Part) []llm.Part { return p }
