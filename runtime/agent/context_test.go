package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// isSummary reports whether a request asks for a summary.
func isSummary(req llm.Request) bool { return strings.Contains(req.System, "You summarize") }

// words is a text of about n tokens.
func words(n int) string { return strings.Repeat("abc ", n) }

// tokensOf estimates a request as the loop does.
func tokensOf(t *testing.T, req llm.Request) int {
	t.Helper()
	b, err := json.Marshal(req.Messages)
	if err != nil {
		t.Fatal(err)
	}
	return len(b) / 4
}

// reader is a tool that reads a file of so many tokens, or fails.
func reader(tokens int) tool.Tool {
	read := newTool("read", true, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		var args struct{ Path string }
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return tool.Result{}, err
		}
		if args.Path == "missing" {
			return tool.Result{}, &tool.Error{Kind: tool.KindNotFound, Message: "no file missing"}
		}
		return tool.Result{Text: args.Path + " " + words(tokens)}, nil
	})
	read.Class = policy.ClassRead
	read.Subjects = func(args json.RawMessage) []string {
		var a struct{ Path string }
		_ = json.Unmarshal(args, &a)
		return []string{a.Path}
	}
	read.Limit = tool.Limit{Chars: 1 << 20}
	return read
}

// TestPruning has four inputs with long results, of which the old ones are removed.
func TestPruning(t *testing.T) {
	m := &model{}
	for i := range 4 {
		path := fmt.Sprintf("f%d", i)
		m.answers = append(m.answers,
			calls(call("a"+path, "read", object{"path": path}),
				call("b"+path, "read", object{"path": "missing"})),
			calls(call("c"+path, "read", object{"path": path + "x"})), answer{text: "ok"})
	}
	dir := t.TempDir()
	cfg := config(m, reader(15_000))
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(dir), 120_000
	ev := watch(&cfg)
	s := newSession(t, cfg)
	for i := range 4 {
		submit(t, s, fmt.Sprint("input ", i))
	}
	if n := ev.count(event.KindContextUpdated); n != 1 {
		t.Errorf("the context was updated %d times", n)
	}
	last := m.request(t, 11)
	text := func(req llm.Request, id string) string {
		for _, msg := range req.Messages {
			for _, p := range msg.Parts {
				if p.ToolResult != nil && p.ToolResult.CallID == id {
					return p.ToolResult.Text()
				}
			}
		}
		return ""
	}
	for id, removed := range map[string]bool{
		"af0": true, "bf0": false, "cf1": true, "af2": false, "af3": false, "cf3": false,
	} {
		if got := strings.Contains(text(last, id), "was removed"); got != removed {
			t.Errorf("the output of %s is removed: %t", id, got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	resumed := resume(t, cfg, filepath.Join(dir, s.ID()))
	submit(t, resumed, "more")
	if after := m.request(t, 12); !strings.Contains(text(after, "af0"), "was removed") ||
		text(after, "cf1") != text(last, "cf1") {
		t.Error("the resumed session has other outputs")
	}
}

// longTask is a model that reads files, one in each answer, and reports tokens as a server does.
// Its summaries have so many tokens.
func longTask(files, summary int, seen func(llm.Request)) modelFunc {
	n := 0
	return func(req llm.Request) answer {
		seen(req)
		if isSummary(req) {
			return answer{text: "SUMMARY " + words(summary), usage: llm.Usage{Input: 9, Output: 1}}
		}
		if n++; n > files {
			return answer{text: "done"}
		}
		return calls(call("", "read", object{"path": fmt.Sprint("file", n)}))
	}
}

// TestCompaction works 500 rounds in a context of 40,000 tokens.
func TestCompaction(t *testing.T) {
	var summaries, most int
	var last llm.Request
	var asked string
	m := longTask(500, 200, func(req llm.Request) {
		if isSummary(req) {
			summaries++
			asked = req.Messages[0].Text()
			return
		}
		last, most = req, max(most, tokensOf(t, req))
		newest := req.Messages[len(req.Messages)-1].Parts[0].ToolResult
		if len(req.Messages) > 1 && (newest == nil || !strings.HasPrefix(newest.Text(), "file")) {
			t.Errorf("the newest message is %.100q", req.Messages[len(req.Messages)-1].Text())
		}
	})
	dir := t.TempDir()
	cfg := config(m, reader(500))
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(dir), 40_000
	cfg.Profile.AnswerTokens = 4_000
	cfg.Limits = agent.Limits{MaxToolRounds: 1000, NoLoopDetection: true}
	cfg.Profile.Price = &profile.Price{Input: 1, Output: 1}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	res := submit(t, s, "THE TASK of the user")
	if res.Status != agent.StatusCompleted || summaries < 3 ||
		ev.count(event.KindContextUpdated) != summaries {
		t.Errorf("%s after %d summaries, %d events", res.Status, summaries,
			ev.count(event.KindContextUpdated))
	}
	if most > 45_000 { // as JSON
		t.Errorf("a request has %d tokens", most)
	}
	checkPairs(t, s.History())
	text := last.Messages[0].Text()
	for _, want := range []string{"SUMMARY abc", "THE TASK of the user", "file1\n", "file300\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the request lacks %q", want)
		}
	}
	if !strings.Contains(asked, "SUMMARY abc") || !strings.Contains(asked, `"tool":"read"`) {
		t.Errorf("the request for a summary lacks something: %.300q", asked)
	}
	if res.ModelCalls != 501 || res.Turns != 501+summaries || res.Models[0].Answers != res.Turns {
		t.Errorf("%d calls, %d turns, %+v", res.ModelCalls, res.Turns, res.Models)
	}
	want := s.History()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := session.Load(filepath.Join(dir, s.ID()))
	if err != nil || len(r.Turns) != len(want) || r.Turns[0].Text() != want[0].Text() ||
		r.Spent.Turns != res.Turns {
		t.Errorf("the record has %d turns of %d, %+v, %v", len(r.Turns), len(want), r.Spent, err)
	}
}

// TestCompactionWithoutProgress has summaries that are as long as the conversation, or empty.
func TestCompactionWithoutProgress(t *testing.T) {
	for name, m := range map[string]modelFunc{
		"long":           longTask(100, 60_000, func(llm.Request) {}),
		"hardly shorter": longTask(100, 26_000, func(llm.Request) {}),
		"empty": func(req llm.Request) answer {
			if isSummary(req) {
				return answer{text: " ", finish: llm.FinishStop}
			}
			return calls(call("", "read", object{"path": fmt.Sprint(len(req.Messages))}))
		},
	} {
		cfg := config(m, reader(3000))
		cfg.Profile.ContextWindow = 40_000
		cfg.Limits.NoLoopDetection = true
		s := newSession(t, cfg)
		res, err := s.Submit(t.Context(), "go")
		if res.Status != agent.StatusContextOverflow || err == nil || res.ModelCalls > 20 {
			t.Errorf("%s: ended with %s, %v after %d calls", name, res.Status, err, res.ModelCalls)
		}
		if first := s.History()[0].Text(); first != "go" {
			t.Errorf("%s: the history starts with %.50q", name, first)
		}
	}
}

// TestOverflow has a server whose context is shorter than the profile says.
func TestOverflow(t *testing.T) {
	overflow := &llm.Error{Kind: llm.KindContextLength, Message: "too long"}
	for name, recovers := range map[string]bool{"once": true, "again": false} {
		n, summaries := 0, 0
		m := modelFunc(func(req llm.Request) answer {
			switch n++; {
			case isSummary(req):
				summaries++
				return answer{text: "short"}
			case n <= 5:
				return calls(call("", "read", object{"path": fmt.Sprint(n)}))
			case n == 6, !recovers:
				return answer{err: overflow}
			}
			return answer{text: "done"}
		})
		cfg := config(m, reader(3000))
		cfg.Profile.ContextWindow = 200_000
		ev := watch(&cfg)
		s := newSession(t, cfg)
		res, err := s.Submit(t.Context(), "go")
		if recovers && (err != nil || res.Status != agent.StatusCompleted) ||
			!recovers && res.Status != agent.StatusContextOverflow || summaries != 1 ||
			ev.count(event.KindContextUpdated) != 1 {
			t.Errorf("%s: %s, %v, %d summaries", name, res.Status, err, summaries)
		}
		checkPairs(t, s.History())
	}
}

// TestOverflowAfterSummary has a server that refuses a conversation even after a summary.
func TestOverflowAfterSummary(t *testing.T) {
	summaries := 0
	m := modelFunc(func(req llm.Request) answer {
		switch {
		case isSummary(req):
			summaries++
			return answer{text: "short"}
		case summaries > 0:
			return answer{err: &llm.Error{Kind: llm.KindContextLength, Message: "too long"}}
		}
		return calls(call("", "read", object{"path": fmt.Sprint(len(req.Messages))}))
	})
	cfg := config(m, reader(3000))
	cfg.Profile.ContextWindow, cfg.Limits.NoLoopDetection = 40_000, true
	s := newSession(t, cfg)
	if res, _ := s.Submit(t.Context(), "go"); res.Status != agent.StatusContextOverflow ||
		summaries != 1 {
		t.Errorf("ended with %s after %d summaries", res.Status, summaries)
	}
}

// TestResumeAfterSummary has a server that fails after a summary. The resumed session makes none.
func TestResumeAfterSummary(t *testing.T) {
	summaries, failed := 0, false
	m := modelFunc(func(req llm.Request) answer {
		switch {
		case isSummary(req):
			summaries++
			return answer{text: "short " + words(6000)}
		case summaries > 0 && !failed:
			failed = true
			return answer{err: &llm.Error{Kind: llm.KindServer, Message: "down"}}
		case summaries > 0:
			return answer{text: "done"}
		}
		a := calls(call("", "read", object{"path": fmt.Sprint(len(req.Messages))}))
		a.usage = llm.Usage{Input: int64(tokensOf(t, req))}
		return a
	})
	cfg := config(m, reader(3000))
	dir := t.TempDir()
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(dir), 40_000
	cfg.Limits.NoLoopDetection = true
	s := newSession(t, cfg)
	if res, _ := s.Submit(t.Context(), "go"); res.Status != agent.StatusModelError {
		t.Fatalf("ended with %s", res.Status)
	}
	_ = s.Close()
	if res := submit(t, resume(t, cfg, filepath.Join(dir, s.ID())), "on"); res.Final != "done" ||
		summaries != 1 {
		t.Errorf("%q after %d summaries", res.Final, summaries)
	}
	r, err := session.Load(filepath.Join(dir, s.ID()))
	if err != nil || len(r.Conversation) <= len(r.Turns) || r.Conversation[0].Text() != "go" {
		t.Errorf("the conversation has %d turns, the history %d, %v", len(r.Conversation),
			len(r.Turns), err)
	}
}

// TestNewestRoundStays has results that are longer than what else stays beside a summary.
func TestNewestRoundStays(t *testing.T) {
	summaries := 0
	m := modelFunc(func(req llm.Request) answer {
		if isSummary(req) {
			summaries++
			return answer{text: "short"}
		}
		newest := req.Messages[len(req.Messages)-1].Parts[0].ToolResult
		if summaries > 0 {
			if newest == nil || len(newest.Text()) < 12_000 {
				t.Error("the model does not see the newest result")
			}
			return answer{text: "done"}
		}
		return calls(call("", "read", object{"path": fmt.Sprint(len(req.Messages))}))
	})
	cfg := config(m, reader(12_000))
	cfg.Profile.ContextWindow = 40_000
	submit(t, newSession(t, cfg), "go")
	if summaries != 1 {
		t.Errorf("%d summaries", summaries)
	}
}

// TestSecondSummary has words of the user, a plan, a failure, a stored output and files in what two
// summaries replace.
func TestSecondSummary(t *testing.T) {
	n, summaries := 0, 0
	var last llm.Request
	var asked string
	m := modelFunc(func(req llm.Request) answer {
		if isSummary(req) {
			asked += req.Messages[0].Text()
			summaries++
			return answer{text: "short"}
		}
		last = req
		switch n++; {
		case n == 1:
			return calls(call("", "plan_exit", object{"plan": "THE PLAN"}))
		case n == 2:
			return calls(call("", "read", object{"path": "missing"}))
		case n == 3:
			return calls(call("long", "print", object{"lines": "all"}))
		case n%20 == 0:
			return answer{text: "a pause"}
		}
		return calls(call("", "read", object{"path": fmt.Sprint("file", n)}))
	})
	long := newTool("print", true, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: words(9000)}, nil
	})
	long.Class = policy.ClassRead
	cfg := config(m, reader(1500), long)
	cfg.Store, cfg.Modes = session.OnDisk(t.TempDir()), &agent.Modes{Plan: true}
	cfg.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
		return agent.Reply{Verdict: agent.ApproveOnce}, nil
	}
	cfg.Profile.ContextWindow, cfg.Limits.NoLoopDetection = 40_000, true
	s := newSession(t, cfg)
	submit(t, s, "the TASK")
	submit(t, s, "the SECOND input "+words(9000))
	submit(t, s, "the third input")
	text := last.Messages[0].Text()
	for _, want := range []string{
		"the TASK", "the SECOND input", "no file missing", "file4\n", "THE PLAN",
		`output://long: print {"lines":"all"}` + "\n",
	} {
		if summaries < 2 || !strings.Contains(text, want) {
			t.Errorf("%d summaries, the request lacks %q: %.3000q", summaries, want, text)
		}
	}
	if !strings.Contains(asked, `"call":"print","id":"long"`) ||
		!strings.Contains(asked, `"id":"long","result":`) {
		t.Error("the request for a summary lacks the ID of a call")
	}
	checkPairs(t, s.History())
}

// TestSummaryFails has a server that fails while it summarizes.
func TestSummaryFails(t *testing.T) {
	failure := &llm.Error{Kind: llm.KindServer, Message: "down"}
	m := modelFunc(func(req llm.Request) answer {
		if isSummary(req) {
			return answer{err: failure}
		}
		return calls(call("", "read", object{"path": fmt.Sprint(len(req.Messages))}))
	})
	cfg := config(m, reader(3000))
	cfg.Profile.ContextWindow, cfg.Limits.NoLoopDetection = 40_000, true
	s := newSession(t, cfg)
	res, err := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusModelError || !errors.Is(err, failure) {
		t.Errorf("ended with %s, %v", res.Status, err)
	}
	checkPairs(t, s.History())
}
