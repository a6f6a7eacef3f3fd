package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func TestExitCodes(t *testing.T) {
	for code, want := range map[int]agent.Status{
		0: agent.StatusCompleted, 1: agent.StatusTaskFailed, 2: agent.StatusAwaitingHuman,
		-1: agent.StatusGaveUpTime,
	} {
		exit := newTool("exit", false, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Exit: &tool.Exit{Code: code, Reason: "because"}}, nil
		})
		var n callLog
		m := &model{answers: []answer{calls(call("a", "exit", nil), call("b", "change", nil))}}
		s := newSession(t, config(m, exit, n.tool("change", false)))
		res, err := s.Submit(t.Context(), "go")
		var failed *agent.TaskFailedError
		if errors.As(err, &failed) != (code == 1) || code != 1 && err != nil ||
			failed != nil && failed.Reason != "because" || res.Status != want || res.Exit == nil ||
			res.Exit.Reason != "because" {
			t.Errorf("exit %d: %v, %v", code, res.Status, err)
		}
		if len(n.calls()) > 0 {
			t.Errorf("exit %d: a call after it was run", code)
		}
		checkPairs(t, s.History())
	}
}

// TestQuestion has a question that nobody answers during the run. The next input is the answer.
func TestQuestion(t *testing.T) {
	ask := newTool("ask_user", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: "asked", Question: "which one?"}, nil
	})
	fails := func(context.Context, string) (string, error) { return "", errors.New("end of file") }
	for name, fn := range map[string]func(context.Context, string) (string, error){
		"no user": nil, "no answer": fails,
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: []answer{calls(call("a", "ask_user", nil)), {text: "the left one then"}}}
			cfg := config(m, ask)
			cfg.Answer = fn
			s := newSession(t, cfg)
			res := submit(t, s, "go")
			if res.Status != agent.StatusAwaitingHuman || res.Question != "which one?" ||
				s.State() != agent.SessionAwaitingInput {
				t.Fatalf("ended with %v %q, session %s", res.Status, res.Question, s.State())
			}
			if res = submit(t, s, "left"); res.Status != agent.StatusCompleted {
				t.Fatalf("the answer ended with %v", res.Status)
			}
			checkPairs(t, s.History())
		})
	}
}

func TestRunStream(t *testing.T) {
	var n callLog
	cfg := config(&model{answers: []answer{calls(call("a", "look", nil)), {text: "x"}}}, n.tool("look",
		true))
	a := newAgent(t, cfg)
	var kinds []event.Kind
	var res agent.RunResult
	for e, err := range a.RunStream(t.Context(), agent.Input{Text: "go"}, &res) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind())
	}
	if kinds[0] != event.KindSessionStart || kinds[len(kinds)-1] != event.KindSessionEnd ||
		res.Final != "x" {
		t.Errorf("events %v, result %q", kinds, res.Final)
	}
}

func TestStoppedRunStreamAborts(t *testing.T) {
	aborted := make(chan error, 1)
	block := newTool("block", false, func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		_, _ = c.Out.Write([]byte("started"))
		<-ctx.Done()
		aborted <- context.Cause(ctx)
		return tool.Result{}, ctx.Err()
	})
	rec := &recorder{}
	cfg := config(&model{answers: []answer{calls(call("a", "block", nil))}}, block)
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	a := newAgent(t, cfg)
	for e, err := range a.RunStream(t.Context(), agent.Input{Text: "go"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind() == event.KindToolOutputDelta {
			break
		}
	}
	select {
	case err := <-aborted:
		if !errors.Is(err, agent.ErrAborted) {
			t.Errorf("the tool was ended by %v", err)
		}
	default:
		t.Error("the tool still runs")
	}
	if all := strings.Join(allData(rec), "\n"); !strings.Contains(all, `"status":"aborted"`) {
		t.Errorf("the journal has\n%s", all)
	}
}
