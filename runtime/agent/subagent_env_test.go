package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// treeConfigIn is a configuration whose agents may start others and work in dir.
func treeConfigIn(t *testing.T, dir string, c *cast, tools ...tool.Tool) agent.Config {
	t.Helper()
	cfg := configIn(t, dir, c, tools...)
	cfg.Subagents = agent.Subagents{}
	return cfg
}

// TestChangesOfSubagents compares the names of changed files with those that the root agent uses.
func TestChangesOfSubagents(t *testing.T) {
	other := filepath.ToSlash(t.TempDir())
	if e, err := local.New(local.Config{Dir: other}); err == nil {
		other = e.Info().WorkDir
		_ = e.Close()
	}
	tests := map[string]struct{ dir, file, want string }{
		"same directory": {"", "x", "x"},
		"in a directory": {"sub/deep", "x", "sub/deep/x"},
		"dot":            {".", "x", "x"},
		"somewhere":      {other, "y/x", other + "/y/x"},
		"absolute name":  {other, other + "/x", other + "/x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "sub", "deep", "there"), "")
			args := object{}
			if tt.dir != "" {
				args["working_dir"] = tt.dir
			}
			c := one(args, calls(call("x", "write_file", object{
				"file_path": tt.file,
				"content":   "new",
			})))
			res := submit(t, newSession(t, treeConfigIn(t, dir, c, tool.WriteFile())), "go")
			if diff := cmp.Diff([]event.FileChange{{Path: tt.want, Kind: event.FileCreated}},
				res.Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProcessesOfSubagents bounds the processes of the commands of an agent and a sub-agent.
func TestProcessesOfSubagents(t *testing.T) {
	for _, most := range []int{1, 100} {
		command := calls(call("x", "shell", object{"command": "sleep 300 & kill $!; wait; echo end"}))
		if most == 1 {
			command = calls(call("x", "shell", object{"command": "sleep 300 & wait"}))
		}
		c := one(nil, command)
		c.scripts[""] = append([]answer{command}, c.scripts[""]...)
		cfg := treeConfigIn(t, t.TempDir(), c, tool.Shell())
		cfg.Limits.MaxProcesses = most
		submit(t, newSession(t, cfg), "go")
		for _, id := range []string{"", "agent_1"} {
			got := c.result(t, id, 1, 0)
			if strings.Contains(got, "killed for having more than 1 processes") != (most == 1) {
				t.Errorf("at most %d: agent %q got %s", most, id, got)
			}
		}
	}
}

// TestDocsOfSubagents checks that an agent in a directory gets the instructions of that directory
// and of those above.
func TestDocsOfSubagents(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "AGENTS.md"), "RULE 1"+strings.Repeat(" and so on", 3000))
	write(t, filepath.Join(dir, "a", "AGENTS.md"), "RULE 2")
	write(t, filepath.Join(dir, "a", "b", "AGENTS.md"), "RULE 3")
	write(t, filepath.Join(dir, "long", "AGENTS.md"), "RULE 4"+strings.Repeat(" and so on", 10_000))
	write(t, filepath.Join(dir, "long", "below", "AGENTS.md"), "RULE 5")
	for dirName, want := range map[string][]string{
		"": {"1"}, "a": {"1", "2"}, "a/b": {"1", "2", "3"},
		"long": {"1", "4"}, "long/below": {"1", "4"},
	} {
		c := one(object{"working_dir": dirName}, calls(spawn("b", nil)),
			calls(onAgent("wait", "agent_1_1")))
		cfg := treeConfigIn(t, dir, c)
		cfg.Subagents.MaxDepth = 2
		submit(t, newSession(t, cfg), "go")
		for _, id := range []string{"agent_1", "agent_1_1"} {
			var got []string
			for _, part := range strings.Split(c.request(t, id, 0).System, "RULE ")[1:] {
				got = append(got, part[:1])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in %q gets the rules %v, not %v", id, dirName, got, want)
			}
		}
		if len(c.request(t, "agent_1", 0).System) > 40_000 {
			t.Errorf("in %q the prompt has %d bytes", dirName, len(c.request(t, "agent_1", 0).System))
		}
	}
}

// TestNestedDirectories confines the sub-agent of a sub-agent to a directory of the first.
func TestNestedDirectories(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "b", "there"), "")
	write(t, filepath.Join(dir, "other", "there"), "")
	c := &cast{scripts: map[string][]answer{
		"": {calls(spawn("a", object{"working_dir": "a"})), calls(onAgent("wait", "agent_1"))},
		"agent_1": {
			calls(spawn("x", object{"working_dir": "../other"})),
			calls(spawn("y", object{"working_dir": "b"})), calls(onAgent("wait", "agent_1_2")),
		},
		"agent_1_2": {calls(call("w", "write_file", object{"file_path": "new", "content": "x"}))},
	}}
	cfg := treeConfigIn(t, dir, c, tool.WriteFile())
	cfg.Subagents.MaxDepth = 2
	res := submit(t, newSession(t, cfg), "go")
	c.returned(t, "agent_1", 1, 0, "../other is outside the working directory")
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
		"missing directory": {
			spawn("a", object{"working_dir": "nowhere"}), "nowhere does not exist",
		},
		"a file":       {spawn("a", object{"working_dir": "file"}), "file is not a directory"},
		"unknown id":   {onAgent("wait", "agent_9"), `no agent has this ID: "agent_9"`},
		"send to none": {send("agent_9", "hello"), `no agent has this ID: "agent_9"`},
		"close none":   {onAgent("close_agent", "agent_9"), `no agent has this ID: "agent_9"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cast{scripts: map[string][]answer{"": {calls(tt.call)}}}
			res := submit(t, newSession(t, treeConfigIn(t, dir, c)), "go")
			if got := c.result(t, "", 1, 0); !strings.Contains(got, tt.want) {
				t.Errorf("the result is %q, without %q", got, tt.want)
			}
			if len(res.ToolCalls) != 1 || res.ToolCalls[0].Success || len(res.Agents) > 0 ||
				c.sent("agent_1") > 0 {
				t.Errorf("the call counts as %+v, agents %v", res.ToolCalls, res.Agents)
			}
		})
	}
	t.Run("no environment", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{"": {calls(spawn("a",
			object{"working_dir": "sub"}))}}}
		submit(t, newSession(t, treeConfig(c)), "go")
		c.returned(t, "", 1, 0, "working_dir needs an environment")
	})
}

func TestSubagentsTools(t *testing.T) {
	var n callLog
	tools := []tool.Tool{
		n.tool("look", true), n.tool("change", false), tool.AskUser(), tool.ExitTool(),
	}
	all := []string{
		"spawn_agent", "send_input", "wait", "close_agent", "plan_write", "plan_update", "plan_read",
		"look", "change", "ask_user", "exit",
	}
	reader := agent.Kind{Name: "reader", Description: "reads", Tools: []string{
		"look", "ask_user", "missing",
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
		"general":             {kind: "general", depth: 1, want: []string{"look", "change", "exit"}},
		"explore":             {kind: "explore", depth: 1, want: []string{"look", "exit"}},
		"explore starts none": {kind: "explore", depth: 2, want: []string{"look", "exit"}},
		"kind with a list":    {kind: "reader", depth: 2, want: []string{"look"}},
		"tools of agents":     {kind: "boss", depth: 2, want: []string{"spawn_agent", "wait"}},
		"no tools":            {kind: "none", depth: 2},
		"the policy holds": {
			kind: "general", depth: 2, allow: []string{"look", "spawn_agent"},
			want: []string{"look", "spawn_agent"},
		},
		"what the run allows, holds": {kind: "general", depth: 2, allowed: []string{
			"change", "spawn_agent", "wait",
		}, want: []string{"change", "spawn_agent", "wait"}},
		"an empty intersection holds": {kind: "reader", depth: 2, allowed: []string{"spawn_agent"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := one(object{"agent_type": tt.kind}, calls(call("x", "change", nil), call("y", "look", nil)))
			if tt.allow != nil || tt.allowed != nil { // which have no wait
				c.scripts[""][1] = answer{text: "end", before: func(context.Context, llm.Request) {
					for deadline := time.Now().Add(20 * time.Second); c.sent("agent_1") < 2 &&
						time.Now().Before(deadline); {
						time.Sleep(time.Millisecond)
					}
				}}
			}
			n.seen = nil
			cfg := treeConfig(c, tools...)
			cfg.Policy.Allow, cfg.Planner = tt.allow, true // the plan is that of the user's agent
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

// TestExploreCannotWrite has a tool that writes, although it claims to be read-only.
func TestExploreCannotWrite(t *testing.T) {
	dir := t.TempDir()
	var wrote, ran error
	var result env.Result
	liar := newTool("liar", true, func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		_, wrote = c.Env.WriteFile(ctx, "new", strings.NewReader("x"), env.WriteOptions{})
		result, ran = c.Env.Exec(ctx, env.Command{Argv: []string{"sh", "-c", "echo x >new"}})
		return tool.Result{Text: "ok"}, nil
	})
	c := one(object{"agent_type": "explore", "working_dir": "."}, calls(call("x", "liar", nil)))
	submit(t, newSession(t, treeConfigIn(t, dir, c, liar)), "go")
	if !errors.Is(wrote, env.ErrReadOnly) || !errors.Is(ran, env.ErrReadOnly) && result.ExitCode == 0 {
		t.Errorf("a write gives %v, a command %+v, %v", wrote, result, ran)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a file was written")
	}
}

// escapes are commands of a sub-agent in the directory "a" that leave it.
const escapes = `echo good >in; echo bad >../escaped; cat ../secret; ls ..; rm -f ../secret; ` +
	`cd ..; cat b/secret; echo bad >b/escaped; echo bad >b/secret`

// TestCommandsOfConfinedAgents runs commands of a sub-agent in a directory.
func TestCommandsOfConfinedAgents(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), "hidden text")
	write(t, filepath.Join(dir, "b", "secret"), "hidden text")
	write(t, filepath.Join(dir, "a", "in"), "")
	c := one(object{"working_dir": "a"},
		calls(call("x", "shell", object{"command": escapes})),
		calls(
			call("y", "shell", object{"command": "ln -s .. up; ln -s ../secret file; mv $TMPDIR/x up"}),
			call("r", "read_file", object{"file_path": "up/secret"}),
			call("f", "read_file", object{"file_path": "file"}),
			call("w", "write_file", object{"file_path": "up/escaped", "content": "bad"}),
		))
	cfg := treeConfigIn(t, dir, c, tool.Shell(), tool.ReadFile(), tool.WriteFile())
	cfg.Env = strong(t, cfg.Env)
	submit(t, newSession(t, cfg), "go")
	if got := requestText(c.request(t, "agent_1", 2)); strings.Contains(got, "hidden text") {
		t.Errorf("the agent has read a file outside of its directory: %s", got)
	}
	if got := c.request(t, "agent_1", 0).System; !strings.Contains(got, "can change nothing outside") {
		t.Errorf("the agent is not told where it works: %s", got)
	}
	for name, want := range map[string]string{
		"secret": "hidden text", "b/secret": "hidden text", "escaped": "", "b/escaped": "",
		"a/in": "good\n",
	} {
		got, _ := env.ReadFile(t.Context(), cfg.Env, name, 0)
		if string(got) != want {
			t.Errorf("%s has the content %q, want %q", name, got, want)
		}
	}
}

// strongEnv is an environment that confines commands as a helper does. The program of the tests is
// dumpable, which makes the guarantee a weaker one.
type strongEnv struct{ env.Environment }

// strong returns a strongEnv.
func strong(t *testing.T, e env.Environment) env.Environment {
	t.Helper()
	if e.Info().Strength(env.ConfinedCommands) == env.Absent {
		t.Skip("commands cannot be confined here")
	}
	return strongEnv{e}
}

func (s strongEnv) Info() env.Info {
	info := s.Environment.Info()
	info.Guarantees = []env.Guarantee{{Name: env.ConfinedCommands, Strength: env.Enforced}}
	return info
}

// weakEnv is an environment that cannot confine commands.
type weakEnv struct{ env.Environment }

func (w weakEnv) Info() env.Info {
	info := w.Environment.Info()
	info.Guarantees = nil
	return info
}

// TestCommandsOfUnconfinedAgents refuses commands of a sub-agent in a directory to which the
// environment cannot keep them, unless a human approves.
func TestCommandsOfUnconfinedAgents(t *testing.T) {
	const program = "echo r''un"
	for name, tt := range map[string]struct {
		dir, command string
		approve      bool
		runs         bool
	}{
		"nobody to ask":   {dir: "a", command: program},
		"approved":        {dir: "a", command: program, approve: true, runs: true},
		"whole directory": {command: program, runs: true},
		"no program":      {dir: "a", command: ">../there"},
		"a test":          {dir: "a", command: "[[ ${y:?run} ]] 2>../there"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a", "there"), "")
			args := object{}
			if tt.dir != "" {
				args["working_dir"] = tt.dir
			}
			c := one(args, calls(call("x", "shell", object{"command": tt.command})))
			cfg := treeConfigIn(t, dir, c, tool.Shell())
			cfg.Env = weakEnv{cfg.Env}
			if tt.approve {
				cfg.Approve = func(_ context.Context, a agent.Approval) (agent.Reply, error) {
					if a.AgentID != "agent_1" || a.Steps[0].Rule.Source != "the working_dir of this agent" {
						t.Errorf("asked about %+v", a)
					}
					return agent.Reply{Verdict: agent.ApproveOnce}, nil
				}
			}
			submit(t, newSession(t, cfg), "go")
			if got := c.result(t, "agent_1", 1, 0); strings.Contains(got, "run\n") != tt.runs {
				t.Errorf("the result is %q; run: %t", got, tt.runs)
			}
			if _, err := os.Stat(filepath.Join(dir, "there")); err == nil {
				t.Error("a file outside was written")
			}
			told := strings.Contains(c.request(t, "agent_1", 0).System, "each needs the approval")
			if told != (tt.dir != "") {
				t.Errorf("the agent is told about approvals: %t", told)
			}
		})
	}
}

// TestReadFirst lets each agent change only what it has read itself.
func TestReadFirst(t *testing.T) {
	for _, on := range []bool{true, false} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), "old")
		edit := object{"file_path": "a", "content": "new"}
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(call("r", "read_file", object{"file_path": "a"})),
				calls(spawn("s", nil), onAgent("wait", "agent_1")),
				calls(call("w", "write_file", edit)),
			},
			"agent_1": {calls(call("w", "write_file", edit))},
		}}
		cfg := treeConfigIn(t, dir, c, tool.ReadFile(), tool.WriteFile())
		cfg.ReadFirst = on
		submit(t, newSession(t, cfg), "go")
		refused := strings.Contains(c.result(t, "agent_1", 1, 0), "you have not read it")
		if refused != on {
			t.Errorf("ReadFirst %t: the sub-agent's write was refused: %t", on, refused)
		}
		c.returned(t, "", 3, 0, "overwrote a")
	}
}

// TestRulesOfAgentsWithDirectories compares relative patterns with names in the working directory
// of the session, whatever that of the agent is.
func TestRulesOfAgentsWithDirectories(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secrets", "key"), "old")
	file := func(id, name string) llm.ToolCall {
		return call(id, "write_file", object{"file_path": name, "content": "new"})
	}
	c := one(object{"working_dir": "secrets"}, calls(file("x", "key"), file("y", "other")))
	cfg := treeConfigIn(t, dir, c, tool.WriteFile())
	cfg.Rules = rulesOf(t, `default: allow
rules:
- {permission: write, pattern: secrets/key, action: deny}
- {permission: write, pattern: other, action: deny}`)
	submit(t, newSession(t, cfg), "go")
	c.returned(t, "agent_1", 1, 0, "A rule of the user denies this call")
	for name, want := range map[string]string{"key": "old", "other": "new"} {
		if got, _ := os.ReadFile(filepath.Join(dir, "secrets", name)); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
