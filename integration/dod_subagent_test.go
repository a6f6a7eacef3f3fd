package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/wrap"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// subagentProofs prove 9.9, each line with each provider.
var subagentProofs = map[string]func(*testing.T){
	"9.9.1": withEach(proveSpawn),
	"9.9.2": withEach(proveSharedEnvironment),
	"9.9.3": withEach(proveOwnHistory),
	"9.9.4": withEach(proveDepth),
	"9.9.5": withEach(proveSpawnAndWait),
	"9.9.6": withEach(proveAgentControl),
}

// small is another model of the provider.
func (p provider) small() string {
	return map[string]string{
		"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash",
	}[p.name]
}

func toolNames(r *llmtest.Request) []string {
	var names []string
	for _, spec := range r.Tools {
		names = append(names, spec.Name)
	}
	return names
}

// proveSpawn starts agents that never end by themselves: one with limits and another model,
// and one with the defaults.
func proveSpawn(t *testing.T, p provider) {
	const scoped, plain, looking = "count the files in src", "count for ever", "look around"
	s := p.session(t, agents(
		llmtest.Sequence(
			llmtest.Use(use("spawn_agent", map[string]any{
				"task": scoped, "model": p.small(), "max_turns": 3,
			}), spawn(plain),
				use("spawn_agent", map[string]any{"task": looking, "agent_type": "explore"}), use("spawn_agent",
					map[string]any{"task": "x", "agent_type": "wizard"})),
			llmtest.Use(waitFor("agent_1"), waitFor("agent_2"), waitFor("agent_3")), llmtest.Text("counted"),
		), map[string]llmtest.Brain{
			scoped: endless(shell("ls src")), plain: endless(shell("ls src")),
			looking: textBrain("I have looked."),
		},
	), func(c *agent.Config) { c.Limits.NoLoopDetection = true })
	s.write("src/a.txt", "a\n")
	s.submit("have the files counted")
	own := s.requestsOf("have the files counted")
	if names := toolNames(own[0]); !slices.Contains(names, "spawn_agent") {
		t.Errorf("the model is offered %v", names)
	}
	p.wantResults(t, own[1], false, false, false, true)
	wantContains(t, "the result for an unknown kind", shown(own[1])[3], "agent_type",
		"'general', 'explore'")
	first := s.requestsOf(scoped)[0]
	if len(first.Messages) != 1 || first.Messages[0].Role != llm.RoleUser || first.Model != p.small() {
		t.Errorf("the agent got %+v for %s", first.Messages, first.Model)
	}
	wantContains(t, "the agent's system prompt", first.System, "You are a software engineer",
		"Model: "+p.small(), "You were started by another agent")
	if names := toolNames(first); !slices.Contains(names, "shell") || slices.Contains(names,
		"ask_user") || slices.Contains(names, "spawn_agent") {
		t.Errorf("the agent is offered %v", names)
	}
	if names := toolNames(s.requestsOf(looking)[0]); !slices.Contains(names, "grep") ||
		slices.Contains(names, "shell") || slices.Contains(names, "write_file") {
		t.Errorf("an agent that only looks is offered %v", names)
	}
	wantContains(t, "the limited agent's result", shown(own[2])[0], "status: failed", "success: false",
		"turns_used: 3", "the limit of turns was reached")
	wantContains(t, "the other agent's result", shown(own[2])[1], "turns_used: 50",
		"the limit of turns was reached")
	if a, b := len(s.requestsOf(scoped)), len(s.requestsOf(plain)); a != 3 || b != 50 {
		t.Errorf("the agents sent %d and %d requests", a, b)
	}
}

// proveSharedEnvironment has an agent that is confined to a directory, and another that sees its
// files.
func proveSharedEnvironment(t *testing.T, p provider) {
	const inside, beside = "work in sub", "read the files"
	var workDir string
	s := p.session(t, agents(
		llmtest.Sequence(
			llmtest.Use(use("spawn_agent", map[string]any{"task": inside, "working_dir": "sub"}),
				use("spawn_agent", map[string]any{"task": "x", "working_dir": "nowhere"})),
			llmtest.Use(waitFor("agent_1")), llmtest.Use(spawn(beside)), llmtest.Use(waitFor("agent_3")),
			llmtest.Use(readFile("sub/made.txt")), llmtest.Text("seen"),
		), map[string]llmtest.Brain{
			inside: func(r *llmtest.Request) llmtest.Reply {
				if len(r.Messages) > 1 {
					return llmtest.Text("I made made.txt.")
				}
				return llmtest.Use(
					readFile("given.txt"), shell("pwd; cat given.txt"), use("glob",
						map[string]any{"pattern": "**/*.txt"}), p.create("made.txt", "made\n"),
					readFile("../secret.txt"), readFile(workDir+"/secret.txt"), p.create("../escaped.txt",
						"x\n"), p.edit(workDir+"/secret.txt", "secret", "known"),
					use("grep", map[string]any{"pattern": "secret", "path": ".."}), use("list_dir",
						map[string]any{"path": "/"}),
					shell("cd .. && echo x >by-shell.txt; cat secret.txt; cd sub && echo fine"),
				)
			},
			beside: llmtest.Sequence(llmtest.Use(shell("cat sub/made.txt secret.txt"),
				shell("echo shared >shared.txt")), llmtest.Text("I see.")),
		},
	), func(c *agent.Config) {
		// This program is dumpable, so commands of the confined agent ask if it runs them itself.
		c.Approve = func(context.Context, agent.Approval) (agent.Reply, error) {
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		}
	})
	workDir = s.env.Info().WorkDir
	s.write("secret.txt", "secret\n")
	s.write("sub/given.txt", "given\n")
	res := s.submit("divide the work")
	own := s.requestsOf("divide the work")
	p.wantResults(t, own[1], false, true)
	wantContains(t, "the result for a missing directory", shown(own[1])[1],
		"nowhere does not exist")
	confined := s.requestsOf(inside)
	wantContains(t, "the system prompt", confined[0].System, "Working directory: "+workDir+"/sub\n")
	got := shown(confined[1])
	p.wantResults(t, confined[1], false, false, false, false, true, true, true, true, true, true,
		false)
	wantContains(t, "read_file", got[0], "given")
	wantContains(t, "shell", got[1], workDir+"/sub\n", "given\n")
	if got[2] != "given.txt\n" {
		t.Errorf("glob shows %q", got[2])
	}
	confines := wrap.Subdir(s.env, "sub").Info().Strength(env.ConfinedCommands) != env.Absent
	_, err := s.env.Stat(t.Context(), "by-shell.txt")
	if confines && (!errors.Is(err, fs.ErrNotExist) || strings.Contains(got[10], "secret\n")) ||
		!strings.Contains(got[10], "fine\n") {
		t.Errorf("a command outside (confined: %t): %q, %v", confines, got[10], err)
	}
	if backendOf(t) != "local" && !confines {
		t.Error("the commands of the agent are not confined")
	}
	for i, text := range got[4:10] {
		if !strings.Contains(text, "is outside the working directory") &&
			!strings.Contains(text, "leads out of the working directory") {
			t.Errorf("refused call %d: %s", i, text)
		}
		if strings.Contains(text, "1 | secret") {
			t.Errorf("a file outside is shown: %s", text)
		}
	}
	s.wantFile("sub/made.txt", "made\n")
	s.wantFile("secret.txt", "secret\n")
	if _, err := s.env.Stat(t.Context(), "escaped.txt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file outside was made (%v)", err)
	}
	wantContains(t, "the other agent's result", shown(s.requestsOf(beside)[1])[0], "made\nsecret\n")
	s.wantFile("shared.txt", "shared\n")
	wantContains(t, "the first agent's result", shown(own[5])[0], "1 | made")
	if want := []event.FileChange{{
		Path: "sub/made.txt", Kind: event.FileCreated,
	}}; !slices.Equal(res.Changes, want) {
		t.Errorf("changes %+v, want %+v", res.Changes, want)
	}
}

func proveOwnHistory(t *testing.T, p provider) {
	const task, secret, noise = "look into f.txt", "the word is swordfish", "noise of the agent"
	s := p.session(t, agents(
		llmtest.Sequence(
			llmtest.Use(spawn(task)), llmtest.Use(waitFor("agent_1")), llmtest.Text("first done"),
			llmtest.Use(use("send_input", map[string]any{
				"agent_id": "agent_1", "message": "and once more",
			})), llmtest.Use(waitFor("agent_1")), llmtest.Text("all done"),
		), map[string]llmtest.Brain{task: llmtest.Sequence(
			llmtest.Reply{Text: noise, Calls: []llmtest.Call{readFile("f.txt")}},
			llmtest.Text("It holds text."), llmtest.Text("It still does."),
		)},
	))
	s.write("f.txt", "contents of f\n")
	s.submit(secret)
	s.submit("ask it again")
	child := s.requestsOf(task)
	if len(child) != 3 {
		t.Fatalf("the agent sent %d requests", len(child))
	}
	for _, r := range child {
		if body := string(r.Body); strings.Contains(body, "swordfish") || strings.Contains(body,
			"first done") {
			t.Errorf("the agent has the history of the other: %s", body)
		}
	}
	for _, r := range s.requestsOf(secret) {
		if body := string(r.Body); strings.Contains(body, noise) || strings.Contains(body,
			"contents of f") {
			t.Errorf("the other has the history of the agent: %s", body)
		}
	}
	var texts []string
	for _, m := range child[2].Messages {
		texts = append(texts, string(m.Role)+" "+m.Text())
	}
	if want := []string{
		"user " + task, "assistant " + noise, "tool ", "assistant It holds text.", "user and once more",
	}; !slices.Equal(texts, want) {
		t.Errorf("the agent's history is %q", texts)
	}
	for _, turn := range s.History() {
		if strings.Contains(turn.Text(), noise) || turn.Text() == task {
			t.Errorf("the session's history has %q", turn.Text())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range readJournal(t, s.Dir()) {
		if strings.Contains(string(e.Data), noise) {
			t.Errorf("the session's journal has %s", e.Data)
		}
	}
}

// proveDepth has agents that start agents, as deep as they may and one deeper.
func proveDepth(t *testing.T, p provider) {
	tasks := []string{"dig", "dig deeper", "dig deepest"}
	type origin struct{ agent, parent string }
	for name, tt := range map[string]struct {
		depth int
		// may is for each level whether it may start agents.
		may  []bool
		want map[origin]bool
	}{
		"default": {0, []bool{true, false}, map[origin]bool{{"", ""}: true, {"agent_1", ""}: true}},
		"two": {2, []bool{true, true, false}, map[origin]bool{
			{"", ""}: true, {"agent_1", ""}: true,
			{"agent_1_1", "agent_1"}: true,
		}},
		"none": {-1, []bool{false}, map[origin]bool{{"", ""}: true}},
	} {
		t.Run(name, func(t *testing.T) {
			brains := map[string]llmtest.Brain{}
			for i, task := range tasks {
				next := "nothing"
				if i+1 < len(tasks) {
					next = tasks[i+1]
				}
				brains[task] = func(r *llmtest.Request) llmtest.Reply {
					switch last := strings.Join(shown(r), ""); {
					case len(r.Messages) == 1:
						return llmtest.Use(spawn(next))
					case strings.Contains(last, "status: running"):
						return llmtest.Use(waitFor(strings.TrimPrefix(strings.Split(last, "\n")[0], "agent_id: ")))
					}
					return llmtest.Text(task + " ended")
				}
			}
			own := func(*llmtest.Request) llmtest.Reply {
				return llmtest.Reply{Violation: "an agent beyond the limit"}
			}
			s := p.session(t, agents(own, brains),
				func(c *agent.Config) { c.Subagents.MaxDepth = tt.depth })
			s.submit(tasks[0])
			for i, may := range tt.may {
				r := s.requestsOf(tasks[i])
				if got := slices.Contains(toolNames(r[0]), "spawn_agent"); got != may ||
					strings.Contains(r[0].System, "\n- spawn_agent: ") != may {
					t.Errorf("level %d may start agents: %t, want %t", i, got, may)
				}
				if !may {
					p.wantResults(t, r[1], true)
					wantContains(t, "the result of spawn_agent", shown(r[1])[0], "spawn_agent")
				}
			}
			if n := len(tt.may); n < len(tasks) && len(s.requestsOf(tasks[n])) > 0 {
				t.Errorf("an agent is %d levels deep", n)
			}
			seen := map[origin]bool{}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, e := range s.events {
				if e.Kind() == event.KindToolCallEnd {
					seen[origin{e.AgentID, e.ParentID}] = true
				}
			}
			if diff := cmp.Diff(tt.want, seen, cmp.AllowUnexported(origin{})); diff != "" {
				t.Errorf("origins of calls (-want +got):\n%s", diff)
			}
		})
	}
}

// proveAgentControl sends input to an agent while it works and afterwards, and closes an agent that
// never ends by itself.
func proveAgentControl(t *testing.T, p provider) {
	marker := fmt.Sprint("closed-", time.Now().UnixNano())
	const until = "while [ ! -e %s ]; do sleep 0.02; done"
	send := func(text string) llmtest.Call {
		return use("send_input", map[string]any{"agent_id": "agent_1", "message": text})
	}
	closing := func(id string) llmtest.Call {
		return use("close_agent", map[string]any{"agent_id": id})
	}
	w := watchFor(t, marker)
	seenFirst := func(b llmtest.Brain) llmtest.Brain {
		return func(r *llmtest.Request) llmtest.Reply {
			reply := b(r)
			if len(reply.Calls) > 0 && reply.Calls[0].Name == "close_agent" && runtime.GOOS == "linux" {
				await(t, "the command of the agent", w.seen.Load)
			}
			return reply
		}
	}
	s := p.session(t, agents(
		seenFirst(llmtest.Sequence(
			llmtest.Use(spawn("work"), spawn("hang")),
			llmtest.Use(shell(fmt.Sprintf(until, "working"))), llmtest.Use(send("and be quick")),
			llmtest.Use(shell("touch go")), llmtest.Use(waitFor("agent_1")),
			llmtest.Use(send("now the rest")), llmtest.Use(waitFor("agent_1")),
			llmtest.Use(shell(fmt.Sprintf(until, "hanging"))), llmtest.Use(closing("agent_2")),
			llmtest.Use(waitFor("agent_2"), closing("agent_1"), send("still there?"), waitFor("agent_7")),
			llmtest.Text("done"),
		)), map[string]llmtest.Brain{
			"work": llmtest.Sequence(llmtest.Use(shell("touch working; "+fmt.Sprintf(until, "go"))),
				llmtest.Text("worked"), llmtest.Text("rested")),
			"hang": endless(use("shell", map[string]any{"command": "sh -c 'touch hanging; sleep 300; : " +
				marker + "'", "timeout_ms": 300_000})),
		},
	))
	var aliveAtEnd atomic.Bool
	s.Subscribe(10_000, func(e event.Event) {
		if end, ok := e.Data.(event.ToolCallEnd); ok && end.Name == "close_agent" && running(marker) {
			aliveAtEnd.Store(true)
		}
	})
	res := s.submit("have it done")
	own, worker := s.requestsOf("have it done"), s.requestsOf("work")
	wantContains(t, "send_input to one at work", shown(own[3])[0], "agent_id: agent_1",
		"status: running")
	messages := worker[1].Messages
	if last := messages[len(messages)-1]; last.Role != llm.RoleUser || last.Text() != "and be quick" ||
		messages[len(messages)-2].Role != llm.RoleTool {
		t.Errorf("the request after its call ends with %s %q", last.Role, last.Text())
	}
	wantContains(t, "wait", shown(own[5])[0], "status: completed", "output:\nworked")
	wantContains(t, "send_input to one that is done", shown(own[6])[0], "status: running")
	if last := worker[2].Messages; last[len(last)-1].Text() != "now the rest" ||
		len(last) != len(messages)+2 {
		t.Errorf("the next task of the agent is %+v", last)
	}
	wantContains(t, "the second wait", shown(own[7])[0], "status: completed", "output:\nrested")
	wantContains(t, "close_agent", shown(own[9])[0], "agent_id: agent_2", "status: failed",
		"success: false")
	if aliveAtEnd.Load() {
		t.Error("the command of the closed agent is alive")
	}
	w.gone()
	after := shown(own[10])
	p.wantResults(t, own[10], true, false, true, true)
	for _, i := range []int{0, 2, 3} {
		wantContains(t, "a call for a closed agent", after[i], "no agent has this ID")
	}
	if len(res.Agents) != 3 || s.State() != agent.SessionIdle {
		t.Errorf("agents %+v, the session is %s", res.Agents, s.State())
	}
}
