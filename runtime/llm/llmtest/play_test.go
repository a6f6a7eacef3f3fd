package llmtest_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
)

func parse(t *testing.T, script string) *replay.Script {
	t.Helper()
	s, err := replay.ParseScript([]byte(script), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served returns a server that plays a script, and the client of a wire.
func served(t *testing.T, script *replay.Script, w speaker) (*llmtest.Server, llm.Client) {
	t.Helper()
	brain, err := llmtest.Play(script)
	if err != nil {
		t.Fatal(err)
	}
	s := llmtest.NewServer(t, brain)
	c, err := w.client(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// playFix answers the tool calls of the script fix.yaml, and returns all answers of the model.
func playFix(t *testing.T, c llm.Client, model string) []llm.Response {
	t.Helper()
	c = llm.Retry(c, llm.RetryPolicy{Rand: func() float64 { return 0 }})
	outputs := map[string][]string{
		"shell": {"--- FAIL: TestAdd\nexit code: 1\n", "ok\n"}, "read_file": {"3 | return a - b\n"},
		"edit_file": {"1 replacement\n"},
	}
	req := llm.Request{
		Model: model, Messages: []llm.Message{llm.UserText("please fix the failing test")},
	}
	for name := range outputs {
		req.Tools = append(req.Tools, llm.ToolSpec{Name: name, Schema: object()})
	}
	var all []llm.Response
	for {
		resp, err := llm.Complete(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, resp)
		if len(resp.Message.ToolCalls()) == 0 {
			return all
		}
		answer := llm.Message{Role: llm.RoleTool}
		for _, call := range resp.Message.ToolCalls() {
			r := llm.ToolResult{
				CallID: call.ID, Name: call.Name, Parts: []llm.Part{llm.Text(outputs[call.Name][0])},
			}
			outputs[call.Name] = outputs[call.Name][1:]
			answer.Parts = append(answer.Parts, llm.Part{Kind: llm.PartToolResult, ToolResult: &r})
		}
		req.Messages = append(req.Messages, resp.Message, answer)
	}
}

// A script gives the same answers over HTTP as in the process.
func TestPlay(t *testing.T) {
	data, err := os.ReadFile("../replay/testdata/fix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	script := parse(t, string(data))
	for wire, w := range speakers() {
		t.Run(wire, func(t *testing.T) {
			want := playFix(t, replay.NewScript(script), w.model)
			if len(want) != 4 {
				t.Fatalf("%d answers, want 4", len(want))
			}
			s, c := served(t, script, w)
			got := playFix(t, c, w.model)
			plain := cmp.Transformer("plain", func(r llm.Reasoning) string { return r.Text })
			for i, want := range want {
				got := got[i]
				if want.Usage == (llm.Usage{}) {
					// The server makes one up.
					got.Usage = llm.Usage{}
				}
				got.ResponseID = want.ResponseID
				got.Message.Parts = slices.DeleteFunc(got.Message.Parts, func(p llm.Part) bool {
					return p.Kind == llm.PartReasoning && p.Reasoning.Text == "" // a mark of Gemini
				})
				if diff := cmp.Diff(want, got, plain); diff != "" {
					t.Errorf("answer %d (-in process +over HTTP):\n%s", i, diff)
				}
			}
			if n := len(s.Requests()); n != 5 {
				t.Errorf("%d requests, want 5 with the refused one", n)
			}
		})
	}
}

func TestPlayMismatch(t *testing.T) {
	s, c := served(t, parse(t, "turns:\n  - {text: x, expect: {user: {contains: moon}}}\n"),
		speakers()[llmtest.Responses])
	_, err := llm.Complete(t.Context(), c, llm.Request{
		Model: "m", Messages: []llm.Message{llm.UserText("sun")},
	})
	const want = `s.yaml:2: turn 1 expects the user messages to contain "moon"`
	if llm.KindOf(err) != llm.KindInvalid || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if v := s.TakeViolations(); len(v) != 1 || !strings.Contains(v[0], want) {
		t.Errorf("violations %q", v)
	}
}

func TestPlayErrors(t *testing.T) {
	for wire, w := range speakers() {
		for _, kind := range []llm.ErrorKind{
			llm.KindNetwork, llm.KindTimeout, llm.KindRateLimit, llm.KindOverloaded, llm.KindServer,
			llm.KindStream, llm.KindAuth, llm.KindQuota, llm.KindNotFound, llm.KindContextLength,
			llm.KindInvalid, llm.KindContentFilter,
		} {
			_, c := served(t, parse(t,
				"turns:\n  - {text: part, error: {kind: "+string(kind)+", retry_after: 1h}}\n"), w)
			_, err := llm.Complete(t.Context(), c, llm.Request{
				Model: w.model, Messages: []llm.Message{llm.UserText("x")},
			})
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != kind {
				t.Errorf("%s, %s: got %v", wire, kind, err)
			} else if kind == llm.KindRateLimit && e.RetryAfter.Hours() != 1 {
				t.Errorf("%s: retry after %s", wire, e.RetryAfter)
			}
		}
	}
}

func TestPlayRejectsIsError(t *testing.T) {
	for _, expect := range []string{"result: {is_error: true}", "results: [{is_error: false}]"} {
		_, err := llmtest.Play(parse(t, "turns:\n  - {text: x, expect: {"+expect+"}}\n"))
		if err == nil || !strings.Contains(err.Error(), "s.yaml:2: is_error") {
			t.Errorf("%s: got %v", expect, err)
		}
	}
}
