package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestSteps shows the steps of calls in events: look up, validate, permission, cache, backup,
// execute, check, truncate, record.
func TestSteps(t *testing.T) { synctest.Test(t, testSteps) } // no time passes for the cache

func testSteps(t *testing.T) {
	dir, sessions := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "f"), "old\n")
	write(t, filepath.Join(dir, "long"), strings.Repeat("a long line of text in a file\n", 5000))
	read := func(id, name string) answer {
		return calls(call(id, "read_file", object{"file_path": name}))
	}
	change := func(id string) answer {
		return calls(call(id, "write_file", object{"file_path": "f", "content": "new\n"}))
	}
	m := &model{answers: []answer{
		calls(call("unknown", "nothing", nil)), calls(call("invalid", "read_file", nil)),
		read("read", "f"), read("again", "f"), change("refused"), change("changed"), read("fresh", "f"),
		read("long", "long"),
	}}
	cfg := configIn(t, dir, m, tool.ReadFile(), tool.WriteFile())
	cfg.Store, cfg.Backups = session.OnDisk(sessions), true
	cfg.Rules = rulesOf(t,
		"rules: [{permission: read, action: allow}, {permission: write, action: ask}]")
	asked := 0
	cfg.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
		if asked++; asked == 1 {
			return agent.Reply{Verdict: agent.Refuse}, nil
		}
		return agent.Reply{Verdict: agent.ApproveOnce}, nil
	}
	var got []string
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		switch d := e.Data.(type) {
		case event.ToolCallStart:
			got = append(got, d.CallID+":")
		case event.PermissionAsked:
			got = append(got, "asked")
		case event.PermissionReplied:
			got = append(got, d.Answer)
		case event.ToolCallEnd:
			for _, s := range d.Steps {
				got = append(got, string(s))
			}
			got = append(got, d.ErrorKind)
			journal, _ := filepath.Glob(filepath.Join(sessions, "*", "journal.jsonl"))
			text, err := os.ReadFile(strings.Join(journal, ""))
			if err != nil || !strings.Contains(string(text), fmt.Sprintf(`{"call_id":%q`, d.CallID)) {
				t.Errorf("%s: its result is not in the journal yet: %v", d.CallID, err)
			}
		}
		return nil
	})
	if _, err := newSession(t, cfg).Submit(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	const start, end = "look_up validate permission ", "check record"
	want := []string{
		"unknown: record unknown_tool", "invalid: look_up validate " + end + " validation",
		"read: " + start + "execute " + end, "again: " + start + "cache record",
		"refused: asked deny " + start + end + " permission_denied",
		"changed: asked once " + start + "backup execute " + end,
		"fresh: " + start + "execute " + end, "long: " + start + "execute check truncate record",
	}
	have := strings.Fields(strings.Join(got, " "))
	if all := strings.Fields(strings.Join(want, " ")); !slices.Equal(have, all) {
		t.Errorf("the steps are\n%s\nnot\n%s", strings.Join(have, " "), strings.Join(all, " "))
	}
	if content, _ := os.ReadFile(filepath.Join(dir, "f")); string(content) != "new\n" {
		t.Errorf("%q", content)
	}
}
