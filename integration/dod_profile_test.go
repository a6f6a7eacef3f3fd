package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// profileProofs prove 9.2, 9.3 and 9.8.
var profileProofs = map[string]func(*testing.T){
	"9.2.1": withTools(0),
	"9.2.2": withTools(1),
	"9.2.3": withTools(2),
	"9.2.4": withEach(func(t *testing.T, p provider) {
		s := p.session(t, textBrain("yes"))
		system := prompt(t, s)
		wantContains(t, "the system prompt", system,
			"You are a software engineer", "# Changing files", "# How to work", "Keep the change as small",
			"# Tools", "When a call fails", "AGENTS.md", p.document())
		own := map[string][]string{
			"openai":    {"`apply_patch`", "*** Begin Patch", ".codex/instructions.md"},
			"anthropic": {"`edit_file`", "`old_string`", "`files_with_matches`"},
			"gemini":    {"`edit_file`", "`old_string`", "`read_many_files`"},
		}
		wantContains(t, "the system prompt", system, own[p.name]...)
		if p.name != "openai" && strings.Contains(system, "apply_patch") || p.name == "openai" &&
			strings.Contains(system, "edit_file") {
			t.Error("the prompt describes another provider's way of editing")
		}
	}),
	"9.2.5": withEach(func(t *testing.T, p provider) {
		s := p.session(t, llmtest.Sequence(llmtest.Use(use("deploy", map[string]any{"target": "moon"})),
			llmtest.Text("deployed")), func(c *agent.Config) {
			c.Tools = []tool.Tool{custom("deploy", "deployed to the moon")}
		})
		s.submit("deploy")
		wantContains(t, "the result", s.shown(1)[0], "deployed to the moon")
	}),
	"9.2.6": withEach(func(t *testing.T, p provider) {
		s := p.session(t, llmtest.Sequence(llmtest.Use(use("shell", map[string]any{"target": "x"})),
			llmtest.Text("ok")), func(c *agent.Config) {
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
	}),
	"9.3.1": func(t *testing.T) {
		s := newSession(t, llmtest.Sequence(llmtest.Use(use("late", map[string]any{"target": "x"})),
			llmtest.Text("ok")))
		if err := s.Tools().Register(custom("late", "registered after the session began")); err != nil {
			t.Fatal(err)
		}
		s.Tools().Unregister("grep")
		s.submit("go")
		wantContains(t, "the result", s.shown(1)[0], "registered after")
		if slices.Contains(toolNames(s.request(0)), "grep") {
			t.Error("an unregistered tool is offered")
		}
	},
	"9.3.2": withFirst(proveToolErrors),
	"9.3.3": func(t *testing.T) { proveBadCalls(t, wires()[0]) },
	"9.3.4": withFirst(proveToolErrors),
	"9.3.5": withFirst(proveParallelCalls),
	"9.8.1": withEach(func(t *testing.T, p provider) {
		if system := prompt(t, p.session(t, textBrain("yes"))); !strings.HasPrefix(system,
			strings.TrimSpace(p.profile.Instructions)) {
			t.Errorf("the system prompt begins with %.60q", system)
		}
	}),
	"9.8.2": func(t *testing.T) {
		dir := gitRepository(t)
		s := newSessionIn(t, dir, textBrain("yes"))
		system := prompt(t, s)
		wantContains(t, "the system prompt", system, "<environment>",
			"Working directory: "+s.env.Info().WorkDir, "Is a git repository: true",
			"Git branch: trunk", "Platform: "+s.env.Info().OS, "Today's date: 20", "Model: gpt-5.2",
			"Knowledge cut-off: 2025-08", "</environment>",
			"OS version: "+s.env.Info().OSVersion+"\n",
			"Modified files: 1", "Untracked files: 2", "the second commit", "the first commit")
		git(t, dir, "commit", "-q", "-a", "-m", "commit 3")
		for i := 4; i <= 12; i++ {
			git(t, dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprint("commit ", i))
		}
		system = prompt(t, newSessionIn(t, dir, textBrain("yes")))
		for i := 3; i <= 12; i++ { // the prompt has the last eight
			if has := strings.Contains(system, fmt.Sprintf(" commit %d\n", i)); has != (i > 4) {
				t.Errorf("commit %d is in the system prompt: %t", i, has)
			}
		}
		if strings.Contains(system, "the second commit") || s.env.Info().OSVersion == "" {
			t.Errorf("the system prompt is %s", system)
		}
		plain := newSession(t, textBrain("yes"))
		wantContains(t, "the system prompt outside git", prompt(t, plain), "Is a git repository: false")
	},
	"9.8.3": func(t *testing.T) {
		s := newSession(t, textBrain("yes"), func(c *agent.Config) {
			c.Tools = []tool.Tool{custom("deploy", "")}
			c.Policy.Allow = []string{"shell", "deploy"}
		})
		system := prompt(t, s)
		wantContains(t, "the system prompt", system, "\n- shell: ", "\n- deploy: ")
		if strings.Contains(system, "\n- grep: ") {
			t.Error("a tool that is not offered is described")
		}
	},
	"9.8.4": withEach(proveProjectDocs),
	"9.8.5": func(t *testing.T) {
		s := newSession(t, textBrain("yes"), func(c *agent.Config) {
			c.Settings.Instructions = "Answer in French."
		})
		s.write("AGENTS.md", "Answer in German.")
		system := strings.TrimSpace(prompt(t, s))
		if !strings.HasSuffix(system, "Answer in French.") {
			t.Errorf("the system prompt ends with %q", system[max(0, len(system)-80):])
		}
	},
	"9.8.6": withEach(func(t *testing.T, p provider) {
		dir := t.TempDir()
		docs := map[string]string{
			"AGENTS.md": "for all", ".codex/instructions.md": "for codex", "CLAUDE.md": "for claude",
			"GEMINI.md": "for gemini",
		}
		writeTree(t, dir, docs)
		system := prompt(t, p.sessionIn(t, dir, textBrain("yes")))
		for name, text := range docs {
			if want := name == "AGENTS.md" || name == p.document(); strings.Contains(system, text) != want {
				t.Errorf("%s is loaded: %t, want %t", name, !want, want)
			}
		}
		if strings.Index(system, "for all") > strings.Index(system, docs[p.document()]) {
			t.Error("the provider's own document does not come last")
		}
	}),
}

// document is the file with a project's instructions that only this provider's models are shown.
func (p provider) document() string {
	return map[string]string{
		"openai": ".codex/instructions.md", "anthropic": "CLAUDE.md", "gemini": "GEMINI.md",
	}[p.name]
}

// withTools proves that the model of a family gets the family's tools, and edits files with them.
func withTools(family int) func(*testing.T) {
	return func(t *testing.T) {
		p := families()[family]
		proveParameters(t, p)
		proveEditFormat(t, p)
	}
}

// custom is a tool of the host.
func custom(name, result string) tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: name, Description: "A tool of the host.",
			Schema: json.RawMessage(`{"type":"object","properties":{"target":{"type":"string"}},` +
				`"required":["target"]}`),
		},
		Run: func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result{Text: result}, nil
		},
	}
}

// prompt returns the system prompt of a session's first request.
func prompt(t *testing.T, s *session) string {
	t.Helper()
	s.submit("hello")
	return s.request(0).System
}

func proveProjectDocs(t *testing.T, p provider) {
	dir := gitRepository(t)
	writeTree(t, dir, map[string]string{
		"AGENTS.md": "rule of the root", p.document(): "own rule of the root",
		"sub/AGENTS.md": "rule of sub", "sub/deep/AGENTS.md": "rule of deep",
		"sub/deep/" + p.document(): "own rule of deep", "other/AGENTS.md": "rule of other",
	})
	rules := []string{
		"\nrule of the root", "\nown rule of the root", "\nrule of sub",
		"\nrule of deep", "\nown rule of deep",
	}
	work := filepath.Join(dir, "sub", "deep")
	if b := backendOf(t); b == "docker" || b == "k8s" {
		work, rules = dir, rules[:2]
	}
	system := prompt(t, p.sessionIn(t, work, textBrain("yes")))
	last := 0
	for _, rule := range rules {
		at := strings.Index(system, rule)
		if at < last {
			t.Errorf("%q is at %d, the rule before it at %d", rule, at, last)
		}
		last = at
	}
	if strings.Contains(system, "rule of other") || work == dir && strings.Contains(system,
		"rule of sub") {
		t.Error("the rules of another directory are loaded")
	}

	long := t.TempDir()
	writeTree(t, long, map[string]string{
		"AGENTS.md": strings.Repeat("rule. ", 10_000), p.document(): "beyond",
	})
	system = prompt(t, p.sessionIn(t, long, textBrain("yes")))
	if n := strings.Count(system, "rule. "); n < 5_000 || n*6 > 32<<10 {
		t.Errorf("%d bytes of instructions were loaded", n*6)
	}
	wantContains(t, "the cut instructions", system, "cut at 32 KB")
	if strings.Contains(system, "\nbeyond") {
		t.Error("a file beyond the limit was loaded")
	}
}

// gitRepository makes a repository on the branch trunk with two commits, a modified file and two
// untracked ones.
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
