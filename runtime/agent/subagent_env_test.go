package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// familyIn is a configuration whose agents may start others and work in dir.
func familyIn(t *testing.T, dir string, c *cast, tools ...tool.Tool) agent.Config {
	t.Helper()
	cfg := inFolder(t, dir, c, tools...)
	cfg.Subagents = agent.Subagents{}
	return cfg
}

func TestSubagentIsConfined_9_9_2(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "secret"), "hidden\n")
	write(t, filepath.Join(dir, "sub", "known"), "shown\n")
	tests := map[string]struct {
		call llm.ToolCall
		want string
	}{
		"read": {call("x", "read_file", map[string]any{"file_path": "known"}), "shown"},
		"read above": {
			call("x", "read_file", map[string]any{"file_path": "../secret"}),
			"../secret is outside the working directory",
		},
		"read absolute": {call("x", "read_file", map[string]any{"file_path": filepath.Join(dir,
			"secret")}), "is outside the working directory"},
		"read with a prefix": {
			call("x", "read_file", map[string]any{"file_path": dir + "/sub-other"}),
			"is outside the working directory",
		},
		"write above": {call("x", "write_file", map[string]any{
			"file_path": "a/../../new",
			"content":   "x",
		}), "is outside the working directory"},
		"list above": {
			call("x", "list_dir", map[string]any{"path": ".."}),
			"is outside the working directory",
		},
		"grep above": {
			call("x", "grep", map[string]any{"pattern": "hidden", "path": ".."}),
			"is outside the working directory",
		},
		"grep": {call("x", "grep", map[string]any{"pattern": "hidden"}), "no matches"},
		"glob": {call("x", "glob", map[string]any{"pattern": "**/*"}), "known"},
		"the shell's folder": {call("x", "shell", map[string]any{"command": "pwd; cat known"}), dir +
			"/sub\nshown\n"},
		"patch above": {
			call("x", "apply_patch", map[string]any{"patch": "*** Begin Patch\n*** Add File: " +
				"../new\n+x\n*** End Patch"}),
			"leads out of the working directory",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{
				"": {
					calls(spawn("a", map[string]any{"working_dir": "sub"})),
					calls(onAgent("wait", "agent_1")),
				},
				"agent_1": {calls(tt.call)},
			}}
			s := newSession(t, familyIn(t, dir, c, tool.ReadFile(), tool.WriteFile(), tool.ApplyPatch(),
				tool.ListDir(), tool.Grep(), tool.Glob(), tool.Shell()))
			submit(t, s, "go")
			if got := c.result(t, "agent_1", 1, 0); !strings.Contains(got, tt.want) || strings.Contains(got,
				"hidden\n") || strings.Contains(got, "secret\n") {
				t.Errorf("the result is %q, without %q", got, tt.want)
			}
			if system := c.request(t, "agent_1", 0).System; !strings.Contains(system, dir+"/sub\n") {
				t.Errorf("the sub-agent is told of another folder: %s", system)
			}
			if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
				t.Error("a file was written outside of the folder")
			}
		})
	}
}

// TestChangesOfSubagents names the files as the session's own agent would.
func TestChangesOfSubagents(t *testing.T) {
	other := filepath.ToSlash(t.TempDir())
	if e, err := local.New(local.Config{Dir: other}); err == nil {
		other = e.Info().WorkDir
		_ = e.Close()
	}
	tests := map[string]struct{ dir, file, want string }{
		"same folder":   {"", "x", "x"},
		"in a folder":   {"sub/deep", "x", "sub/deep/x"},
		"dot":           {".", "x", "x"},
		"somewhere":     {other, "y/x", other + "/y/x"},
		"absolute name": {other, other + "/x", other + "/x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "sub", "deep", "there"), "")
			args := map[string]any{}
			if tt.dir != "" {
				args["working_dir"] = tt.dir
			}
			c := &cast{scripts: map[string][]answer{
				"": {calls(spawn("a", args)), calls(onAgent("wait", "agent_1"))},
				"agent_1": {calls(call("x", "write_file", map[string]any{
					"file_path": tt.file,
					"content":   "new",
				}))},
			}}
			res := submit(t, newSession(t, familyIn(t, dir, c, tool.WriteFile())), "go")
			if diff := cmp.Diff([]event.FileChange{{Path: tt.want, Kind: event.FileCreated}},
				res.Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDocsOfSubagents checks that an agent in a folder is told the instructions there, besides
// those above.
func TestDocsOfSubagents(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "AGENTS.md"), "RULE 1"+strings.Repeat(" and so on", 3000))
	write(t, filepath.Join(dir, "a", "AGENTS.md"), "RULE 2")
	write(t, filepath.Join(dir, "a", "b", "AGENTS.md"), "RULE 3")
	write(t, filepath.Join(dir, "long", "AGENTS.md"), "RULE 4"+strings.Repeat(" and so on", 10_000))
	write(t, filepath.Join(dir, "long", "below", "AGENTS.md"), "RULE 5")
	for folder, want := range map[string][]string{
		"": {"1"}, "a": {"1", "2"}, "a/b": {"1", "2", "3"},
		"long": {"1", "4"}, "long/below": {"1", "4"},
	} {
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("a", map[string]any{"working_dir": folder})),
				calls(onAgent("wait", "agent_1")),
			},
			"agent_1": {calls(spawn("b", nil)), calls(onAgent("wait", "agent_1_1"))},
		}}
		cfg := familyIn(t, dir, c)
		cfg.Subagents.MaxDepth = 2
		submit(t, newSession(t, cfg), "go")
		for _, id := range []string{"agent_1", "agent_1_1"} {
			var got []string
			for _, part := range strings.Split(c.request(t, id, 0).System, "RULE ")[1:] {
				got = append(got, part[:1])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in %q is told the rules %v, not %v", id, folder, got, want)
			}
		}
		if len(c.request(t, "agent_1", 0).System) > 40_000 {
			t.Errorf("in %q the prompt has %d bytes", folder, len(c.request(t, "agent_1", 0).System))
		}
	}
}

// TestNestedFolders confines a sub-agent's own sub-agent within the folder of the first.
func TestNestedFolders(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "b", "there"), "")
	write(t, filepath.Join(dir, "other", "there"), "")
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", map[string]any{"working_dir": "a"})),
			calls(onAgent("wait", "agent_1")),
		},
		"agent_1": {
			calls(spawn("x", map[string]any{"working_dir": "../other"})),
			calls(spawn("y", map[string]any{"working_dir": "b"})), calls(onAgent("wait", "agent_1_2")),
		},
		"agent_1_2": {calls(call("w", "write_file", map[string]any{"file_path": "new", "content": "x"}))},
	}}
	cfg := familyIn(t, dir, c, tool.WriteFile())
	cfg.Subagents.MaxDepth = 2
	res := submit(t, newSession(t, cfg), "go")
	if got := c.result(t, "agent_1", 1, 0); !strings.Contains(got,
		"../other is outside the working directory") {
		t.Errorf("a folder outside gives %q", got)
	}
	if diff := cmp.Diff([]event.FileChange{{Path: "a/b/new", Kind: event.FileCreated}},
		res.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestSpawnIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	tests := map[string]struct {
		call llm.ToolCall
		want string
	}{
		"missing folder": {
			spawn("a", map[string]any{"working_dir": "nowhere"}),
			"nowhere does not exist",
		},
		"a file":        {spawn("a", map[string]any{"working_dir": "file"}), "file is not a directory"},
		"unknown kind":  {spawn("a", map[string]any{"agent_type": "poet"}), "agent_type"},
		"no task":       {call("a", "spawn_agent", nil), "task"},
		"empty task":    {spawn("a", map[string]any{"task": " \n"}), "task is empty"},
		"no turns":      {spawn("a", map[string]any{"max_turns": 0}), "max_turns"},
		"unknown field": {spawn("a", map[string]any{"colour": "red"}), "colour"},
		"unknown id":    {onAgent("wait", "agent_9"), `no agent has this ID: "agent_9"`},
		"send to none":  {send("agent_9", "hello"), `no agent has this ID: "agent_9"`},
		"close none":    {onAgent("close_agent", "agent_9"), `no agent has this ID: "agent_9"`},
		"empty message": {send("agent_9", " "), "message is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{"": {calls(tt.call)}}}
			res := submit(t, newSession(t, familyIn(t, dir, c)), "go")
			if got := c.result(t, "", 1, 0); !strings.Contains(got, tt.want) {
				t.Errorf("the result is %q, without %q", got, tt.want)
			}
			if len(res.ToolCalls) != 1 || res.ToolCalls[0].Success || len(res.Agents) > 0 ||
				c.asked("agent_1") > 0 {
				t.Errorf("the call counts as %+v, agents %v", res.ToolCalls, res.Agents)
			}
		})
	}
	t.Run("no environment", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a",
			map[string]any{"working_dir": "sub"}))}}}
		submit(t, newSession(t, family(c)), "go")
		if got := c.result(t, "", 1, 0); !strings.Contains(got, "there is no environment") {
			t.Errorf("the result is %q", got)
		}
	})
}

func TestClosingAnAgentKillsItsCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a POSIX shell")
	}
	for _, end := range []string{"close_agent", "the end of the run", "abort"} {
		t.Run(end, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			dir := t.TempDir()
			pid := 0
			started := func(context.Context, llm.Request) {
				for range 1000 {
					if b, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
						if pid, err = strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
							return
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			var s *agent.Session
			last := answer{text: "end", before: started}
			switch end {
			case "close_agent":
				last.text, last.calls = "", []llm.ToolCall{onAgent("close_agent", "agent_1")}
			case "abort":
				last.before = func(ctx context.Context, req llm.Request) { started(ctx, req); s.Abort() }
			}
			c := &cast{scripts: map[string][]answer{
				"": {calls(spawn("a", nil)), last},
				"agent_1": {calls(call("x", "shell", map[string]any{"command": "echo $$ >pid.new; mv " +
					"pid.new pid; exec sleep 1000", "timeout_ms": 500_000}))},
			}}
			cfg := familyIn(t, dir, c, tool.Shell())
			s = newSession(t, cfg)
			within(t, func() { _, _ = s.Submit(t.Context(), "go") })
			if pid == 0 {
				t.Fatal("the command did not start")
			}
			command, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("the command still runs: %v", err)
			}
			if end == "close_agent" {
				if got := c.result(t, "", 2, 0); !strings.Contains(got, "status: failed\nsuccess: false\n") ||
					!strings.Contains(got, "problem: aborted") {
					t.Errorf("close_agent said %q", got)
				}
				if got := c.asked("agent_1"); got != 1 {
					t.Errorf("the closed agent asked the model %d times", got)
				}
			}
			_ = cfg.Env.Close()
		})
	}
}

func TestSubagentsTools(t *testing.T) {
	var n note
	tools := []tool.Tool{
		n.tool("look", true), n.tool("change", false), tool.AskUser(),
		tool.ExitTool(),
	}
	all := []string{
		"spawn_agent", "send_input", "wait", "close_agent", "look", "change", "ask_user",
		"exit",
	}
	reader := agent.Kind{Name: "reader", Description: "reads", Tools: []string{
		"look", "ask_user",
		"missing",
	}}
	boss := agent.Kind{Name: "boss", Description: "leads", Tools: []string{"spawn_agent", "wait"}}
	none := agent.Kind{Name: "none", Description: "thinks", Tools: []string{}}
	tests := map[string]struct {
		kind    string
		depth   int
		allow   []string // of the policy
		allowed []string // of the run
		want    []string
	}{
		"general": {kind: "general", depth: 1, want: []string{
			"look", "change",
			"exit",
		}},
		"explore":                   {kind: "explore", depth: 1, want: []string{"look", "exit"}},
		"explore starts none":       {kind: "explore", depth: 2, want: []string{"look", "exit"}},
		"kind with a list":          {kind: "reader", depth: 2, want: []string{"look"}},
		"kind with tools of agents": {kind: "boss", depth: 2, want: []string{"spawn_agent", "wait"}},
		"no tools":                  {kind: "none", depth: 2},
		"the policy holds": {
			kind: "general", depth: 2, allow: []string{"look", "spawn_agent"},
			want: []string{"look", "spawn_agent"},
		},
		"what the run allows, holds": {kind: "general", depth: 2, allowed: []string{
			"change",
			"spawn_agent", "wait",
		}, want: []string{"change", "spawn_agent", "wait"}},
		"an empty intersection holds": {kind: "reader", depth: 2, allowed: []string{"spawn_agent"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{
				"": {
					calls(spawn("a", map[string]any{"agent_type": tt.kind})),
					calls(onAgent("wait", "agent_1")),
				},
				"agent_1": {calls(call("x", "change", nil), call("y", "look", nil))},
			}}
			if tt.allow != nil || tt.allowed != nil { // which have no wait
				c.scripts[""][1] = answer{text: "end", before: func(context.Context, llm.Request) {
					for deadline := time.Now().Add(20 * time.Second); c.asked("agent_1") < 2 &&
						time.Now().Before(deadline); {
						time.Sleep(time.Millisecond)
					}
				}}
			}
			n.seen = nil
			cfg := family(c, tools...)
			cfg.Policy.Allow = tt.allow
			cfg.Subagents = agent.Subagents{MaxDepth: tt.depth, Kinds: []agent.Kind{reader, boss, none}}
			s := newSession(t, cfg)
			if _, err := s.Run(t.Context(), agent.Input{Text: "go", AllowedTools: tt.allowed}); err != nil {
				t.Fatal(err)
			}
			if got := toolNames(c.request(t, "", 0)); tt.allow == nil && tt.allowed == nil &&
				!slices.Equal(got, all) {
				t.Errorf("the tools are %v, not %v", got, all)
			}
			got, want := toolNames(c.request(t, "agent_1", 0)), slices.Clone(tt.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the sub-agent's tools are %v, not %v", got, want)
			}
			if ran := slices.Contains(n.calls(), "x"); ran != slices.Contains(want, "change") {
				t.Errorf("that the tool change ran is %t", ran)
			}
		})
	}
}

// TestExploreCannotWrite lets a tool that claims to be read-only write.
func TestExploreCannotWrite(t *testing.T) {
	dir := t.TempDir()
	var wrote, ran error
	liar := newTool("liar", true, func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		_, wrote = c.Env.WriteFile(ctx, "new", strings.NewReader("x"), env.WriteOptions{})
		_, ran = c.Env.Exec(ctx, env.Command{Argv: []string{"true"}})
		return tool.Result{Text: "ok"}, nil
	})
	c := &cast{scripts: map[string][]answer{
		"": {
			calls(spawn("a", map[string]any{"agent_type": "explore", "working_dir": "."})),
			calls(onAgent("wait", "agent_1")),
		},
		"agent_1": {calls(call("x", "liar", nil))},
	}}
	submit(t, newSession(t, familyIn(t, dir, c, liar)), "go")
	if !errors.Is(wrote, env.ErrReadOnly) || !errors.Is(ran, env.ErrReadOnly) {
		t.Errorf("a write gives %v, a command %v", wrote, ran)
	}
}
