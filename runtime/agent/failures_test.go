package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// failing makes a tool whose calls fail with the kind and the message of their arguments, and
// succeed without a kind.
func failing(name string) tool.Tool {
	t := newTool(name, false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		var args map[string]string
		if err := json.Unmarshal(c.Args, &args); err != nil || args["kind"] == "" {
			return tool.Result{Text: "fine"}, nil
		}
		return tool.Result{}, &tool.Error{Kind: tool.ErrorKind(args["kind"]), Message: args["message"]}
	})
	t.Subjects = func(args json.RawMessage) []string {
		var a struct{ At string }
		_ = json.Unmarshal(args, &a)
		return []string{a.At}
	}
	return t
}

// fails is a call of such a tool.
func fails(id, at, message string) llm.ToolCall {
	return call(id, "try", object{"at": at, "kind": "not_found", "message": message})
}

func succeeds(id, at string) llm.ToolCall { return call(id, "try", object{"at": at, "kind": ""}) }

// steps returns the states after each signal of a run, from a state on.
func steps(res agent.RunResult) (list []string) {
	for _, t := range res.Transitions {
		list = append(list, string(t.Signal)+" "+string(t.To))
	}
	return list
}

// inRow has rounds of calls that fail in one way, as many as given.
func inRow(from, n int) (list []answer) {
	for i := range n {
		id := fmt.Sprint("c", from+i)
		list = append(list, calls(fails(id, id, "no "+id)))
	}
	return list
}

// TestSignals checks the signals of calls in the result, the events and the journal, and what the
// model gets.
func TestSignals(t *testing.T) {
	rec := &recorder{}
	m := &model{answers: []answer{
		calls(fails("a", "x", "x is not there"), succeeds("b", "y")),
		calls(
			fails("c", "z", "z is not there"),
		), calls(succeeds("d", "x")), calls(fails("e", "w", "no w")),
	}}
	cfg := config(m, failing("try"))
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	ev := watch(&cfg)
	res := submit(t, newSession(t, cfg), "go")
	if len(res.Failures) != 3 {
		t.Fatalf("failures %+v", res.Failures)
	}
	f := res.Failures[0]
	want := event.Failure{
		Source: event.FailureTool, Kind: "not_found", Class: event.ClassRecoverable,
		Strategy: event.StrategyAlternative, Message: "x is not there", Tool: "try", CallID: "a",
		Arguments: `{"at":"x","kind":"not_found","message":"x is not there"}`,
		Learning:  "x is not there; look for it before you use it.", Time: f.Time,
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	var ended []event.ToolCallEnd
	for _, e := range ev.all {
		if d, ok := e.Data.(event.ToolCallEnd); ok {
			ended = append(ended, d)
		}
	}
	entries := entriesOf[session.ToolResult](t, rec, session.TypeToolResult)
	for i, e := range entries {
		if !cmp.Equal(e.Failure, ended[i].Failure) || !slices.Equal(e.Resolved, ended[i].Resolved) {
			t.Errorf("the journal has %+v, the event %+v", e, ended[i])
		}
	}
	if !cmp.Equal(ended[0].Failure, &f) || ended[1].Failure != nil || ended[1].Resolved != nil ||
		!slices.Equal(ended[3].Resolved, []string{"a"}) {
		t.Errorf("events %+v", ended)
	}
	if text := ended[0].Result; text != "x is not there\n"+failure.Advice(f, nil) {
		t.Errorf("the model got %q", text)
	}
	last := func(n int) string {
		msgs := m.request(t, n).Messages
		return msgs[len(msgs)-1].Text()
	}
	if text := last(1); text != "" { // the results, without a text
		t.Errorf("the model knows the failure already: %q", text)
	}
	if text := last(2); !strings.Contains(text, "\n- try x: x is not there") ||
		!strings.Contains(text, "\n- try z: z is not there") {
		t.Errorf("not recited: %q", text)
	}
	if text := last(4); strings.Contains(text, "try x") || !strings.Contains(text, "try z") ||
		!strings.Contains(text, "try w") {
		t.Errorf("recited: %q", text)
	}
}

// TestSignalsWithoutSecrets has a secret in a message.
func TestSignalsWithoutSecrets(t *testing.T) {
	rec := &recorder{}
	m := &model{answers: []answer{calls(fails("a", "x", "no hunter2-hunter2 here"))}}
	cfg := config(m, failing("try"))
	cfg.Redactor = redact.New(redact.Values, map[string]string{"PASSWORD": "hunter2-hunter2"})
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	res := submit(t, newSession(t, cfg), "go")
	text := fmt.Sprintf("%+v", res.Failures)
	for _, e := range entriesOf[session.ToolResult](t, rec, session.TypeToolResult) {
		text += fmt.Sprintf("%+v %+v", e.Result.Text(), e.Failure)
	}
	for _, e := range entriesOf[session.RunEnded](t, rec, session.TypeRunEnded) {
		text += fmt.Sprintf("%+v", e.Failures)
	}
	if strings.Contains(text, "hunter2-hunter2") || !strings.Contains(text, "PASSWORD") {
		t.Errorf("%s", text)
	}
}

// TestThreeStrikes has failures in a row, after which the model has to find the cause.
func TestThreeStrikes(t *testing.T) {
	m := &model{answers: slices.Concat(
		inRow(1, 3), []answer{{text: "the cause", calls: []llm.ToolCall{succeeds("no", "x")}}},
		[]answer{calls(succeeds("b", "y")), {text: "done at last"}},
	)}
	cfg := config(m, failing("try"))
	cfg.Limits.MaxReplans = 0
	ev := watch(&cfg)
	res := submit(t, newSession(t, cfg), "go")
	if res.Status != agent.StatusCompleted || res.Final != "done at last" || len(res.ToolCalls) != 4 {
		t.Fatalf("%s, %q, %d calls", res.Status, res.Final, len(res.ToolCalls))
	}
	want := []string{
		"results model_running", "reflect reflecting", "replan replanning", "continue model_running",
	}
	if got := steps(res); !slices.Equal(got[6:11][1:], want) {
		t.Errorf("steps %q", got)
	}
	reflect := m.request(t, 3)
	text := reflect.Messages[len(reflect.Messages)-1].Text()
	if !reflect.NoToolCalls || m.request(t, 4).NoToolCalls ||
		!strings.HasPrefix(
			text,
			"Your calls have failed 3 times in a row (not_found), at last with: no c3;",
		) {
		t.Errorf("the request without tools: %t, %q", reflect.NoToolCalls, text)
	}
	var ends []event.TextEnd
	for _, e := range ev.all {
		if d, ok := e.Data.(event.TextEnd); ok {
			ends = append(ends, d)
		}
	}
	for i, d := range ends {
		if d.Reflection != (i == 3) {
			t.Errorf("answer %d: reflection %t", i, d.Reflection)
		}
	}
	if ends[3].ToolCalls != 0 {
		t.Error("a call of the reflection counts")
	}
}

// TestRepeatedFailures has a model that goes on failing after each new plan.
func TestRepeatedFailures(t *testing.T) {
	cause := []answer{{text: "the cause"}}
	m := &model{answers: slices.Concat(inRow(1, 3), cause, inRow(4, 3), cause, inRow(7, 3))}
	cfg := config(m, failing("try"))
	cfg.Limits.MaxReplans = 0 // the default
	s := newSession(t, cfg)
	res, err := s.Submit(t.Context(), "go")
	var repeated *agent.RepeatedFailuresError
	if res.Status != agent.StatusRepeatedFailures || !errors.As(err, &repeated) ||
		repeated.Kind != "not_found" || repeated.Rounds != 3 || repeated.Replans != 2 ||
		!strings.HasPrefix(repeated.Message, "no c9") || res.ModelCalls != 11 {
		t.Errorf("%s after %d answers: %v", res.Status, res.ModelCalls, err)
	}
	if got := steps(res); got[len(got)-1] != "give_up failed" {
		t.Errorf("steps %q", got)
	}
	if res := submit(t, s, "again"); res.Status != agent.StatusCompleted {
		t.Errorf("the next run: %s", res.Status)
	}
}

// TestNoReplans has a model that fails as often as it likes.
func TestNoReplans(t *testing.T) {
	cfg := config(&model{answers: inRow(1, 12)}, failing("try"))
	res := submit(t, newSession(t, cfg), "go")
	if res.Status != agent.StatusCompleted || res.ModelCalls != 13 {
		t.Errorf("%s after %d answers", res.Status, res.ModelCalls)
	}
}

// TestHelp has a person who helps a failing run, or not.
func TestHelp(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		err    error
		status agent.Status
	}{
		"helped":    {"look in the attic", nil, agent.StatusCompleted},
		"no answer": {"", errors.New("end of file"), agent.StatusRepeatedFailures},
		"empty":     {" ", nil, agent.StatusRepeatedFailures},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: slices.Concat(inRow(1, 3), []answer{{text: "the cause"}}, inRow(4, 3))}
			cfg := config(m, failing("try"))
			cfg.Limits.MaxReplans = 1
			var question string
			cfg.Answer = func(ctx context.Context, q string) (string, error) {
				end, _ := ctx.Deadline()
				if left := time.Until(end); left > 30*time.Second || left < 20*time.Second {
					t.Errorf("the person has %s", left)
				}
				question = q
				return tt.answer, tt.err
			}
			res, _ := newSession(t, cfg).Submit(t.Context(), "go")
			if res.Status != tt.status || !strings.Contains(question, "no c6") {
				t.Errorf("%s, asked %q", res.Status, question)
			}
			if tt.status == agent.StatusCompleted {
				msgs := m.request(t, 7).Messages
				if text := msgs[len(msgs)-1].Text(); text != tt.answer {
					t.Errorf("the model got %q", text)
				}
			}
		})
	}
}

// TestHelpWithPermission has calls that only a person can permit.
func TestHelpWithPermission(t *testing.T) {
	change := newTool("change", false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		return tool.Result{}, &fs.PathError{Op: "write", Path: "f", Err: env.ErrReadOnlyFile}
	})
	outside := newTool("outside", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{}, &fs.PathError{Op: "write", Path: "/f", Err: env.ErrOutside}
	})
	refused := newTool("refused", false, func(context.Context, *tool.Call) (tool.Result, error) {
		t.Error("a refused call ran")
		return tool.Result{}, nil
	})
	one := func(id, name string) answer { return calls(call(id, name, object{"id": id})) }
	for name, tt := range map[string]struct {
		answers []string
		asked   int
		states  string
	}{
		"answered": {[]string{"leave it", "leave that, too"}, 2, "answer model_running"},
		"nobody":   {[]string{""}, 1, "continue model_running"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: []answer{
				one("a", "outside"), one("b", "refused"), one("c", "change"), one("d", "outside"),
				one("e", "change"),
				{text: "done"},
			}}
			cfg := config(m, change, outside, refused)
			cfg.Rules = rulesOf(t, "rules: [{permission: refused, action: ask}]\ndefault: allow")
			cfg.Limits.MaxReplans = -1
			var questions []string
			cfg.Answer = func(ctx context.Context, q string) (string, error) {
				end, _ := ctx.Deadline()
				if left := time.Until(end); left > 30*time.Second || left < 20*time.Second {
					t.Errorf("the person has %s", left)
				}
				questions = append(questions, q)
				return tt.answers[len(questions)-1], nil
			}
			res, _ := newSession(t, cfg).Submit(t.Context(), "go")
			if res.Status != agent.StatusCompleted || len(questions) != tt.asked {
				t.Fatalf("%s, asked %q", res.Status, questions)
			}
			if !strings.Contains(questions[0], "call of change was not permitted: f is read-only") {
				t.Errorf("asked %q", questions[0])
			}
			if got := steps(res); !slices.Contains(got, tt.states) {
				t.Errorf("steps %q", got)
			}
			told := slices.ContainsFunc(m.request(t, 4).Messages, func(msg llm.Message) bool {
				return msg.Role == llm.RoleUser && msg.Text() == "leave it"
			})
			if told != (tt.answers[0] != "") {
				t.Errorf("the model got the answer: %t", told)
			}
		})
	}
}

// TestCannot has a model that reports that it cannot do the task.
func TestCannot(t *testing.T) {
	exit := func(id string) answer {
		return calls(call(id, "exit", object{"code": 1, "reason": "why " + id}))
	}
	cause, ok, fine := answer{text: "the cause"}, calls(succeeds("b", "y")), calls(succeeds("e", "y"))
	done, failed := agent.StatusCompleted, agent.StatusTaskFailed
	for name, tt := range map[string]struct {
		answers []answer
		replans int
		status  agent.Status
		sent    int
		failed  int
	}{
		"it can after all": {[]answer{exit("a"), cause, ok, {text: "done"}}, 0, done, 4, 1},
		"it says so again": {[]answer{exit("a"), cause, exit("c")}, 0, failed, 3, 2},
		"it tries each time": {
			[]answer{exit("a"), cause, ok, exit("c"), cause, fine, exit("d")}, 0, failed, 7, 3,
		},
		"only one more plan":   {[]answer{exit("a"), cause, ok, exit("c")}, 1, failed, 4, 2},
		"without another plan": {[]answer{exit("a")}, -1, failed, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := &model{answers: tt.answers}
			cfg := config(m, failing("try"), tool.ExitTool())
			cfg.Limits.MaxReplans = tt.replans
			ev := watch(&cfg)
			res, err := newSession(t, cfg).Submit(t.Context(), "go")
			var reported *agent.TaskFailedError
			if res.Status != tt.status || res.ModelCalls != tt.sent || len(res.Failures) != tt.failed ||
				errors.As(err, &reported) != (tt.status == failed) ||
				(res.Exit == nil) != (tt.status == done) {
				t.Errorf("%s after %d answers, exit %v, failures %+v, %v", res.Status, res.ModelCalls, res.Exit,
					res.Failures, err)
			}
			if n := ev.count(event.KindFailure); n != tt.failed {
				t.Errorf("%d failure events", n)
			}
			if tt.replans >= 0 {
				msgs := m.request(t, 1).Messages
				if text := msgs[len(msgs)-1].Text(); !strings.Contains(text, "why a") {
					t.Errorf("the model got %q", text)
				}
			}
		})
	}
}

// TestReplanBeforeLastCheck has checks that fail: before the last one the model finds the cause.
func TestReplanBeforeLastCheck(t *testing.T) {
	m := &model{}
	cfg := configIn(t, t.TempDir(), m)
	cfg.Limits.MaxReplans = 0
	cfg.Verify = agent.Verify{Command: "echo want 1, got 2; exit 3"}
	rec := &recorder{}
	cfg.Store = func(string) (session.Store, error) { return rec, nil }
	res, _ := newSession(t, cfg).Submit(t.Context(), "go")
	if res.Status != agent.StatusVerifyFailed || res.ModelCalls != 4 || len(res.Failures) != 3 ||
		!m.request(t, 2).NoToolCalls {
		t.Errorf("%s after %d answers, failures %+v", res.Status, res.ModelCalls, res.Failures)
	}
	msgs := m.request(t, 2).Messages
	if text := msgs[len(msgs)-1].Text(); !strings.Contains(text, "want 1, got 2") ||
		!strings.Contains(text, "Call no tool now") {
		t.Errorf("the model got %q", text)
	}
	stored := entriesOf[event.Failure](t, rec, session.TypeFailure)
	if len(stored) != 3 || stored[0].Source != event.FailureVerify || *stored[0].ExitCode != 3 ||
		stored[0].Learning != "want 1, got 2" {
		t.Errorf("the journal has %+v", stored)
	}
}

// TestReplanAtLimit has no request left for a new plan.
func TestReplanAtLimit(t *testing.T) {
	cfg := config(&model{answers: inRow(1, 3)}, failing("try"))
	cfg.Limits = agent.Limits{MaxTurns: 3}
	res := submit(t, newSession(t, cfg), "go")
	if res.Status != agent.StatusLimit || res.Limit != "turns" {
		t.Errorf("%s, %s", res.Status, res.Limit)
	}
	if got := steps(res); got[len(got)-1] != "limit failed" ||
		got[len(got)-2] != "reflect reflecting" {
		t.Errorf("steps %q", got)
	}
}

// TestRefusalIsOfTheUser has a call that a rule denies.
func TestRefusalIsOfTheUser(t *testing.T) {
	cfg := config(&model{answers: []answer{calls(succeeds("a", "x"))}}, failing("try"))
	cfg.Rules = &policy.Policy{
		Rules: []policy.Rule{{Permission: "try", Pattern: "x", Action: policy.Deny}},
	}
	res := submit(t, newSession(t, cfg), "go")
	if len(res.Failures) != 1 || res.Failures[0].Source != event.FailureUser ||
		res.Failures[0].Class != event.ClassPermission {
		t.Errorf("%+v", res.Failures)
	}
}

// TestPastFailure names what helped in an earlier session, which is read once, at the first
// failure.
func TestPastFailure(t *testing.T) {
	m := &model{answers: []answer{
		calls(succeeds("a", "x")), calls(fails("b", "x", "no x, at 17")), calls(fails("c", "y", "no y")),
	}}
	cfg := config(m, failing("try"))
	reads := 0
	cfg.PastFailures = func(context.Context) []failure.Past {
		if reads++; len(m.requests) != 2 {
			t.Errorf("read after %d requests", len(m.requests))
		}
		f := failure.OfCall(llm.ToolCall{Name: "try"}, &tool.Error{
			Kind: tool.KindNotFound, Message: "no x, at 3",
		}, "", time.Time{})
		return []failure.Past{{
			Failure: f, PastFailure: event.PastFailure{SessionID: "before", Remedy: "make x"},
		}}
	}
	res := submit(t, newSession(t, cfg), "go")
	if reads != 1 || res.Failures[0].Past == nil || res.Failures[1].Past != nil {
		t.Errorf("%d reads, %+v", reads, res.Failures)
	}
	msgs := m.request(t, 2).Messages
	const want = "An earlier session (before) failed in the same way; what worked then: make x"
	if text := msgs[len(msgs)-1].Text(); text != want {
		t.Errorf("the model got %q", text)
	}
}

// TestResumedFailures goes on with the open failures of a session, one of them of a call with long
// arguments.
func TestResumedFailures(t *testing.T) {
	dir := t.TempDir()
	cfg := config(&model{answers: []answer{
		calls(fails("a", "x", "no x"), fails("b", "y", "no y\n"+strings.Repeat("long ", 1000))),
		calls(succeeds("c", "x"), fails("e", "w", "no w"), succeeds("f", "w")),
	}}, failing("try"))
	cfg.Store = session.OnDisk(dir)
	s := newSession(t, cfg)
	submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	store, r, err := session.Open(dir+"/"+s.ID(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) != 3 || !r.Failures[0].Resolved || r.Failures[0].Remedy[0].ID != "c" ||
		r.Failures[1].Resolved || !r.Failures[2].Resolved {
		t.Errorf("the record has %+v", r.Failures)
	}
	m := &model{answers: []answer{calls(fails("d", "z", "no z"))}}
	cfg.Client = m
	again, err := newAgent(t, cfg).Resume(t.Context(), store, r, agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close() //nolint:errcheck // the test has what it needs
	submit(t, again, "go on")
	msgs := m.request(t, 1).Messages
	if text := msgs[len(msgs)-1].Text(); !strings.Contains(text, "- try y: no y") ||
		!strings.Contains(text, "- try z: no z") || strings.Contains(text, "try x") ||
		strings.Contains(text, "try w") {
		t.Errorf("the model got %q", text)
	}
}

// TestStrikeTellsFailures has three failures in a row: the model that looks for the cause is told
// all of them.
func TestStrikeTellsFailures(t *testing.T) {
	m := &model{answers: inRow(1, 3)}
	cfg := config(m, failing("try"))
	cfg.Limits.MaxReplans = 2
	submit(t, newSession(t, cfg), "go")
	msgs := m.request(t, 3).Messages
	text := msgs[len(msgs)-1].Text()
	for _, want := range []string{
		"3 times in a row", "- try c1: no c1", "- try c3: no c3", "Call no tool now",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the model got %q, without %q", text, want)
		}
	}
}

// contested is an environment in which others write a file between its read and its write, once.
type contested struct {
	env.Environment

	others func()
}

func (c *contested) WriteFile(
	ctx context.Context, name string, r io.Reader, o env.WriteOptions,
) (env.Written, error) {
	if c.others != nil {
		c.others()
		c.others = nil
	}
	return c.Environment.WriteFile(ctx, name, r, o)
}

// TestProgressFileOfOthers adds a line to a file that others make and write meanwhile.
func TestProgressFileOfOthers(t *testing.T) {
	for _, before := range []string{"", "# Progress\n"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "progress.md")
		if before != "" {
			write(t, file, before)
		}
		cfg := configIn(t, dir, &model{answers: []answer{calls(fails("a", "x", "no x"))}}, failing("try"))
		cfg.ProgressFile = "progress.md"
		cfg.Env = &contested{cfg.Env, func() { write(t, file, before+"- of others\n") }}
		submit(t, newSession(t, cfg), "go")
		got, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(got), before+"- of others\n- ") ||
			!strings.HasSuffix(string(got), "try not_found: no x; look for it before you use it.\n") {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestProgressFileOfAgents has one file for all agents, whatever their directories, and none in
// plan mode.
func TestProgressFileOfAgents(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "there"), "")
	c := one(object{"working_dir": "sub"}, calls(fails("x", "x", "no x")))
	cfg := treeConfigIn(t, dir, c, failing("try"))
	cfg.ProgressFile = "progress.md"
	submit(t, newSession(t, cfg), "go")
	if got, err := os.ReadFile(filepath.Join(dir, "progress.md")); err != nil ||
		!strings.Contains(string(got), "no x") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub", "progress.md")); err == nil {
		t.Error("the directory of the agent has a file, too")
	}
	dir = t.TempDir()
	cfg = configIn(t, dir, &model{answers: []answer{calls(fails("a", "x", "no x"))}}, failing("try"))
	cfg.ProgressFile, cfg.Modes = "progress.md", &agent.Modes{Plan: true}
	cfg.Rules = &policy.Policy{Default: policy.Allow}
	res := submit(t, newSession(t, cfg), "go")
	if _, err := os.Stat(filepath.Join(dir, "progress.md")); err == nil || len(res.Failures) != 1 {
		t.Errorf("%d failures, and in plan mode there is a file: %t", len(res.Failures), err == nil)
	}
}

// TestProgressFile adds lines to a file that exists.
func TestProgressFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "progress.md"), "# Progress\n")
	m := &model{answers: []answer{calls(fails("a", "x", "no x"), succeeds("b", "y")), {text: "done"}}}
	cfg := configIn(t, dir, m, failing("try"))
	cfg.ProgressFile = "progress.md"
	cfg.Verify = agent.Verify{Command: "echo wrong; exit 1", Attempts: 1}
	res, _ := newSession(t, cfg).Submit(t.Context(), "go")
	if len(res.Failures) != 2 {
		t.Fatalf("failures %+v", res.Failures)
	}
	stamp := func(i int) string { return res.Failures[i].Time.UTC().Format(time.RFC3339) }
	want := "# Progress\n- " + stamp(0) + " try not_found: no x; look for it before you use it.\n- " +
		stamp(1) + " check_failed: wrong\n"
	if got, err := os.ReadFile(filepath.Join(dir, "progress.md")); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestProgressFileFails has a file that cannot be written: one warning, and the run goes on.
func TestProgressFileFails(t *testing.T) {
	m := &model{answers: []answer{calls(fails("a", "x", "no x")), calls(fails("b", "y", "no y"))}}
	cfg := configIn(t, t.TempDir(), m, failing("try"))
	cfg.ProgressFile = "." // a directory
	ev := watch(&cfg)
	res := submit(t, newSession(t, cfg), "go")
	if said := ev.warnings("progress_file"); res.Status != agent.StatusCompleted || len(said) != 1 ||
		!strings.Contains(said[0], "no progress is noted: ") {
		t.Errorf("%s, warnings %q", res.Status, said)
	}
}

// TestReflectionIsNoAnswer has a reflection that the output limit cuts, beside an answer that it
// cut before.
func TestReflectionIsNoAnswer(t *testing.T) {
	m := &model{answers: slices.Concat(
		inRow(1, 2), []answer{{text: "half", calls: []llm.ToolCall{fails("x", "x", "no x")}}},
		[]answer{{text: "the cau", finish: llm.FinishLength}}, []answer{{text: "done"}},
	)}
	cfg := config(m, failing("try"))
	cfg.Limits.MaxReplans = 1
	res := submit(t, newSession(t, cfg), "go")
	if res.Final != "done" {
		t.Errorf("%q", res.Final)
	}
}

// TestReflectionTooLong has a server that refuses the request for the cause as too long.
func TestReflectionTooLong(t *testing.T) {
	long := strings.Repeat("a long result ", 400)
	m := &model{answers: slices.Concat(
		[]answer{calls(succeeds("a", "x"))}, inRow(1, 3),
		[]answer{{err: &llm.Error{Kind: llm.KindContextLength}}, {text: "summary"}, {text: "cause"}},
	)}
	big := failing("try")
	run := big.Run
	big.Run = func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		res, err := run(ctx, c)
		return tool.Result{Text: res.Text + long}, err
	}
	cfg := config(m, big)
	cfg.Limits.MaxReplans, cfg.Profile.ContextWindow = 1, 1_000_000
	res, err := newSession(t, cfg).Submit(t.Context(), long)
	if res.Status != agent.StatusCompleted {
		t.Errorf("%s, %v, steps %q", res.Status, err, steps(res))
	}
}

// TestStrikesOfOneInput has failing rounds in two inputs: the user may have changed something.
func TestStrikesOfOneInput(t *testing.T) {
	m := &model{answers: slices.Concat(
		inRow(1, 2), []answer{{text: "first"}}, inRow(3, 2), []answer{{text: "second"}},
	)}
	cfg := config(m, failing("try"))
	cfg.Limits.MaxReplans = 1
	s := newSession(t, cfg)
	submit(t, s, "go")
	if res := submit(t, s, "again"); res.Final != "second" {
		t.Errorf("%q, steps %q", res.Final, steps(res))
	}
}

// TestFailuresBesideTheEnd has a failure in the answer that also ends the run.
func TestFailuresBesideTheEnd(t *testing.T) {
	exit := func(id string) llm.ToolCall {
		return call(id, "exit", object{"code": 1, "reason": "why"})
	}
	m := &model{answers: []answer{
		calls(fails("a", "x", "no x"), exit("b")),
		{text: "the cause"},
		calls(succeeds("c", "x"), exit("d")),
		{text: "the next cause"},
		{text: "done"},
	}}
	cfg := config(m, failing("try"), tool.ExitTool())
	cfg.Limits.MaxReplans = 5
	ev := watch(&cfg)
	res := submit(t, newSession(t, cfg), "go")
	if res.Final != "done" || res.ModelCalls != 5 {
		t.Errorf("%q after %d answers", res.Final, res.ModelCalls)
	}
	resolved := false
	for _, e := range ev.all {
		if d, ok := e.Data.(event.ToolCallEnd); ok && slices.Equal(d.Resolved, []string{"a"}) {
			resolved = d.CallID == "c"
		}
	}
	if !resolved {
		t.Error("the success resolves nothing")
	}
}

// TestPastRemedyWithoutSecrets has a remedy of a session that kept secrets.
func TestPastRemedyWithoutSecrets(t *testing.T) {
	m := &model{answers: []answer{calls(fails("b", "x", "no x"))}}
	cfg := config(m, failing("try"))
	cfg.Redactor = redact.New(redact.Values, map[string]string{"PASSWORD": "hunter2-hunter2"})
	cfg.PastFailures = func(context.Context) []failure.Past {
		f := failure.OfCall(llm.ToolCall{Name: "try"}, &tool.Error{
			Kind: tool.KindNotFound, Message: "no x",
		}, "", time.Time{})
		return []failure.Past{{Failure: f, PastFailure: event.PastFailure{
			SessionID: "before", Remedy: "login hunter2-hunter2",
		}}}
	}
	submit(t, newSession(t, cfg), "go")
	if text := lastText(t, m, 1); strings.Contains(text, "hunter2-") ||
		!strings.Contains(text, "what worked then: login [") {
		t.Errorf("the model got %q", text)
	}
}

// TestPlannerWithoutItsTools has a run whose policy leaves them out.
func TestPlannerWithoutItsTools(t *testing.T) {
	m := &model{}
	cfg := config(m, failing("try"))
	cfg.Planner, cfg.Policy.Allow = true, []string{"try"}
	res := submit(t, newSession(t, cfg), "go")
	if got := steps(res); got[1] != "prepared model_running" || len(m.request(t, 0).Messages) != 1 {
		t.Errorf("steps %q, %+v", got, m.request(t, 0).Messages)
	}
}
