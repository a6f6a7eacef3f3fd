package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func sessionFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "session", Category: groupPolicy,
		Usage: "read the calls of the session in `DIR`, and of its sub-agents",
	}
}

func (p *program) policyTestCommand() *cli.Command {
	return &cli.Command{
		Usage: "print what a policy refuses of a recorded session",
		UsageText: `
sandboxagent policy test --session DIR --policy ci
sandboxagent policy test --session DIR --policy my.yaml`,
		Description: `
Each line is a part of a call that the policy denies or asks about. Exit codes: 0 it allows all
calls, 1 it denies some, 4 it asks about some and denies none.`,
		Flags:  append(policyFlags(), sessionFlag()),
		Action: p.action(p.testPolicy),
	}
}

func (p *program) policySuggestCommand() *cli.Command {
	return &cli.Command{
		Usage: "print the least policy that allows a recorded session",
		UsageText: `
sandboxagent policy suggest --session DIR
sandboxagent policy suggest --session DIR > policy.yaml`,
		Description: `
Safe tools, such as reading, need no rule. What no rule can allow without allowing more is in a
comment. Calls that were refused, or that were invalid, are left out.`,
		Flags:  []cli.Flag{sessionFlag()},
		Action: p.action(p.suggestPolicy),
	}
}

// recordedCall is a tool call of a recorded session.
type recordedCall struct {
	llm.ToolCall
	agent    string // the sub-agent; empty for the root agent
	requests []policy.Request
	// started is known of calls that may change something. A refused call has not run.
	started, refused bool
}

// recordedCalls returns the calls of the session in a directory and of its sub-agents.
func (p *program) recordedCalls(dir string) ([]recordedCall, error) {
	if dir == "" {
		return nil, usagef("--session is missing: the directory of a session, which run prints")
	}
	registry, err := p.toolRegistry()
	if err != nil {
		return nil, err
	}
	r := recordReader{tools: registry}
	if err := r.read(dir, ""); err != nil {
		return nil, usagef("--session: %s", err)
	}
	return r.calls, nil
}

type recordReader struct {
	tools *tool.Registry
	base  string   // the working directory of the first session
	seen  []string // the directories that were read
	calls []recordedCall
}

// read reads the journal of the session of an agent.
func (r *recordReader) read(dir, agent string) error {
	if slices.Contains(r.seen, dir) {
		return fmt.Errorf("%s starts itself", dir)
	}
	r.seen = append(r.seen, dir)
	one := sessionReader{recordReader: r, agent: agent, first: len(r.calls)}
	for e, err := range session.Read(filepath.Join(dir, "journal.jsonl")) {
		if err != nil {
			return err
		}
		switch e.Type {
		case session.TypeStarted:
			err = json.Unmarshal(e.Data, &one.started)
			r.base = cmp.Or(r.base, one.started.WorkDir)
		case session.TypeTurn:
			var turn session.Turn
			err = json.Unmarshal(e.Data, &turn)
			for _, part := range turn.Parts {
				if turn.Kind == session.TurnAssistant && part.ToolCall != nil {
					one.add(*part.ToolCall)
				}
			}
		case session.TypeToolStarted:
			var started session.ToolStarted
			err = json.Unmarshal(e.Data, &started)
			one.update(started.CallID, func(c *recordedCall) { c.started = true })
		case session.TypeToolResult:
			var result session.ToolResult
			err = json.Unmarshal(e.Data, &result)
			kind := tool.ErrorKind(result.ErrorKind)
			one.update(result.Result.CallID, func(c *recordedCall) {
				c.refused = kind == tool.KindCanceled && !c.started || slices.Contains([]tool.ErrorKind{
					tool.KindPermission, tool.KindValidation, tool.KindUnknownTool,
				}, kind)
			})
		case session.TypeAgentStarted:
			var started session.AgentStarted
			if err = json.Unmarshal(e.Data, &started); err == nil {
				beside := filepath.Join(filepath.Dir(dir), filepath.Base(started.SessionID))
				err = r.read(beside, started.AgentID)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sessionReader reads the calls of one session.
type sessionReader struct {
	*recordReader

	agent   string
	started session.Started
	first   int    // the place of its first call
	last    string // the last call
	equal   int    // the number of calls like it in a row
}

// update changes the calls with an ID, which models may use again.
func (r *sessionReader) update(id string, change func(*recordedCall)) {
	for i := r.first; i < len(r.calls); i++ {
		if c := &r.calls[i]; c.agent == r.agent && c.ID == id {
			change(c)
		}
	}
}

func (r *sessionReader) add(c llm.ToolCall) {
	t, ok := r.tools.Get(c.Name)
	if !ok {
		t.Name = c.Name
		if slices.Contains(agentTools[:], c.Name) {
			t.Class = policy.ClassAgent
			t.Waits = c.Name == "wait"
		} else if isRunTool(c.Name) || strings.HasPrefix(c.Name, "plan_") {
			t.Class = policy.ClassHuman
		}
	}
	requests := t.Requests(json.RawMessage(c.Arguments))
	for i := range requests {
		requests[i].WorkDir, requests[i].Base = r.started.WorkDir, r.base
		requests[i] = requests[i].WithShell(cmp.Or(r.started.Shell, "bash"))
	}
	if r.repeats(c) && !t.Waits {
		requests = append(requests, policy.Request{Class: policy.ClassRepeat, Subject: t.Name})
	}
	r.calls = append(r.calls, recordedCall{ToolCall: c, agent: r.agent, requests: requests})
}

// repeats reports whether a call is the third or a further one in a row with the same arguments.
func (r *sessionReader) repeats(c llm.ToolCall) bool {
	var args any
	_ = json.Unmarshal([]byte(c.Arguments), &args) // invalid ones are compared as nil
	key, _ := json.Marshal([]any{c.Name, args})
	if string(key) != r.last {
		r.last, r.equal = string(key), 0
	}
	r.equal++
	return r.equal >= 3
}

// testPolicy is the command policy test.
func (p *program) testPolicy(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	rules, err := p.parsePolicyFlags(c)
	if err != nil {
		return 0, err
	}
	if rules == nil {
		return 0, usagef("the policy is missing: --policy, --allow, --deny or --ask")
	}
	calls, err := p.recordedCalls(c.String("session"))
	if err != nil {
		return 0, err
	}
	strictest := policy.Allow
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	// Flush reports the errors of all writes.
	for _, call := range calls {
		for _, q := range call.requests {
			for _, s := range rules.Decide(q).Steps {
				if s.Action == policy.Allow {
					continue
				}
				strictest = policy.Stricter(strictest, s.Action)
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Action, by(call.agent, call.ID),
					s.Permission, oneLine(because(s)))
			}
		}
	}
	_, _ = fmt.Fprintf(table, "%d calls: %s\n", len(calls), strictest)
	code := map[policy.Action]int{
		policy.Allow: codeDone, policy.Deny: codeFailed, policy.Ask: codeHuman,
	}[strictest]
	return code, table.Flush()
}

// suggestPolicy is the command policy suggest.
func (p *program) suggestPolicy(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	calls, err := p.recordedCalls(c.String("session"))
	if err != nil {
		return 0, err
	}
	var rules []policy.Rule
	var others []string
	for _, call := range calls {
		if call.refused {
			continue
		}
		for _, q := range call.requests {
			for _, s := range new(policy.Policy).Decide(q).Steps {
				if s.Action == policy.Allow {
					continue
				}
				exact := policy.Exactly([]policy.Step{s})
				for _, r := range exact {
					if r.Permission == policy.ClassRead || r.Permission == policy.ClassWrite {
						r.Pattern = strings.TrimPrefix(r.Pattern, policy.Escape(q.Base)+"/")
					}
					rules = append(rules, r)
				}
				if exact == nil {
					others = append(others, s.Permission+" "+oneLine(s.Subject))
				}
			}
		}
	}
	slices.SortFunc(rules, func(a, b policy.Rule) int {
		return cmp.Or(cmp.Compare(a.Permission, b.Permission), cmp.Compare(a.Pattern, b.Pattern))
	})
	slices.Sort(others)
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, r := range slices.Compact(rules) {
		pattern, err := json.Marshal(r.Pattern)
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(&b, "  - {permission: %s, pattern: %s, action: allow}\n", r.Permission, pattern)
	}
	if len(rules) == 0 {
		b.Reset()
		b.WriteString("rules: []\n")
	}
	for _, text := range slices.Compact(others) {
		fmt.Fprintf(&b, "# no rule allows only this: %s\n", visible(text))
	}
	_, err = fmt.Fprint(p.std.out, b.String())
	return codeDone, err
}
