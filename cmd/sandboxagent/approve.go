package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aymanbagabas/go-udiff"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

// approve asks the user on the terminal about a call.
func (p *program) approve(
	ctx context.Context, show *progress, j *job, a agent.Approval,
) (reply agent.Reply, err error) {
	lines := j.fileDiff(ctx, a)
	if lines == nil {
		lines = callLines(a)
	}
	show.pause(func() {
		fmt.Fprintf(p.std.err, "The model asks for permission: %s\n", visible(by(a.AgentID, a.Tool)))
		for _, line := range lines {
			fmt.Fprintf(p.std.err, "    %s\n", visible(line))
		}
		for _, s := range a.Steps {
			fmt.Fprintf(p.std.err, "  %s: %s %s\n", s.Action, s.Permission, visible(because(s)))
		}
		reply, err = p.askApproval(ctx, a)
	})
	return reply, err
}

// askApproval asks until it gets an answer.
func (p *program) askApproval(
	ctx context.Context, a agent.Approval,
) (reply agent.Reply, err error) {
	choices := "[o]nce, [d]eny, deny with a [m]essage, a[b]ort the run: "
	if len(a.Always) > 0 {
		for _, r := range a.Always {
			fmt.Fprintf(p.std.err, "  always means: %s\n", visible(r.String()))
		}
		choices = "[o]nce, [a]lways in this session, [d]eny, deny with a [m]essage, a[b]ort the run: "
	}
	p.lines.discard(p.std.in) // what was typed before the question is no answer
	for {
		fmt.Fprint(p.std.err, "Allow it? "+choices)
		answer, err := p.lines.read(ctx, p.std.in)
		if err != nil {
			fmt.Fprintln(p.std.err)
			return reply, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "o", "once", "y", "yes":
			return agent.Reply{Verdict: agent.ApproveOnce}, nil
		case "a", "always":
			if len(a.Always) > 0 {
				return agent.Reply{Verdict: agent.ApproveAlways}, nil
			}
		case "d", "deny", "n", "no":
			return agent.Reply{Verdict: agent.Refuse}, nil
		case "b", "abort":
			return agent.Reply{Verdict: agent.AbortRun}, nil
		case "m", "message":
			fmt.Fprint(p.std.err, "Message to the model: ")
			message, err := p.lines.read(ctx, p.std.in)
			return agent.Reply{Verdict: agent.Refuse, Message: message}, err
		}
	}
}

// because returns the subject of a step and the reason for its decision.
func because(s policy.Step) string {
	text := oneLine(s.Subject)
	if s.Rule != nil {
		text += fmt.Sprintf(", by %q of %s", s.Rule.String(), s.Rule.Source)
	}
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	return text
}

// callLines returns a call as the user judges it: all of its arguments.
func callLines(a agent.Approval) (lines []string) {
	var args map[string]any
	if err := json.Unmarshal(a.Arguments, &args); err != nil {
		return []string{string(a.Arguments)}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		text, ok := args[name].(string)
		if !ok {
			value, _ := json.Marshal(args[name]) // it came from JSON
			text = string(value)
		}
		if text = strings.TrimSuffix(text, "\n"); !strings.Contains(text, "\n") {
			lines = append(lines, name+": "+text)
			continue
		}
		lines = append(lines, name+":")
		for line := range strings.SplitSeq(text, "\n") {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// fileDiff returns the lines of a file that a call of write_file changes; nil if it is another call
// or the file cannot be read, as one that does not exist.
func (j *job) fileDiff(ctx context.Context, a agent.Approval) []string {
	var args struct {
		Name    string `json:"file_path"`
		Content string
	}
	if a.Tool != "write_file" || json.Unmarshal(a.Arguments, &args) != nil {
		return nil
	}
	name := args.Name
	if !path.IsAbs(name) {
		name = path.Join(a.WorkDir, name)
	}
	old, err := env.ReadFile(ctx, j.env.plain, name, 0)
	if err != nil {
		return nil
	}
	diff := udiff.Unified(name, name, j.config.Redactor.Text(string(old)), args.Content)
	if diff == "" {
		diff = "its content stays the same"
	}
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	return append([]string{"file_path: " + args.Name}, lines...)
}

// blank are printable characters that look like blanks, or like nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x034f, 0x034f, 1},
		{0x115f, 0x1160, 1},
		{0x17b4, 0x17b5, 1},
		{0x180b, 0x180f, 1},
		{0x2800, 0x2800, 1},
		{0x3164, 0x3164, 1},
		{0xfe00, 0xfe0f, 1},
		{0xffa0, 0xffa0, 1},
	},
	R32: []unicode.Range32{{0xe0100, 0xe01ef, 1}},
}

// visible returns a text with all characters that a terminal does not show, or that change the
// order of others, as escapes.
func visible(text string) string {
	var b strings.Builder
	for _, r := range strings.TrimSuffix(text, "\n") {
		if unicode.IsPrint(r) && !unicode.Is(blank, r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// approvalRequest is the standard input of the program of --approve-with.
type approvalRequest struct {
	AgentID   string          `json:"agent_id,omitempty"`
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Parts     []explainedStep `json:"parts"`
}

// approveWith returns a function that asks a program on this machine about a call. A call that the
// program postpones may be approved for the time later.
func approveWith(
	command string, later time.Duration,
) func(context.Context, agent.Approval) (agent.Reply, error) {
	return func(ctx context.Context, a agent.Approval) (agent.Reply, error) {
		reply, err := runApprover(ctx, command, a)
		if later > 0 {
			reply.Until = time.Now().Add(later)
		}
		if err != nil {
			err = fmt.Errorf("--approve-with %s: %w", command, err)
		}
		return reply, err
	}
}

func runApprover(
	ctx context.Context, command string, a agent.Approval,
) (reply agent.Reply, err error) {
	input, err := json.Marshal(approvalRequest{
		AgentID: a.AgentID, CallID: a.CallID, Tool: a.Tool, Arguments: a.Arguments,
		Parts: explainSteps(a.Steps),
	})
	if err != nil {
		return reply, err
	}
	e, err := local.New(local.Config{Inherit: &vars.Filter{Mode: vars.All}})
	if err != nil {
		return reply, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var out, problem bytes.Buffer
	res, err := e.Exec(ctx, env.Command{
		Argv: []string{"sh", "-c", command}, Stdin: bytes.NewReader(append(input, '\n')),
		Stdout: &out, Stderr: &problem,
	})
	if err != nil {
		return reply, err
	}
	if res.ExitCode != 0 {
		return reply, fmt.Errorf("exit code %d: %s", res.ExitCode, oneLine(problem.String()))
	}
	var answer struct{ Answer, Message string }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return reply, fmt.Errorf("its answer is not JSON: %w", err)
	}
	reply = agent.Reply{Verdict: agent.Verdict(answer.Answer), Message: answer.Message}
	known := []agent.Verdict{
		agent.ApproveOnce, agent.ApproveAlways, agent.Refuse, agent.AbortRun, agent.Postpone,
	}
	if !slices.Contains(known, reply.Verdict) {
		return reply, fmt.Errorf("the answer %q is not one of once, always, deny, abort, later",
			answer.Answer)
	}
	return reply, nil
}
