package recording

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestNormalizers gives each normalizer texts that are equal to it, and texts that are not.
func TestNormalizers(t *testing.T) {
	tests := map[string]struct{ equal, different [][2]string }{
		"ids": {
			equal: [][2]string{{
				"session 01a21bc9-7da1-7510-a551-544aa61b2cff.",
				"session 01a21bca-9eed-75f9-a9cb-f697c223664c.",
			}},
			different: [][2]string{{"commit 01a21bc", "commit 01a21bd"}, {"call_1", "call_2"}},
		},
		"temporary paths": {
			equal: [][2]string{
				{"/tmp/tmp.aZ3dEfGhIj/x", "/tmp/tmp.bQ9dEfGhIj/x"},
				{"/tmp/TestX123456/001", "/tmp/TestX98765/001"},
				{"/var/folders/zz/a1/T/go-build12345", "/var/folders/zz/a1/T/go-build999"},
				{`C:\Users\me\Temp\tmp8f3k2ab`, `C:\Users\me\Temp\tmp9zzz2ab`},
			},
			different: [][2]string{
				{"/tmp/build.log", "/tmp/test.log"},
				{"/tmp/tmp.aZ3dEfGhIj/x", "/tmp/tmp.aZ3dEfGhIj/y"},
				{"/home/tmp.aZ3dEfGhIj", "/home/tmp.bQ9dEfGhIj"},
			},
		},
		"dates": {
			equal: [][2]string{
				{"on 2026-01-02", "on 2025-12-31"},
				{"2026-01-02T03:04:05.678Z", "2026-11-12T13:14:15Z"},
				{"2026-01-02 03:04:05 +0100", "2026-01-03 03:04:06 +0100"},
				{"1 me Jan  2 03:04 x", "1 me Dec 31  2025 x"},
				{"Fri Jan  2 03:04:05 UTC 2026", "Sat Jan  3 13:04:05 UTC 2026"},
			},
			different: [][2]string{{"1.2.3", "1.2.4"}, {"10:30", "10:31"}, {"May I", "Jun I"}},
		},
		"durations": {
			equal: [][2]string{
				{"[exit code 0 after 3ms]", "[exit code 0 after 1m2.5s]"},
				{"ok pkg 0.012s", "ok pkg 1.5s"},
				{"done in 45 ms", "done in 7 ms"},
			},
			different: [][2]string{
				{"[exit code 0 after 3ms]", "[exit code 1 after 3ms]"},
				{"the timeout is 10s", "the timeout is 20s"},
				{"version 1.2", "version 1.3"},
			},
		},
		"images": {
			equal: [][2]string{{
				"[an image, image/png, 7 bytes; you cannot see images]", "[an image, image/png, 7 bytes]",
			}},
			different: [][2]string{{
				"[an image, image/png, 7 bytes; you cannot see images]", "[an image, image/png, 8 bytes]",
			}},
		},
	}
	for _, n := range normalizers {
		if len(tests[n.name].equal) == 0 {
			t.Errorf("the normalizer %s has no test", n.name)
		}
	}
	for name, tt := range tests {
		for _, pair := range tt.equal {
			if a, b := normalize(pair[0], ""), normalize(pair[1], ""); a != b {
				t.Errorf("%s: %q and %q become %q and %q", name, pair[0], pair[1], a, b)
			}
		}
		for _, pair := range tt.different {
			if a, b := normalize(pair[0], ""), normalize(pair[1], ""); a == b {
				t.Errorf("%s: %q and %q become %q", name, pair[0], pair[1], a)
			}
		}
	}
}

func TestWorkingDirectory(t *testing.T) {
	tests := []struct{ text, dir, want string }{
		{"in /home/me/x and /home/me/x/y: /home/me/x.", "/home/me/x", "in D and D/y: D."},
		{"/home/me/xy /home/me/x-1 a/home/me/x", "/home/me/x", "/home/me/xy /home/me/x-1 a/home/me/x"},
		{`{"path":"/w/f"}`, "/w/", `{"path":"D/f"}`},
		{"/etc", "/", "/etc"},
		{"/etc", "", "/etc"},
	}
	for _, tt := range tests {
		if got := replaceDir(tt.text, tt.dir, "D"); got != tt.want {
			t.Errorf("%q with %q becomes %q, want %q", tt.text, tt.dir, got, tt.want)
		}
	}
	here := render(llm.Request{System: "/a", Messages: []llm.Message{llm.UserText("/a/f")}}, "/a")
	there := render(llm.Request{System: "/a", Messages: []llm.Message{llm.UserText("/b/f")}}, "/b")
	if here != there || !strings.Contains(here, "system:\n/a\n") {
		t.Errorf("the requests are\n%s\n%s", here, there)
	}
}

// TestDifference bounds a difference, and cuts it at a line.
func TestDifference(t *testing.T) {
	short := difference("a\nb\n", "a\nc\n")
	if !strings.Contains(short, "\n-b\n+c\n") {
		t.Error(short)
	}
	long := difference("", strings.Repeat("line é\n", 10_000))
	if len(long) > maxDiff+30 || !strings.HasSuffix(long, " more bytes]\n") ||
		!strings.Contains(long, "line é\n[") {
		t.Errorf("%d bytes: %q", len(long), long[max(0, len(long)-60):])
	}
}

// TestExecute plays recorded results, and refuses calls that differ from the recorded ones.
func TestExecute(t *testing.T) {
	const refusal = "The user refused this call; it was not run."
	recorded := func(id, kind, text string) session.ToolResult {
		r := session.ToolResult{ErrorKind: kind, OutputSize: int64(len(text)), Result: llm.ToolResult{
			CallID: id, Name: "look", IsError: kind != "", Parts: []llm.Part{llm.Text(text)},
		}}
		return r
	}
	results := []session.ToolResult{
		recorded("ran", "", "seen"), recorded("refused", "permission_denied", refusal),
		recorded("outside", "permission_denied", "outside of the directory"),
		recorded("failed", "not_found", "gone"),
	}
	args := `{"at":"a"}`
	answer := session.Turn{Kind: session.TurnAssistant}
	for _, r := range results {
		answer.Parts = append(answer.Parts, llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
			ID: r.Result.CallID, Name: "look", Arguments: args,
		}})
	}
	s := &Session{Recording: &session.Recording{
		Exchanges: []session.Exchange{{Answer: answer}}, Results: results,
	}}
	known, err := tool.NewRegistry(tool.Tool{
		ToolSpec: llm.ToolSpec{Name: "look", Schema: []byte(
			`{"type":"object","properties":{"at":{"type":"string"}}}`)},
		Run: func(context.Context, *tool.Call) (tool.Result, error) {
			t.Error("the tool ran")
			return tool.Result{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		id, args string
		deny     bool
		text     string
		kind     tool.ErrorKind
		differs  string
	}{
		"ran":     {id: "ran", args: args, text: "seen"},
		"failed":  {id: "failed", args: args, text: "gone", kind: "not_found"},
		"refused": {id: "refused", args: args, deny: true, text: refusal, kind: "permission_denied"},
		"error of the tool": {
			id: "outside", args: args, text: "outside of the directory", kind: "permission_denied",
		},
		"refused now": {
			id: "ran", args: args, deny: true, differs: "is refused now", kind: tool.KindOther,
		},
		"allowed now": {id: "refused", args: args, differs: "is allowed now", kind: tool.KindOther},
		"arguments": {
			id: "ran", args: `{"at":"b"}`, differs: `arguments {"at":"b"} is not`, kind: tool.KindOther,
		},
		"unknown": {id: "new", args: args, differs: "is not recorded", kind: tool.KindOther},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var failed error
			scope := tool.Scope{}
			if tt.deny {
				scope.Permit = func(context.Context, tool.Tool, json.RawMessage) error {
					return &tool.Error{Kind: tool.KindPermission, Message: "denied"}
				}
			}
			o := s.newTools(func(err error) { failed = err }).execute(t.Context(), known, scope,
				llm.ToolCall{ID: tt.id, Name: "look", Arguments: tt.args})
			var kind tool.ErrorKind
			if o.Err != nil {
				kind = o.Err.Kind
			}
			if kind != tt.kind || tt.text != "" && o.Result.Text() != tt.text {
				t.Errorf("the outcome is %+v", o)
			}
			if tt.differs == "" && failed != nil ||
				tt.differs != "" && (failed == nil || !strings.Contains(failed.Error(), tt.differs)) {
				t.Errorf("the difference is %v", failed)
			}
		})
	}
}

// TestApprover repeats recorded approvals. An error of a tool is no refusal.
func TestApprover(t *testing.T) {
	s := &Session{Recording: &session.Recording{Results: []session.ToolResult{
		{Result: llm.ToolResult{CallID: "a"}},
		{
			Result: llm.ToolResult{CallID: "b", Parts: []llm.Part{
				llm.Text("The user refused this call; it was not run."),
			}},
			ErrorKind: string(tool.KindPermission),
		},
		{
			Result: llm.ToolResult{CallID: "c", Parts: []llm.Part{
				llm.Text("../x is outside of the working directory"),
			}},
			ErrorKind: string(tool.KindPermission),
		},
	}}}
	approve := s.newTools(nil).approver()
	for id, want := range map[string]agent.Verdict{
		"a": agent.ApproveOnce, "b": agent.Refuse, "c": agent.ApproveOnce,
	} {
		if r, err := approve(t.Context(), agent.Approval{CallID: id}); err != nil || r.Verdict != want {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
}
