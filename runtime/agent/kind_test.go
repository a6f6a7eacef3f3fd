package agent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

func TestParseKind(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    agent.Kind
		problem string
	}{
		"all": {
			text: "---\nname: a-1\ndescription: reads a change\ntools: [read_file, grep]\nread_only: " +
				"true\nmodel: small\nmax_turns: 7\n---\nLook.\n\n---\n\nThen tell.\n",
			want: agent.Kind{
				Name: "a-1", Description: "reads a change",
				Instructions: "Look.\n\n---\n\nThen tell.", Tools: []string{
					"read_file", "grep",
				}, ReadOnly: true, Model: "small", MaxTurns: 7,
			},
		},
		"limits and rules": {
			text: "---\nname: a\ndescription: d\nmax_tool_calls: 3\nmax_tokens: 5\n" +
				"deny: [\"shell:rm *\"]\nask: [write]\n---\n",
			want: agent.Kind{
				Name: "a", Description: "d", MaxToolCalls: 3, MaxTokens: 5, Rules: &policy.Policy{
					Rules: []policy.Rule{
						{Permission: "shell", Pattern: "rm *", Action: policy.Deny, Source: "the kind a"},
						{Permission: "write", Action: policy.Ask, Source: "the kind a"},
					}, Default: policy.Allow,
				},
			},
		},
		"a malformed rule": {
			text:    "---\nname: a\ndescription: d\ndeny: [\"\"]\n---\n",
			problem: "agent kind: deny: ",
		},
		"nothing after it": {text: "---\nname: a\ndescription: d\n---", want: agent.Kind{
			Name: "a", Description: "d",
		}},
		"Windows": {
			text: "\ufeff---\r\nname: a\r\ndescription: d\r\n---\r\nDo.\r\nIt.\r\n",
			want: agent.Kind{Name: "a", Description: "d", Instructions: "Do.\nIt."},
		},
		"folded": {
			text: "---\nname: a\ndescription: >\n  one\n  two\n---\n",
			want: agent.Kind{Name: "a", Description: "one two"},
		},
		"no tools": {
			text: "---\nname: a\ndescription: d\ntools: []\n---\n",
			want: agent.Kind{Name: "a", Description: "d", Tools: []string{}},
		},
		"empty list of tools": {
			text: "---\nname: a\ndescription: d\ntools:\n---\n",
			want: agent.Kind{Name: "a", Description: "d"},
		},
		"a rule in the text": {
			text: "---\nname: a\ndescription: d\n---\n---\nx\n---\n",
			want: agent.Kind{Name: "a", Description: "d", Instructions: "---\nx\n---"},
		},

		"empty":  {text: "", problem: "the first line is not ---"},
		"no end": {text: "---\nname: a\ndescription: d\n", problem: "the front matter has no end"},
		"a space after it": {
			text:    "---\nname: a\ndescription: d\n--- \nInstructions\n---\nmore\n",
			problem: "its last line must be ---",
		},
		"no YAML": {text: "---\nname: [a\n---\n", problem: "yaml"},
		"unknown field": {
			text:    "---\nname: a\ndescription: d\ntool: x\n---\n",
			problem: "agent kind: line 4: field tool not found$",
		},
		"a list as name": {
			text:    "---\nname: [a]\ndescription: d\n---\n",
			problem: "agent kind: line 2: cannot unmarshal !!seq into string$",
		},
		"no name":   {text: "---\ndescription: d\n---\n", problem: "name"},
		"a capital": {text: "---\nname: Reviewer\ndescription: d\n---\n", problem: `the name "Reviewer"`},
		"a long name": {
			text:    "---\nname: " + strings.Repeat("a", 65) + "\ndescription: d\n---\n",
			problem: "longer than 64",
		},
		"no description": {text: "---\nname: a\n---\n", problem: "the description is missing"},
		"negative turns": {
			text:    "---\nname: a\ndescription: d\nmax_turns: -1\n---\n",
			problem: "max_turns, max_tool_calls or max_tokens is negative",
		},
		"not UTF-8":       {text: "---\nname: a\ndescription: d\n---\n\xff\xfe", problem: "not UTF-8"},
		"only the fences": {text: "---\n---\n", problem: "front matter"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := agent.ParseKind([]byte(tt.text))
			if tt.problem != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "agent kind") ||
					!strings.Contains(err.Error()+"$", tt.problem) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			public := cmpopts.IgnoreUnexported(policy.Policy{}, policy.Rule{})
			if diff := cmp.Diff(tt.want, got, public); diff != "" {
				t.Errorf("the kind (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzParseKind checks that a parsed kind can be used, and is the same when it is written and read
// again.
func FuzzParseKind(f *testing.F) {
	f.Add("---\nname: a\ndescription: d\ntools: [x, \"y\"]\nread_only: true\nmodel: m\nmax_turns: " +
		"3\n---\nDo it.\n")
	f.Add("---\r\nname: a\r\ndescription: |\r\n  d\r\n\r\n  e\r\n---\r\n")
	f.Add("---\nname: &x a\ndescription: *x\n---")
	f.Add("---\n{name: a, description: 'd'}\n---\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		kind, err := agent.ParseKind([]byte(text))
		if err != nil {
			return
		}
		cfg := config(&model{})
		cfg.Subagents.Kinds = []agent.Kind{kind}
		if _, err := agent.New(cfg); err != nil {
			t.Fatalf("%+v cannot be used: %v", kind, err)
		}
		if strings.Contains(text, "\r") { // which is part of a line's end, and not always
			return
		}
		head, err := yaml.Marshal(object{
			"name": kind.Name, "description": kind.Description, "tools": kind.Tools,
			"read_only": kind.ReadOnly, "model": kind.Model, "max_turns": kind.MaxTurns,
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := agent.ParseKind([]byte("---\n" + string(head) + "---\n" + kind.Instructions))
		if err != nil {
			t.Fatalf("%+v cannot be read again: %v\n%s", kind, err, head)
		}
		if diff := cmp.Diff(kind, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the kind changed (-first +second):\n%s", diff)
		}
	})
}

func TestInvalidSubagents(t *testing.T) {
	good := agent.Kind{Name: "a", Description: "d"}
	tests := map[string]agent.Subagents{
		"turns":             {MaxTurns: -1},
		"running":           {MaxRunning: -1},
		"name":              {Kinds: []agent.Kind{good, {Name: "A", Description: "d"}}},
		"description":       {Kinds: []agent.Kind{{Name: "a"}}},
		"turns of the kind": {Kinds: []agent.Kind{{Name: "a", Description: "d", MaxTurns: -1}}},
	}
	for name, sub := range tests {
		cfg := config(&model{})
		cfg.Subagents = sub
		if _, err := agent.New(cfg); !errors.Is(err, agent.ErrConfig) {
			t.Errorf("%s: New returns %v", name, err)
		}
	}
}

// TestKindsAreOffered checks that kinds of the host come after the built-in ones, or instead
// of one.
func TestKindsAreOffered(t *testing.T) {
	c := &cast{}
	cfg := treeConfig(c)
	cfg.Subagents.Kinds = []agent.Kind{
		{Name: "reviewer", Description: "finds errors."},
		{Name: "explore", Description: "looks elsewhere."},
	}
	submit(t, newSession(t, cfg), "go")
	tools := c.request(t, "", 0).Tools
	i := slices.Index(toolNames(c.request(t, "", 0)), "spawn_agent")
	var kinds []string
	for _, line := range strings.Split(tools[i].Description, "\n") {
		if name, ok := strings.CutPrefix(line, "- "); ok {
			kinds = append(kinds, name)
		}
	}
	want := []string{
		"general: does any part of the work, with all the tools that you have.",
		"explore: looks elsewhere.", "reviewer: finds errors.",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
