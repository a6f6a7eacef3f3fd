package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

// policyFlags are the flags that make a policy.
func policyFlags() []cli.Flag {
	rules := func(action, effect string) cli.Flag {
		return &cli.StringSliceFlag{
			Name: action, Category: groupPolicy,
			Usage: effect + " what `PERMISSION:PATTERN` matches, such as 'shell:git status *'; may be " +
				"repeated",
		}
	}
	return []cli.Flag{
		&cli.StringFlag{
			Name: "policy", Category: groupPolicy,
			Usage: "decide by `POLICY`, a file or one of " + strings.Join(policy.Presets(), ", "),
		},
		rules("deny", "deny"), rules("ask", "ask about"), rules("allow", "allow"),
	}
}

// parsePolicyFlags reads policyFlags; nil without any. Rules of flags go before those of the file,
// those that deny before those that ask, and these before those that allow.
func (p *program) parsePolicyFlags(c *cli.Context) (*policy.Policy, error) {
	rules, err := readPolicyFlags(c)
	if err == nil && rules != nil {
		err = p.checkPermissions(rules)
	}
	return rules, err
}

// checkPermissions returns a usageError for a rule whose permission no tool has.
func (p *program) checkPermissions(rules *policy.Policy) error {
	known, err := p.toolRegistry()
	if err != nil {
		return err
	}
	plan := []string{"plan_enter", "plan_exit"}
	err = rules.Check(slices.Concat(known.Names(), runTools[:], agentTools[:], plan))
	if err != nil {
		return usagef("%s", err)
	}
	return nil
}

func readPolicyFlags(c *cli.Context) (*policy.Policy, error) {
	p := &policy.Policy{}
	given := false
	for _, action := range []policy.Action{policy.Deny, policy.Ask, policy.Allow} {
		for _, text := range c.StringSlice(string(action)) {
			r, err := policy.ParseRule(action, text, "--"+string(action))
			if err != nil {
				return nil, usagef("--%s: %s", action, err)
			}
			p.Rules = append(p.Rules, r)
			given = true
		}
	}
	name := c.String("policy")
	if name == "" {
		if given {
			return p, nil
		}
		return nil, nil
	}
	base := policy.Preset(name)
	if base == nil {
		var err error
		switch base, err = readPolicy(name); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usagef("--policy: %s; name a file or one of %s", err,
				strings.Join(policy.Presets(), ", "))
		case err != nil:
			return nil, usagef("--policy: %s", err)
		}
	}
	return &policy.Policy{Rules: slices.Concat(p.Rules, base.Rules), Default: base.Default}, nil
}

// guardFlags are the flags of run about policies and secrets.
func guardFlags() []cli.Flag {
	return append(policyFlags(),
		&cli.StringFlag{
			Name: "redact", Category: groupPolicy, Value: string(redact.Patterns),
			Usage: "keep secrets from the model and the session: `WHICH` is off, values, those of " +
				"variables, or patterns, also those with a known form",
		},
		&cli.StringFlag{
			Name: "mode", Category: groupPolicy, DefaultText: "build, without plan_enter",
			Usage: "start in `MODE`: plan, in which the model changes nothing but PLAN.md until its " +
				"plan is approved, or build, from which it may change to plan",
		},
		&cli.BoolFlag{
			Name: "read-first", Category: groupPolicy, Value: true, DefaultText: "true",
			Usage: "let tools change only files that the model has read; --read-first=false turns it off",
		},
		&cli.StringFlag{
			Name: "approve-with", Category: groupPolicy, DefaultText: "ask on the terminal",
			Usage: "have `COMMAND` of this machine answer what the policy asks about: JSON in, JSON out",
		},
		&cli.DurationFlag{
			Name: "approve-timeout", Category: groupPolicy, Value: 10 * time.Minute,
			Usage: "refuse what nobody approves within this `DURATION`",
		},
		&cli.DurationFlag{
			Name: "approve-later", Category: groupPolicy, DefaultText: "refuse at once",
			Usage: "where nobody can be asked, end the run with exit code 4, and let \"" + resumeName +
				"\" approve within this `DURATION`",
		},
	)
}

// guardrails are what keeps a model from doing and seeing what it must not.
type guardrails struct {
	// rules decide calls; nil allows everything.
	rules *policy.Policy
	// approve asks a program; nil asks on the terminal.
	approve        func(context.Context, agent.Approval) (agent.Reply, error)
	approveTimeout time.Duration
	redactor       *redact.Redactor
	readFirst      bool
	modes          *agent.Modes // nil without --mode
}

// parseGuardFlags reads the flags of run about policies and secrets; set are the variables for
// commands. The environment variables of this process must still have the secrets.
func (p *program) parseGuardFlags(c *cli.Context, set []string) (g guardrails, err error) {
	if g.rules, err = p.parsePolicyFlags(c); err != nil {
		return g, err
	}
	g.readFirst = c.Bool("read-first")
	switch mode := c.String("mode"); mode {
	case "":
	case "plan", "build":
		g.modes = &agent.Modes{Plan: mode == "plan"}
	default:
		return g, usagef("--mode: %q is not one of plan, build", mode)
	}
	later := c.Duration("approve-later")
	if c.IsSet("approve-later") && later <= 0 {
		return g, usagef("--approve-later: the duration must be positive")
	}
	switch command := c.String("approve-with"); {
	case command != "":
		g.approve = approveWith(command, later)
	case later > 0 && !p.interactive():
		g.approve = func(context.Context, agent.Approval) (agent.Reply, error) {
			return agent.Reply{
				Verdict: agent.Postpone, Until: time.Now().Add(later),
			}, nil
		}
	}
	if g.approveTimeout = c.Duration("approve-timeout"); g.approveTimeout <= 0 {
		return g, usagef("--approve-timeout: the duration must be positive")
	}
	mode := redact.Mode(c.String("redact"))
	if !slices.Contains([]redact.Mode{redact.Off, redact.Values, redact.Patterns}, mode) {
		return g, usagef("--redact: %q is not one of off, values, patterns", mode)
	}
	g.redactor = redact.New(mode, secretValues(slices.Concat(p.environ(), set)))
	return g, nil
}

// secretValues returns the variables that hold secrets, by their names or values.
func secretValues(variables []string) map[string]string {
	secrets := make(map[string]string)
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		if !vars.IsSecretName(name) && !vars.HasSecret(value) {
			continue
		}
		if _, err := os.Stat(value); err != nil { // the name of a file, such as a socket, is no secret
			secrets[name] = value
		}
	}
	return secrets
}

// redactAttr replaces secrets in the texts of a log.
func redactAttr(r *redact.Redactor) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(r.Text(v))
		case error:
			a.Value = slog.StringValue(r.Text(v.Error()))
		case []string:
			list := make([]string, len(v))
			for i := range v {
				list[i] = r.Text(v[i])
			}
			a.Value = slog.AnyValue(list)
		}
		return a
	}
}

// readPolicy reads a policy from a file.
func readPolicy(file string) (*policy.Policy, error) {
	data, err := readFile(file, maxTable)
	if err != nil {
		return nil, err
	}
	return policy.Parse(data, file)
}

// repositoryPolicy is the policy in a working directory, which may only tighten that of the user.
const repositoryPolicy = ".sandboxagent/policy.yaml"

// tightened adds the rules in the project's file, here and where a batch was submitted, which may
// only tighten, to rules.
func (p *program) tightened(rules *policy.Policy) (*policy.Policy, error) {
	for _, own := range []*policy.Policy{p.line.rules, p.handed} {
		if own == nil {
			continue
		}
		if err := p.checkPermissions(own); err != nil {
			return nil, err
		}
		rules = rules.Tighten(own)
	}
	return rules, nil
}

// tighten adds the policy in the working directory.
func (j *job) tighten(ctx context.Context) error {
	data, err := env.ReadFile(ctx, j.env.plain, repositoryPolicy, maxTable)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the policy of the repository cannot be read: %w", err)
	}
	rules, err := policy.Parse(data, repositoryPolicy)
	if err != nil {
		return usagef("the policy of the repository: %s", err)
	}
	if j.checkRules != nil {
		if err := j.checkRules(rules); err != nil {
			return err
		}
	}
	j.config.Rules = j.config.Rules.Tighten(rules)
	return nil
}

func (p *program) policyCheckCommand() *cli.Command {
	return &cli.Command{
		Usage: "validate files with policies", ArgsUsage: "FILE...",
		UsageText: `
sandboxagent policy check policy.yaml
sandboxagent policy check .sandboxagent/policy.yaml`,
		Description: `
Exit codes: 0 all are valid, 2 a mistake, with its file, line and field.`,
		Action: p.action(p.checkPolicies),
	}
}

func (p *program) policyExplainCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print the decision about a command",
		ArgsUsage: "[flags] -- COMMAND...",
		UsageText: `
sandboxagent policy explain --policy ci -- 'ls; git push'
sandboxagent policy explain --allow shell:make -- make`,
		Description: `
One argument is a text for the shell, several are the words of one command. Each line is a part of
the command with the decision and the rule that made it. A policy in ` + repositoryPolicy + `
of the current directory and rules of its ` + configName + ` count, too. Exit codes: 0 allow,
1 deny, 4 ask.`,
		Flags: append(policyFlags(), &cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Category: groupOutput, Value: formatText,
			Usage: "write in `FORMAT`: text or json",
		}),
		Action: p.action(p.explainPolicy),
	}
}

func (p *program) policySchemaCommand() *cli.Command {
	return &cli.Command{
		Usage: "print the JSON Schema of files with policies",
		UsageText: `
sandboxagent policy schema
sandboxagent policy schema > policy.schema.json`,
		Action: p.action(func(_ context.Context, c *cli.Context) (int, error) {
			if err := noArguments(c); err != nil {
				return 0, err
			}
			_, err := fmt.Fprint(p.std.out, policy.Schema)
			return codeDone, err
		}),
	}
}

// checkPolicies is the command policy check.
func (p *program) checkPolicies(_ context.Context, c *cli.Context) (int, error) {
	if !c.Args().Present() {
		return 0, usagef("the file is missing")
	}
	code := codeDone
	for _, file := range c.Args().Slice() {
		rules, err := readPolicy(file)
		if err == nil {
			err = p.checkPermissions(rules)
		}
		mistakes := []error{err}
		if list, ok := err.(interface{ Unwrap() []error }); ok {
			mistakes = list.Unwrap()
		}
		for _, m := range mistakes {
			if m != nil {
				p.fail(m)
				code = codeUsage
			}
		}
	}
	return code, nil
}

// explained is the output of policy explain.
type explained struct {
	Decision policy.Action   `json:"decision"`
	Steps    []explainedStep `json:"steps"`
}

type explainedStep struct {
	Decision   policy.Action `json:"decision"`
	Permission string        `json:"permission"`
	Subject    string        `json:"subject"`
	Rule       string        `json:"rule,omitempty"`
	Source     string        `json:"source,omitempty"`
	Reason     string        `json:"reason,omitempty"`
}

// explainPolicy is the command policy explain.
func (p *program) explainPolicy(_ context.Context, c *cli.Context) (int, error) {
	format := c.String("output")
	if format != formatText && format != formatJSON {
		return 0, usagef("--output: %q is not one of text, json", format)
	}
	words := c.Args().Slice()
	if len(words) == 0 {
		return 0, usagef("the command is missing; put it after \"--\"")
	}
	rules, err := p.parsePolicyFlags(c)
	if err != nil {
		return 0, err
	}
	if rules == nil {
		rules = &policy.Policy{}
	}
	switch own, err := readPolicy(repositoryPolicy); {
	case err == nil:
		if err := p.checkPermissions(own); err != nil {
			return 0, err
		}
		rules = rules.Tighten(own)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, usagef("%s", err)
	}
	if rules, err = p.tightened(rules); err != nil {
		return 0, err
	}
	command := words[0]
	if len(words) > 1 {
		for i, word := range words {
			if words[i], err = syntax.Quote(word, syntax.LangBash); err != nil {
				return 0, usagef("the argument %q: %s", word, err)
			}
		}
		command = strings.Join(words, " ")
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	d := rules.Decide(policy.Request{
		Tool: "shell", Class: policy.ClassShell, Subject: command, Bash: true,
		WorkDir: filepath.ToSlash(dir),
	})
	out := explained{Decision: d.Action, Steps: explainSteps(d.Steps)}
	code := map[policy.Action]int{
		policy.Allow: codeDone, policy.Deny: codeFailed, policy.Ask: codeHuman,
	}[d.Action]
	return code, p.writeExplained(out, format)
}

// explainSteps returns the form of steps for output.
func explainSteps(steps []policy.Step) []explainedStep {
	list := []explainedStep{}
	for _, s := range steps {
		e := explainedStep{
			Decision: s.Action, Permission: s.Permission, Subject: s.Subject, Reason: s.Reason,
		}
		if s.Rule != nil {
			e.Rule, e.Source = s.Rule.String(), s.Rule.Source
		}
		list = append(list, e)
	}
	return list
}

func (p *program) writeExplained(out explained, format string) error {
	if format == formatJSON {
		enc := json.NewEncoder(p.std.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(out)
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	// Flush reports the errors of all writes.
	for _, s := range out.Steps {
		reason := s.Reason
		if s.Rule != "" {
			by := fmt.Sprintf("%q of %s", s.Rule, s.Source)
			if reason == "" {
				reason = by
			} else {
				reason += "; " + by
			}
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Decision, s.Permission, oneLine(s.Subject),
			oneLine(reason))
	}
	_, _ = fmt.Fprintf(table, "decision: %s\n", out.Decision)
	return table.Flush()
}
