package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/wrap"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// appendixProofs prove the lines about patches, tools, errors and the end of a session.
var appendixProofs = map[string]func(*testing.T){
	"A.1": withFirst(provePatch),
	"A.2": withFirst(provePatch),
	"A.3": withFirst(provePatch),
	"A.4": withEach(proveParameters),
	"B.1": withEach(proveToolErrors),
	"B.2": proveSessionErrors,
	"B.3": proveShutdown,
}

// proveParameters compares the tools that the model is offered, and their parameters, required ones
// with a star.
func proveParameters(t *testing.T, p provider) {
	want := map[string]string{
		"read_file": "file_path* limit offset", "write_file": "content* file_path*",
		"shell": "command* description timeout_ms",
		"grep":  "case_insensitive glob_filter max_results output_mode path pattern*",
		"glob":  "path pattern*", "list_dir": "depth path*",
		"ask_user": "options question*", "exit": "code* reason*",
		"spawn_agent": "agent_type max_turns model task* working_dir", "send_input": "agent_id* message*",
		"wait": "agent_id*", "close_agent": "agent_id*",
	}
	switch p.name {
	case "openai":
		want["apply_patch"] = "patch*"
	case "anthropic":
		want["grep"] = "-A -B -C -n case_insensitive glob_filter max_results multiline offset " +
			"output_mode path pattern* type"
	case "gemini":
		want["read_many_files"] = "paths patterns"
		want["grep"] = "after before case_insensitive case_sensitive context exclude_pattern " +
			"fixed_strings glob_filter max_matches_per_file max_results " +
			"names_only no_ignore output_mode path pattern*"
		want["glob"] = "case_sensitive path pattern* respect_git_ignore"
	}
	if p.name != "openai" {
		want["edit_file"] = "file_path* new_string* old_string* replace_all"
	}
	s := p.session(t, textBrain("yes"))
	s.submit("hello")
	got := map[string]string{}
	for _, spec := range s.request(0).Tools {
		var schema struct {
			Properties map[string]any
			Required   []string
		}
		if err := json.Unmarshal(spec.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range schema.Properties {
			if slices.Contains(schema.Required, name) {
				name += "*"
			}
			names = append(names, name)
		}
		slices.Sort(names)
		got[spec.Name] = strings.Join(names, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// proveToolErrors makes each error that a tool can have; the model gets all of them as results, and
// goes on.
func proveToolErrors(t *testing.T, p provider) {
	conflict := use("edit_file", map[string]any{
		"file_path": "f", "old_string": "not there", "new_string": "x",
	})
	if p.name == "openai" {
		conflict = patch("*** Update File: f\n@@\n-not there\n+x\n")
	}
	failures := []struct {
		kind tool.ErrorKind
		call llmtest.Call
		text string
	}{
		{tool.KindNotFound, readFile("nowhere.txt"), "nowhere.txt"},
		{tool.KindEditConflict, conflict, "f"},
		{tool.KindShellExit, shell("echo so far; exit 7"), "so far"},
		{tool.KindShellTimeout, use("shell", map[string]any{
			"command": "echo begun; sleep 300", "timeout_ms": 3000,
		}), "begun"},
		{tool.KindPermission, use("write_file", map[string]any{
			"file_path": "/outside.txt", "content": "x",
		}), "outside"},
		{tool.KindValidation, use("shell", map[string]any{"command": 7}), "command"},
		{tool.KindUnknownTool, use("teleport", map[string]any{}), "teleport"},
	}
	var calls []llmtest.Call
	for _, f := range failures {
		calls = append(calls, f.call)
	}
	s := p.session(t, llmtest.Sequence(llmtest.Use(calls...), llmtest.Text("I see")),
		func(c *agent.Config) { c.Env = wrap.Subdir(c.Env, ".") })
	s.write("f", "text\n")
	res := s.submit("fail")
	shown := s.shown(1)
	if len(shown) != len(failures) || len(res.Failures) != len(failures) {
		t.Fatalf("%d results and %d failures: %+v", len(shown), len(res.Failures), res.Failures)
	}
	p.wantResults(t, s.request(1), slices.Repeat([]bool{true}, len(failures))...)
	for i, f := range failures {
		is := func(have event.Failure) bool { return have.Kind == string(f.kind) }
		if !slices.ContainsFunc(res.Failures, is) {
			t.Errorf("no failure is a %s: %+v", f.kind, res.Failures)
		}
		wantContains(t, "the result of "+string(f.kind), shown[i], f.text)
	}
	s.wantFile("f", "text\n")
}

// proveSessionErrors makes errors of the session: those that are retried, those that close it, and
// a limit, which leaves it open.
func proveSessionErrors(t *testing.T) {
	s := newSession(t, llmtest.Storm(2, llmtest.Fault{Reset: true}, textBrain("at last")))
	if res := s.submit("go"); res.Final != "at last" || len(data[event.Retry](s)) != 2 ||
		s.State() != agent.SessionIdle {
		t.Errorf("%q after %d retries, session %s", res.Final, len(data[event.Retry](s)), s.State())
	}
	for _, line := range []string{"9.11.2", "9.11.3", "9.11.4", "9.1.4"} {
		t.Run(line, loopProofs[line])
	}
}

// proveShutdown aborts a run whose command ignores SIGTERM, while a sub-agent runs another one.
func proveShutdown(t *testing.T) {
	marker := "shutdown-" + fmt.Sprint(time.Now().UnixNano())
	s := newSession(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.Contains(r.Messages[0].Text(), "the part"):
			return llmtest.Use(shell("echo ready; sleep 300; : " + marker))
		case r.Messages[len(r.Messages)-1].Role == llm.RoleUser:
			return llmtest.Use(use("spawn_agent", map[string]any{"task": "the part"}))
		}
		return llmtest.Use(use("shell", map[string]any{
			"command": "trap 'echo TERM > got' TERM; echo ready; while :; do sleep 0.1; done; : " +
				marker, "timeout_ms": 300_000,
		}))
	})
	w := watchFor(t, marker)
	var ready atomic.Int32
	s.Subscribe(1000, func(e event.Event) {
		if d, ok := e.Data.(event.ToolOutputDelta); ok && strings.Contains(d.Text, "ready") &&
			ready.Add(1) == 2 {
			go s.Abort()
		}
	})
	res, err := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusAborted || !errors.Is(err, agent.ErrAborted) {
		t.Fatalf("ended with %s, %v", res.Status, err)
	}
	if s.State() != agent.SessionIdle {
		t.Errorf("after Abort the session is %s", s.State())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.wantFile("got", "TERM\n")
	w.gone()
	if s.State() != agent.SessionClosed || len(res.Agents) != 1 ||
		res.Agents[0].Status != string(tool.AgentFailed) {
		t.Errorf("session %s, agents %+v", s.State(), res.Agents)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends []string
	for _, e := range s.events {
		if k := e.Kind(); k == event.KindSessionEnd || k == event.KindProcessingEnd {
			ends = append(ends, strings.TrimSpace(e.AgentID+" "+string(k)))
		}
	}
	want := []string{"agent_1 processing_end", "processing_end", "agent_1 session_end", "session_end"}
	// A sub-agent that was aborted closes at once, which may be before its parent's run has ended.
	early := []string{want[0], want[2], want[1], want[3]}
	if !slices.Equal(ends, want) && !slices.Equal(ends, early) {
		t.Errorf("the ends come in the order %q", ends)
	}
	if last := s.events[len(s.events)-1]; last.Kind() != event.KindSessionEnd || last.AgentID != "" {
		t.Errorf("the last event is %+v", last)
	}
}
