package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// profileProofs prove 9.2, 9.3 and 9.8.
var profileProofs = map[string]func(*testing.T){
	"9.2.1": func(t *testing.T) {
		const patch = "*** Begin Patch\n*** Update File: f.txt\n@@\n-old\n+new\n*** Add File: g.txt\n+added\n*** End Patch"
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("apply_patch", map[string]any{"patch": patch})), llmtest.Say("patched")))
		s.write("f.txt", "a\nold\nb\n")
		s.submit("patch it")
		if s.read("f.txt") != "a\nnew\nb\n" || s.read("g.txt") != "added\n" {
			t.Errorf("f holds %q", s.read("f.txt"))
		}
		wantContains(t, "the result", s.shown(1)[0], "M f.txt", "A g.txt")
		var names []string
		for _, spec := range s.request(0).Tools {
			names = append(names, spec.Name)
		}
		for _, want := range []string{"read_file", "apply_patch", "write_file", "shell", "grep", "glob"} {
			if !slices.Contains(names, want) {
				t.Errorf("the model is not offered %s: %v", want, names)
			}
		}
		if slices.Contains(names, "edit_file") {
			t.Error("the model is offered edit_file beside apply_patch")
		}
	},
	"9.2.4": func(t *testing.T) {
		system := prompt(t, newSession(t, saying("yes")))
		wantContains(t, "the system prompt", system,
			"You are a software engineer", "# Tools", "apply_patch", "*** Begin Patch", "Keep the change as small", "When a call fails")
	},
	"9.2.5": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("deploy", map[string]any{"target": "moon"})), llmtest.Say("deployed")), func(c *agent.Config) {
			c.Tools = []tool.Tool{custom("deploy", "deployed to the moon")}
		})
		s.submit("deploy")
		wantContains(t, "the result", s.shown(1)[0], "deployed to the moon")
	},
	"9.2.6": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("shell", map[string]any{"target": "x"})), llmtest.Say("ok")), func(c *agent.Config) {
			c.Tools = []tool.Tool{custom("shell", "this is my shell")}
		})
		s.submit("go")
		wantContains(t, "the result", s.shown(1)[0], "this is my shell")
		n := 0
		for _, spec := range s.request(0).Tools {
			if spec.Name == "shell" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the model is offered %d tools named shell", n)
		}
	},
	"9.3.1": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("late", map[string]any{"target": "x"})), llmtest.Say("ok")))
		if err := s.Tools().Register(custom("late", "registered after the session began")); err != nil {
			t.Fatal(err)
		}
		s.Tools().Unregister("grep")
		s.submit("go")
		wantContains(t, "the result", s.shown(1)[0], "registered after")
		if slices.ContainsFunc(s.request(0).Tools, func(spec llm.ToolSpec) bool { return spec.Name == "grep" }) {
			t.Error("a tool that was taken out is offered")
		}
	},
	"9.3.2": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("teleport", nil)), llmtest.Say("then not")))
		res := s.submit("go")
		if res.ToolCalls[0].Success || res.Failures[0].Kind != string(tool.KindUnknownTool) {
			t.Errorf("%+v", res.Failures)
		}
		wantContains(t, "the result", s.shown(1)[0], "teleport", "shell")
	},
	"9.3.3": func(t *testing.T) {
		bad := map[string]string{
			"malformed": `{"command": "touch ran`, "wrong type": `{"command": 7}`, "missing": `{}`, "extra": `{"command":"touch ran","cwd":"/"}`,
			"no object": `["touch ran"]`, "out of range": `{"command":"touch ran","timeout_ms":-5}`,
		}
		for name, args := range bad {
			s := newSession(t, llmtest.Sequence(llmtest.Use(llmtest.Call{Name: "shell", Arguments: args}), llmtest.Say("sorry")))
			res := s.submit("go")
			if res.ToolCalls[0].Success || res.Failures[0].Kind != string(tool.KindValidation) {
				t.Errorf("%s: %+v", name, res.ToolCalls)
			}
			if _, err := s.env.Stat(t.Context(), "ran"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the command ran (%v)", name, err)
			}
		}
	},
	"9.3.4": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(shell("echo so far; exit 3")), llmtest.Say("I see")))
		res := s.submit("go")
		if res.ToolCalls[0].Success {
			t.Error("a failed command counts as a success")
		}
		wantContains(t, "the result", s.shown(1)[0], "so far", "exit code 3")
	},
	"9.3.5": proveParallel,
	"9.8.1": func(t *testing.T) {
		s := newSession(t, saying("yes"))
		if system := prompt(t, s); !strings.HasPrefix(system, "You are a software engineer") {
			t.Errorf("the system prompt begins with %.60q", system)
		}
	},
	"9.8.2": func(t *testing.T) {
		dir := gitRepository(t)
		s := newSessionIn(t, dir, saying("yes"))
		system := prompt(t, s)
		wantContains(t, "the system prompt", system, "<environment>", "Working directory: "+s.env.Info().WorkDir, "Is a git repository: true",
			"Git branch: trunk", "Platform: "+s.env.Info().OS, "Today's date: 20", "Model: gpt-5.2", "Knowledge cut-off: 2025-08", "</environment>",
			"Modified files: 1", "Untracked files: 2", "the second commit", "the first commit")
		plain := newSession(t, saying("yes"))
		wantContains(t, "the system prompt outside git", prompt(t, plain), "Is a git repository: false")
	},
	"9.8.3": func(t *testing.T) {
		s := newSession(t, saying("yes"), func(c *agent.Config) {
			c.Tools = []tool.Tool{custom("deploy", "")}
			c.Policy.Allow = []string{"shell", "deploy"}
		})
		system := prompt(t, s)
		wantContains(t, "the system prompt", system, "\n- shell: ", "\n- deploy: ")
		if strings.Contains(system, "\n- grep: ") {
			t.Error("a tool that is not offered is described")
		}
	},
	"9.8.4": proveProjectDocs,
	"9.8.5": func(t *testing.T) {
		s := newSession(t, saying("yes"), func(c *agent.Config) { c.Settings.Instructions = "Answer in French." })
		s.write("AGENTS.md", "Answer in German.")
		system := strings.TrimSpace(prompt(t, s))
		if !strings.HasSuffix(system, "Answer in French.") {
			t.Errorf("the system prompt ends with %q", system[max(0, len(system)-80):])
		}
	},
	"9.8.6": func(t *testing.T) {
		dir := t.TempDir()
		writeTree(t, dir, map[string]string{
			"AGENTS.md": "for all", ".codex/instructions.md": "for codex", "CLAUDE.md": "for claude", "GEMINI.md": "for gemini",
		})
		system := prompt(t, newSessionIn(t, dir, saying("yes")))
		wantContains(t, "the system prompt", system, "for all", "for codex")
		if strings.Contains(system, "for claude") || strings.Contains(system, "for gemini") {
			t.Error("the documents of other providers are loaded")
		}
	},
}

// custom is a tool of the host.
func custom(name, result string) tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: name, Description: "A tool of the host. It says what it did.",
			Schema: json.RawMessage(`{"type":"object","properties":{"target":{"type":"string"}},"required":["target"]}`),
		},
		Run: func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result{Text: result}, nil },
	}
}

// prompt returns the system prompt of a session's first request.
func prompt(t *testing.T, s *session) string {
	t.Helper()
	s.submit("hello")
	return s.request(0).System
}

// proveParallel runs three read-only calls that wait for each other, and then two that change something, which must not
// overlap.
func proveParallel(t *testing.T) {
	var together sync.WaitGroup
	together.Add(3)
	meet := custom("meet", "")
	meet.ReadOnly = true
	meet.Run = func(ctx context.Context, c *tool.Call) (tool.Result, error) {
		together.Done()
		all := make(chan struct{})
		go func() { together.Wait(); close(all) }()
		select {
		case <-all:
			return tool.Result{Text: "met " + c.ID}, nil
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	}
	ids := []llmtest.Call{}
	for _, id := range []string{"a", "b", "c"} {
		c := use("meet", map[string]any{"target": id})
		c.ID = id
		ids = append(ids, c)
	}
	s := newSession(t, llmtest.Sequence(
		llmtest.Use(ids...),
		llmtest.Use(shell("mkdir lock && sleep 0.2 && rmdir lock"), shell("mkdir lock && rmdir lock")),
		llmtest.Say("done"),
	), func(c *agent.Config) { c.Tools = []tool.Tool{meet} })
	res := s.submit("go")
	for i, want := range []string{"met a", "met b", "met c"} {
		if got := s.shown(1); !slices.Contains(got, want) {
			t.Errorf("result %d: %q", i, got)
		}
	}
	for _, c := range res.ToolCalls {
		if !c.Success {
			t.Errorf("%s %s: %s", c.Name, c.Arguments, c.Result)
		}
	}
	var order []string
	for _, turn := range s.History() {
		for _, r := range turn.Results {
			order = append(order, r.CallID)
		}
	}
	if !slices.Equal(order[:3], []string{"a", "b", "c"}) {
		t.Errorf("results come in the order %v", order)
	}
}

func proveProjectDocs(t *testing.T) {
	dir := gitRepository(t)
	writeTree(t, dir, map[string]string{
		"AGENTS.md": "rule of the root", "sub/AGENTS.md": "rule of sub", "sub/deep/AGENTS.md": "rule of deep", "other/AGENTS.md": "rule of other",
	})
	s := newSessionIn(t, filepath.Join(dir, "sub", "deep"), saying("yes"))
	system := prompt(t, s)
	root, sub, deep := strings.Index(system, "rule of the root"), strings.Index(system, "rule of sub"), strings.Index(system, "rule of deep")
	if root < 0 || sub < root || deep < sub || strings.Contains(system, "rule of other") {
		t.Errorf("rules stand at %d, %d, %d", root, sub, deep)
	}

	long := t.TempDir()
	writeTree(t, long, map[string]string{"AGENTS.md": strings.Repeat("rule. ", 10_000), ".codex/instructions.md": "beyond"})
	system = prompt(t, newSessionIn(t, long, saying("yes")))
	if n := strings.Count(system, "rule. "); n < 5_000 || n*6 > 32<<10 {
		t.Errorf("%d bytes of instructions were loaded", n*6)
	}
	wantContains(t, "the cut instructions", system, "cut at 32 KB")
	if strings.Contains(system, "beyond") {
		t.Error("a file beyond the limit was loaded")
	}
}

// gitRepository makes a repository on the branch trunk with two commits, a modified file and two untracked ones.
func gitRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a.txt": "a\n", "b.txt": "b\n"})
	git(t, dir, "init", "-q", "-b", "trunk")
	git(t, dir, "add", "a.txt")
	git(t, dir, "commit", "-q", "-m", "the first commit")
	git(t, dir, "add", "b.txt")
	git(t, dir, "commit", "-q", "-m", "the second commit")
	writeTree(t, dir, map[string]string{"a.txt": "changed\n", "new1": "", "new2": ""})
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false",
	}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}
