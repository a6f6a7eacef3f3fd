package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestLearning has models on each wire whose calls fail, and models that plan.
func TestLearning(t *testing.T) {
	for _, tt := range []struct {
		name  string
		prove func(*testing.T, wire)
	}{
		{"three_strikes", proveStrikes},
		{"repeated_failures", proveRepeated},
		{"recitation", proveRecitation},
		{"plan_with_agents", provePlan},
		{"provider_options", proveProviderOptions},
		{"equal_requests", proveEqualRequests},
		{"cache", proveCache},
	} {
		t.Run(tt.name, func(t *testing.T) { onWires(t, tt.prove) })
	}
}

// fail is a call of a command that fails and prints text.
func fail(text string) llmtest.Call { return shell("echo " + text + "; exit 3") }

// proveStrikes has a model that fails three times, finds the cause, and makes a new plan.
func proveStrikes(t *testing.T, w wire) {
	s := wireSession(t, w, llmtest.Sequence(
		llmtest.Use(fail("no module")), llmtest.Use(fail("no module")), llmtest.Use(fail("no module")),
		llmtest.Text("The module is missing."), llmtest.Use(shell("echo fine")), llmtest.Text("done"),
	))
	res := s.submit("go")
	if res.Final != "done" || res.ModelCalls != 6 || len(res.Failures) != 3 {
		t.Errorf("%q after %d answers, failures %+v", res.Final, res.ModelCalls, res.Failures)
	}
	var steps []string
	for _, step := range res.Transitions {
		steps = append(steps, string(step.To))
	}
	const path = "tool_running model_running reflecting replanning model_running tool_running"
	if got := strings.Join(steps, " "); !strings.Contains(got, path) {
		t.Errorf("the states are %s", got)
	}
	for n := range 6 {
		if got := s.request(n).NoToolCalls; got != (n == 3) {
			t.Errorf("request %d forbids calls: %t", n, got)
		}
	}
	wantContains(
		t,
		"request 3",
		string(s.request(3).Body),
		"have failed 3 times in a row (shell_exit)",
		"no module",
		"Call no tool now",
	)
	wantContains(t, "request 4", string(s.request(4).Body), "The module is missing.",
		"Do not repeat what has failed")
	wantContains(t, "the result", s.shown(1)[0],
		"[This failure is recoverable. Next: find the cause and correct it before you repeat the call.]")
	for i, end := range data[event.TextEnd](s) {
		if end.Reflection != (i == 3) {
			t.Errorf("answer %d is a reflection: %t", i, end.Reflection)
		}
	}
}

// proveRepeated has a model that fails after the only new plan, too.
func proveRepeated(t *testing.T, w wire) {
	failing := slices.Repeat([]llmtest.Reply{llmtest.Use(fail("never"))}, 3)
	s := wireSession(t, w, llmtest.Sequence(
		slices.Concat(failing, []llmtest.Reply{llmtest.Text("No idea.")}, failing)...,
	), func(c *agent.Config) { c.Limits.MaxReplans = 1 })
	res, err := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusRepeatedFailures || err == nil || len(res.Failures) != 6 {
		t.Errorf("%s, %v, %d failures", res.Status, err, len(res.Failures))
	}
	if errs := data[event.Error](s); len(errs) != 1 || errs[0].Code != "repeated_failures" {
		t.Errorf("errors %+v", errs)
	}
}

// proveRecitation has open failures that the model is told of again until they are resolved.
func proveRecitation(t *testing.T, w wire) {
	s := wireSession(t, w, llmtest.Sequence(
		llmtest.Use(shell("cat left"), shell("true")), llmtest.Use(shell("cat other"), shell("true")),
		llmtest.Use(shell("echo x > left; cat left")), llmtest.Use(shell("cat more"), shell("true")),
		llmtest.Text("done"),
	))
	s.submit("go")
	const head = "Open failures, the newest last"
	body := func(n int) string { return string(s.request(n).Body) }
	if strings.Contains(body(1), head) || strings.Count(body(2), head) != 1 ||
		!strings.Contains(body(2), "- shell cat left: ") || strings.Count(body(3), head) != 1 {
		t.Errorf("the requests end with %s and %s", tail(body(2)), tail(body(3)))
	}
	last := s.request(4).Messages
	text := last[len(last)-1].Text()
	if !strings.Contains(text, head) || strings.Contains(text, "cat left") ||
		!strings.Contains(text, "other") || !strings.Contains(text, "more") {
		t.Errorf("the last request ends with %q", text)
	}
}

// tail returns the end of a text.
func tail(text string) string { return text[max(0, len(text)-1000):] }

// provePlan has a plan whose independent subtasks two agents do at the same time: each waits for
// the other one. A failure cancels what depends on it.
func provePlan(t *testing.T, w wire) {
	meet := func(mine, other string) llmtest.Call {
		return shell(fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo met", mine, other))
	}
	task := func(id string, more map[string]any) map[string]any {
		more["id"], more["title"] = id, "do "+id
		return more
	}
	write := use("plan_write", map[string]any{
		"goal": "both", "on_failure": "cancel", "tasks": []any{
			task("check", map[string]any{"depends_on": []string{"one", "two"}}),
			task("one", map[string]any{"parallel": true}), task("two", map[string]any{"parallel": true}),
		},
	})
	change := func(id, status string) map[string]any {
		return map[string]any{"id": id, "status": status}
	}
	spawn := func(id string) llmtest.Call {
		return use("spawn_agent", map[string]any{"task": "do " + id})
	}
	wait := func(id string) llmtest.Call { return use("wait", map[string]any{"agent_id": id}) }
	root := 0
	s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
		for mine, other := range map[string]string{"one": "two", "two": "one"} {
			switch first := r.Messages[0].Text(); {
			case !strings.HasPrefix(first, "do "+mine):
			case len(results(r)) == 0:
				return llmtest.Use(meet(mine, other))
			default:
				return llmtest.Text("I have " + strings.TrimSpace(results(r)[0].Text()))
			}
		}
		replies := []llmtest.Reply{
			llmtest.Use(write), llmtest.Use(spawn("one"), spawn("two"), wait("agent_1"), wait("agent_2")),
			llmtest.Use(use("plan_update", map[string]any{
				"changes": []any{change("one", "completed"), change("two", "failed")},
			})),
			llmtest.Text("half of it"),
		}
		root++
		return replies[root-1]
	}, func(c *agent.Config) { c.Planner = true })
	res := s.submit("make both")
	var got []string
	for _, t := range res.Plan.Tasks {
		got = append(got, t.ID+" "+string(t.Status))
	}
	if !slices.Equal(got, []string{"one completed", "two failed", "check cancelled"}) ||
		len(res.Agents) != 2 {
		t.Errorf("the plan is %q, agents %+v", got, res.Agents)
	}
	for _, a := range res.Agents {
		if a.Status != "completed" {
			t.Errorf("%+v", a)
		}
	}
	updates := data[event.PlanUpdated](s)
	if len(updates) != 2 || updates[0].Tasks[2].Status != plan.Blocked {
		t.Errorf("updates %+v", updates)
	}
	found := false
	for _, r := range s.server.Requests() {
		found = found || strings.Contains(string(r.Body), "Plan (0 of 3 completed): both")
	}
	if !found || res.Transitions[1].To != agent.StatePlanning {
		t.Errorf("the plan was told again: %t, steps %+v", found, res.Transitions)
	}
}

// proveProviderOptions has the program add fields to requests.
func proveProviderOptions(t *testing.T, w wire) {
	flags := map[string][]string{
		llmtest.Responses: {"service_tier=flex", `metadata={"user":"ci"}`},
		llmtest.Chat:      {"seed=7", "service_tier=flex"},
		llmtest.Messages:  {`metadata={"user_id":"ci"}`, `betas=["some-beta"]`},
		llmtest.Generate:  {`generationConfig={"temperature":0.5}`},
	}[w.name]
	want := map[string][]string{
		llmtest.Responses: {`"service_tier":"flex"`, `"metadata":{"user":"ci"}`},
		llmtest.Chat:      {`"seed":7`, `"service_tier":"flex"`},
		llmtest.Messages:  {`"metadata":{"user_id":"ci"}`},
		llmtest.Generate:  {`"temperature":0.5`},
	}[w.name]
	srv := llmtest.NewServer(t, w.brain(llmtest.Sequence(llmtest.Text("ok"))))
	args := append([]string{"run", "--yes", "go"}, modelFlags(srv, w)...)
	for _, f := range flags {
		args = append(args, "--provider-option="+f)
	}
	got := runCommand(t, t.TempDir(), []string{"SANDBOXAGENT_API_KEY=" + srv.Key()}, args...)
	if got.code != 0 || len(flags) == 0 {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	r := srv.Requests()[0]
	wantContains(t, "the request", string(r.Body), want...)
	if beta := r.Header.Get("anthropic-beta"); (beta == "some-beta") != (w.name == llmtest.Messages) {
		t.Errorf("the header is %q", beta)
	}
}

// proveEqualRequests has two sessions with equal entries: their requests have equal bytes.
func proveEqualRequests(t *testing.T, w wire) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"f.txt": "content\n"})
	e := openEnvironment(t, dir)
	bodies := func() (list []string) {
		srv := llmtest.NewServer(t, w.brain(llmtest.Sequence(
			llmtest.Use(readFile("f.txt"), readFile("missing.txt")), llmtest.Text("read"),
			llmtest.Text("again"),
		)))
		client, err := w.client(srv, 0)
		if err != nil {
			t.Fatal(err)
		}
		a, err := agent.New(agent.Config{
			Client: client, Profile: w.profile, Env: e, Clock: noon{},
			Store: journal.OnDisk(filepath.Join(t.TempDir(), "sessions")),
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := a.NewSession(t.Context(), agent.SessionOptions{ID: "same"})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close() //nolint:errcheck // only the requests count
		for _, text := range []string{"read it", "and again"} {
			if res, err := s.Submit(t.Context(), text); err != nil {
				t.Fatalf("%s, %v", res.Status, err)
			}
		}
		for _, r := range srv.Requests() {
			list = append(list, string(r.Body))
		}
		return list
	}
	if first, second := bodies(), bodies(); len(first) != 3 || !slices.Equal(first, second) {
		t.Errorf(
			"%d requests:\n%s\n%s",
			len(first),
			strings.Join(first, "\n"),
			strings.Join(second, "\n"),
		)
	}
}

// inTurn holds requests back: the first one of a sub-agent until the root sends its request n, and
// that one until the sub-agent sends its second.
func inTurn(client llm.Client, n int, isRoot func(llm.Request) bool) llm.Client {
	asked, worked := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	own, others := 0, 0
	wait := func(r llm.Request) <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if isRoot(r) {
			if own++; own == n {
				close(asked)
				return worked
			}
			return nil
		}
		if others++; others == 1 {
			return asked
		}
		close(worked)
		return nil
	}
	return llm.ClientFunc(func(ctx context.Context, r llm.Request) iter.Seq2[llm.Delta, error] {
		if done := wait(r); done != nil {
			select {
			case <-done:
			case <-ctx.Done():
			}
		}
		return client.Stream(ctx, r)
	})
}

// proveCache has a model that reads files twice, and a sub-agent that writes one of them between
// two reads, while nothing else runs.
func proveCache(t *testing.T, w wire) {
	const pairs = 10 // a machine may be too slow for some of them: results are kept for two seconds
	var replies []llmtest.Reply
	for n := range pairs {
		read := llmtest.Use(readFile(fmt.Sprintf("%d.txt", n)))
		replies = append(replies, read, read)
	}
	replies = append(replies,
		llmtest.Use(use("spawn_agent", map[string]any{"task": "write it"})),
		llmtest.Use(readFile("a.txt")), llmtest.Use(readFile("a.txt")), llmtest.Text("read"),
	)
	root := llmtest.Sequence(replies...)
	s := wireSession(t, w, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case r.Messages[0].Text() != "write it":
			return root(r)
		case len(results(r)) == 0:
			return llmtest.Use(shell("echo new >a.txt"))
		}
		return llmtest.Text("written")
	}, func(c *agent.Config) {
		c.Client = inTurn(c.Client, len(replies)-1, func(r llm.Request) bool {
			return r.Messages[0].Text() != "write it"
		})
	})
	s.write("a.txt", "old\n")
	for n := range pairs {
		s.write(fmt.Sprintf("%d.txt", n), "same\n")
	}
	if res := s.submit("read"); res.Final != "read" {
		t.Fatalf("ended with %q", res.Final)
	}
	var reads []event.ToolCallEnd
	hits := 0
	for _, end := range data[event.ToolCallEnd](s) {
		if end.Name == "read_file" {
			reads = append(reads, end)
			if slices.Contains(end.Steps, event.StepCache) {
				hits++
			}
		}
	}
	if len(reads) != 2*pairs+2 {
		t.Fatalf("%d files were read", len(reads))
	}
	last := reads[len(reads)-1]
	if hits == 0 || reads[0].Result != reads[1].Result ||
		!strings.Contains(reads[2*pairs].Result, "old") || !strings.Contains(last.Result, "new") ||
		slices.Contains(last.Steps, event.StepCache) {
		t.Errorf("%d hits, the last reads are %+v", hits, reads[2*pairs:])
	}
}

// noon is a clock that stands still.
type noon struct{}

func (noon) Now() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func (noon) Sleep(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }

// TestTrajectoryOfThisRepository has a model repair a package in a copy of this repository, and
// exports what it did.
func TestTrajectoryOfThisRepository(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "copy")
	git := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	}
	if out, err := git("rev-parse", "--is-inside-work-tree"); err != nil {
		t.Skipf("this is no git repository: %s", out)
	}
	if out, err := git("clone", "-q", "--depth=1", "file://"+abs(t, ".."), dir); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const file, right, wrong = "runtime/plan/plan.go", "maxLines = 10", "maxLines = 11"
	source, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || strings.Count(string(source), right) != 1 {
		t.Fatalf("%s: %v", file, err)
	}
	writeTree(t, dir, map[string]string{file: strings.Replace(string(source), right, wrong, 1)})
	test := use("shell", map[string]any{
		"command": "GOTOOLCHAIN=local go test ./runtime/plan", "timeout_ms": 500_000,
	})
	patch := "*** Begin Patch\n*** Update File: " + file + "\n@@\n-\t" + wrong + "\n+\t" + right +
		"\n*** End Patch\n"
	first := llmtest.Use(test)
	first.Reasoning = "The tests tell what is wrong."
	srv := llmtest.NewServer(t, llmtest.Sequence(
		first, llmtest.Use(shell("ls runtime/planner")), llmtest.Use(shell("cat runtime/plans.go")),
		llmtest.Text("I guessed the names of files. The failing test is in runtime/plan."),
		llmtest.Use(readFile(file)), llmtest.Use(use("apply_patch", map[string]any{"patch": patch})),
		llmtest.Use(test), llmtest.Text("The plan shows ten subtasks again."),
	))
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goCache := strings.TrimSpace(string(cache))
	state := "SANDBOXAGENT_STATE_DIR=" + t.TempDir()
	vars := []string{"OPENAI_API_KEY=" + srv.Key(), state}
	got := runCommand(t, dir, vars, "run", "--yes", "--allow-write", goCache, "--var",
		"GOCACHE="+goCache, "--model=openai/gpt-5.2", "--base-url="+srv.URL(), "--output=json",
		"Make the tests of the plan pass.")
	var res event.Result
	if err := json.Unmarshal([]byte(got.stdout), &res); err != nil || got.code != 0 {
		t.Fatalf("exit code %d, %v: %s", got.code, err, got.stderr)
	}
	exported := runCommand(t, dir, vars, "session", "export", "--format=trajectory", res.SessionID,
		"-")
	id, steps, err := journal.ReadTrajectory(strings.NewReader(exported.stdout))
	if err != nil || id != res.SessionID {
		t.Fatalf("%s, %v: %s", id, err, exported.stderr)
	}
	var kinds []string
	for _, s := range steps {
		kinds = append(kinds, string(s.Kind))
	}
	const round = " action observation"
	const want = "input thought" + round + round + " steering" + round +
		" steering reflection steering" + round + round + round + " answer"
	if got := strings.Join(kinds, " "); got != want {
		t.Fatalf("the steps are %s: %+v", got, steps)
	}
	if f := steps[3].Failure; f == nil || f.Tool != "shell" || *f.ExitCode != 1 ||
		!strings.Contains(steps[3].Text, "TestReciteBounds") || steps[17].IsError {
		t.Errorf("the first test: %+v, the last: %q", f, steps[17].Text)
	}
	if steps[1].Text != first.Reasoning || !strings.HasPrefix(steps[10].Text, "I guessed the names") {
		t.Errorf("the thought is %q, the reflection %q", steps[1].Text, steps[10].Text)
	}
	shown := runCommand(t, dir, vars, "session", "show", "--failures", res.SessionID)
	wantContains(t, "the failures", shown.stdout, "resolved, shell_exit", "helped  apply_patch ")
}

// abs returns an absolute name.
func abs(t *testing.T, name string) string {
	t.Helper()
	name, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return name
}
