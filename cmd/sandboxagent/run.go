package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// runName is the name of the command run.
const runName = "run"

func (p *program) runCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run a task with a model",
		ArgsUsage: "[flags] TASK|-",
		UsageText: `
sandboxagent run -m openai/gpt-5 "Explain this code."
sandboxagent run -m openai/gpt-5 --env docker --apply -`,
		Description: `
With "-", read the task from standard input; otherwise data that is piped there goes
with the task. The answer goes to standard output, progress to standard error. Exit
codes: 0 done, 1 the task failed, 2 usage, 3 a limit was reached, 4 a human is needed,
5 model error, 6 environment error, 124 timeout, 130 interrupted, 143 terminated.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{
				Name: sessionName, Category: groupTask, DefaultText: "a new one",
				Usage: "go on with the stored session `ID`, and with its flags",
			},
			toolsFlag(),
		}, runFlags()...),
		Action: p.action(p.runTask),
	}
}

// runFlags are the flags of the commands that run a task.
func runFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{
			Name: "model", Aliases: []string{"m"}, Category: groupModel,
			Usage: "use `MODEL`: " + modelForms,
		},
		&cli.StringFlag{
			Name: "base-url", Category: groupModel, DefaultText: "the provider's",
			Usage: "send requests to `ADDRESS`, written up to and without /responses, " +
				"/chat/completions, /v1/messages or /v1beta",
		},
		modelsFlag(),
		providerOptionFlag(),
		agentsFlag(),
		&cli.StringFlag{
			Name: "agent", Category: groupModel, DefaultText: agent.KindBuild,
			Usage: "be an agent of the `KIND` build, plan, general, explore or of --agents",
		},
		&cli.StringFlag{
			Name: "reasoning-effort", Category: groupModel, DefaultText: "the model's",
			Usage: "pass `EFFORT` to the model: low, medium, high, or a value of the provider's, such as " +
				"xhigh or a number of tokens",
		},
		&cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Category: groupOutput, Value: formatText,
			Usage: "write standard output in `FORMAT`: text, json or stream-json",
		},
		&cli.StringFlag{
			Name: "verify", Category: groupTask,
			Usage: "accept the task as done only if `COMMAND` succeeds",
		},
		&cli.BoolFlag{
			Name: "yes", Category: groupTask,
			Usage: "allow the model to act without a sandbox",
		},
		&cli.IntFlag{
			Name: "max-turns", Category: groupTask, DefaultText: "no limit",
			Usage: "end after `N` requests, with sub-agents",
		},
		&cli.IntFlag{
			Name: "max-tool-rounds", Category: groupTask,
			DefaultText: fmt.Sprint(agent.DefaultMaxToolRounds),
			Usage:       "end after `N` rounds of tool calls",
		},
		&cli.Int64Flag{
			Name: "max-tokens", Category: groupTask, DefaultText: "no limit",
			Usage: "end after `N` tokens, with sub-agents",
		},
		&cli.Float64Flag{
			Name: "max-cost", Category: groupTask, DefaultText: "no limit",
			Usage: "end after `N` US dollars, with sub-agents",
		},
		&cli.BoolFlag{
			Name: "final-answer", Category: groupTask, Value: true, DefaultText: "true",
			Usage: "have the model report, with one more request, when a run ends without an answer",
		},
		&cli.IntFlag{
			Name: "max-processes", Category: groupTask, DefaultText: "no limit",
			Usage: "kill a command with more than `N` processes at once",
		},
		&cli.BoolFlag{
			Name: "verbose", Aliases: []string{"v"}, Category: groupOutput,
			Usage: "show the results of tools too",
		},
	}, thoughtFlags(), retryFlags(), guardFlags(), attachFlags(), patchFlags(),
		environmentFlags(groupTask, "end the run after this `DURATION`, wall clock"))
}

// thoughtFlags are about plans, failures and titles.
func thoughtFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{
			Name: "planner", Category: groupTask,
			Usage: "have the model keep a plan of subtasks, which it is told again and again",
		},
		&cli.IntFlag{
			Name: "max-replans", Category: groupTask, Value: agent.DefaultMaxReplans,
			Usage: "after three failures in a row, or a report that the task cannot be done, have the " +
				"model find the cause and go on, at most `N` times",
		},
		&cli.StringFlag{
			Name: "progress-file", Category: groupTask,
			Usage: "add a line for each failure to the `FILE` in the working directory",
		},
		&cli.BoolFlag{
			Name: "title", Category: groupTask,
			Usage: "have the model write a title for the session, with one more request",
		},
	}
}

// retryFlags are about requests to the model that fail.
func retryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{
			Name: "max-retries", Category: groupModel, Value: llm.DefaultMaxRetries,
			Usage: "send a failed request again at least `N` times, also after --retry-for",
		},
		&cli.DurationFlag{
			Name: "retry-for", Category: groupModel, Value: retryFor,
			Usage: "send a failed request again for `DURATION`, as in an outage",
		},
		&cli.DurationFlag{
			Name: "max-retry-wait", Category: groupModel, Value: llm.DefaultMaxWait,
			Usage: "wait at most `DURATION` before a retry that the server of the model delays",
		},
	}
}

// retryFor is the default of --retry-for.
const retryFor = 2 * time.Minute

// verboseLines bounds the lines of each result that --verbose shows.
const verboseLines = 200

// runSettings are the values of the flags of run.
type runSettings struct {
	environmentSettings
	task   string
	reply  *agent.Reply
	effort string
	verify string
	patch  patchSettings
	yes    bool
	limits agent.Limits
	retry  llm.RetryPolicy
}

// effortValue is a word, or a number of tokens for providers that accept one.
var effortValue = lazyregexp.New(`^([a-z]*|[1-9][0-9]{0,8})$`)

// parseRunFlags reads all flags but the format, which comes first so that even an invalid flag
// gives a result record.
func (p *program) parseRunFlags(ctx context.Context, c *cli.Context) (runSettings, error) {
	common, err := p.parseEnvironmentFlags(c)
	if err != nil {
		return runSettings{}, err
	}
	s := runSettings{
		environmentSettings: common,
		effort:              c.String("reasoning-effort"),
		verify:              c.String("verify"),
		yes:                 c.Bool("yes"),
		retry: llm.RetryPolicy{
			MaxRetries: c.Int("max-retries"), For: c.Duration("retry-for"),
			MaxWait: c.Duration("max-retry-wait"),
		},
		limits: agent.Limits{
			MaxTurns: c.Int("max-turns"), MaxToolRounds: c.Int("max-tool-rounds"),
			MaxTokens: c.Int64("max-tokens"), MaxProcesses: c.Int("max-processes"),
			MaxCost: c.Float64("max-cost"), MaxReplans: c.Int("max-replans"),
		},
	}
	for _, name := range []string{
		"max-turns", "max-tool-rounds", "max-tokens", "max-processes", "max-replans", "max-retries",
	} {
		if n := c.Int64(name); n < 0 || c.Int(name) < 0 {
			return s, usagef("--%s is negative", name)
		}
	}
	if cost := s.limits.MaxCost; c.IsSet("max-cost") && !(cost > 0) || math.IsInf(cost, 0) {
		return s, usagef("--max-cost %g is no amount of US dollars that allows a request", cost)
	}
	if c.IsSet("max-tool-rounds") && s.limits.MaxToolRounds == 0 {
		return s, usagef("--max-tool-rounds is 0; it allows at least one")
	}
	for _, name := range []string{"retry-for", "max-retry-wait"} {
		if d := c.Duration(name); d < 0 {
			return s, usagef("--%s %s is negative", name, d)
		}
	}
	if s.limits.MaxReplans == 0 {
		s.limits.MaxReplans = -1 // none
	}
	if s.retry.MaxRetries == 0 {
		s.retry.MaxRetries = -1 // none
	}
	if s.retry.MaxWait == 0 {
		s.retry.MaxWait = -1 // no wait at all
	}
	if !effortValue().MatchString(s.effort) {
		return s, usagef("--reasoning-effort: %q is neither a word such as low, medium or high nor a "+
			"number of tokens", s.effort)
	}
	if c.Bool("quiet") && c.Bool("verbose") {
		return s, usagef("--quiet and --verbose exclude each other")
	}
	if s.patch, err = parsePatchFlags(c, s.environmentSettings); err != nil {
		return s, err
	}
	return s, p.readTask(ctx, c, &s)
}

// maxTask bounds a task from standard input, in bytes.
const maxTask = 16 << 20

// readTask sets the task, or the reply that goes on without one.
func (p *program) readTask(ctx context.Context, c *cli.Context, s *runSettings) error {
	args := c.Args().Slice()
	if p.stored != nil {
		var err error
		if s.reply, err = p.reply(c, args); s.reply != nil || err != nil {
			return err
		}
		if args, err = p.stored.task(p.line.command, args, c.String(answerName)); err != nil {
			return err
		}
	}
	args = p.replay.task(args)
	switch {
	case len(args) == 0:
		return usagef("the task is missing; give it as one argument, or as - to read it from " +
			"standard input")
	case len(args) > 1:
		return usagef("the task must be one argument, not %d; put it in quotes", len(args))
	}
	task := args[0]
	if task == fromStdin {
		data, err := readAll(ctx, p.std.in, maxTask)
		if timedOut(ctx) {
			return fmt.Errorf("read the task from standard input: %w", context.Cause(ctx))
		}
		if err != nil {
			return usagef("read the task from standard input: %s", err)
		}
		task = strings.ToValidUTF8(string(data), "\uFFFD")
	}
	if strings.TrimSpace(task) == "" {
		return usagef("the task is empty")
	}
	s.task = task
	return nil
}

// errTooLong means that an input has too many bytes; the limit follows in the text.
var errTooLong = errors.New("more than")

// readAll reads in to its end, or until ctx ends. More than limit bytes are an error.
func readAll(ctx context.Context, in io.Reader, limit int64) ([]byte, error) {
	type content struct {
		data []byte
		err  error
	}
	read := make(chan content, 1)
	go func() { // a terminal may keep a read waiting for ever
		data, err := io.ReadAll(io.LimitReader(in, limit+1))
		read <- content{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case got := <-read:
		if got.err == nil && int64(len(got.data)) > limit {
			return nil, fmt.Errorf("%w %d bytes", errTooLong, limit)
		}
		return got.data, got.err
	}
}

// runTask is the command run.
func (p *program) runTask(ctx context.Context, c *cli.Context) (int, error) {
	report, err := newReport(c.String("output"), p.std.out)
	if err != nil {
		return 0, err
	}
	outer := ctx
	if d := c.Duration("timeout"); d > 0 { // prepare rejects a negative one
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, agent.ErrTimeLimit)
		defer cancel()
	}
	j, err := p.prepare(ctx, c)
	if err != nil {
		p.line.nameSource(err)
		var usage *usageError
		file := ""
		if !errors.As(err, &usage) {
			file, err = unstarted(ctx, c.String("patch"), err)
		}
		if usage != nil || !timedOut(ctx) {
			report.failed(outer, file, err)
			return 0, err
		}
		err = fmt.Errorf("%s: %w", timeoutText, err)
		report.failed(ctx, file, err)
		p.fail(err)
		return codeTimeout, nil
	}
	j.sink = report.event
	report.still = j.replay.playsTools()
	record, answered := p.work(ctx, j)
	if err := report.finish(record, answered); err != nil {
		p.printLine("write the result: " + err.Error())
		if record.ExitCode == codeDone {
			return codeEnvironment, nil
		}
		return record.ExitCode, nil
	}
	if record.Resume != "" && (!p.quiet || record.ExitCode == codeHuman) {
		p.printLine("go on with: " + record.Resume)
		if again, ok := strings.CutSuffix(record.Resume, "--"+approveName); ok {
			p.printLine("or with: " + again + "--" + refuseName + " TEXT")
		}
	}
	if record.Error != "" {
		p.printLine(p.printMiss(record.Error))
	}
	return record.ExitCode, nil
}

// prepare validates everything possible before the first request to the model, and gets the consent
// of the user last.
func (p *program) prepare(ctx context.Context, c *cli.Context) (_ *job, err error) {
	if p.replay.playsTools() {
		return p.prepareReplay(ctx, c)
	}
	s, err := p.parseRunFlags(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := p.stored.checkPlace(s.backend); err != nil {
		return nil, err
	}
	defer s.readAhead()()
	m, kinds, err := p.openModels(c, s.limits)
	if err != nil {
		return nil, err
	}
	guard, err := p.parseGuardFlags(c, s.config.vars)
	if err != nil {
		return nil, err
	}
	rules, err := p.tightened(guard.rules)
	if err != nil {
		return nil, err
	}
	s.redactor = guard.redactor
	line, err := p.recordLine(s.config.vars)
	if err != nil {
		return nil, err
	}
	if p.part == nil {
		hideKeys(s.config.inherit.Pass)
	}
	j := &job{
		task: s.task, reply: s.reply, patch: s.patch, fetch: s.fetch,
		interactive: p.interactive(), stored: p.stored, held: p.heldSession, replay: p.replay,
	}
	if c.Bool("verbose") {
		j.outputs = verboseLines
	}
	if j.parts, err = p.attachments(ctx, c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.closeInTime(ctx, j.env))
		}
	}()
	if j.env, err = p.openInTime(ctx, s.environmentSettings); err != nil {
		return nil, err
	}
	p.part.opened()
	if j.sessions, err = p.openSessions(ctx, s.yes || guard.rules != nil, j.env); err != nil {
		return nil, err
	}
	if s.yes && guard.rules == nil && !j.env.isolated {
		j.again = " --yes"
	}
	j.again += unrecorded(line)
	j.config = p.configure(c, j, s, m, guard)
	j.config.Rules, j.config.Program = rules, line
	j.config.PastFailures = pastFailures(j.sessions, line)
	j.config.Subagents.Kinds = kinds
	if p.replay != nil {
		j.config.PastFailures = p.replay.recorded.PastFailures
	}
	if s.readOnly {
		j.config.Policy.Allow = readOnlyTools(slices.Concat(m.profile.Tools, p.tools))
		j.config.ProgressFile = ""
	}
	if j.config, err = withKind(c, j.config); err != nil {
		return nil, err
	}
	if j.hints, err = p.placeHints(ctx, j, s.existing != nil); err != nil {
		return nil, err
	}
	if s.readOnly {
		j.hints = append(j.hints, readOnlyText)
	}
	return j, nil
}

// configure returns the configuration of a run in its environment, without rules, kinds and what
// the session records.
func (p *program) configure(
	c *cli.Context, j *job, s runSettings, m model, guard guardrails,
) agent.Config {
	return agent.Config{
		Client:   p.client(m.client, j.env),
		Profile:  m.profile,
		Env:      j.env.wrapped,
		Tools:    p.tools,
		Store:    p.newStores(j.sessions),
		Retry:    s.retry,
		Budget:   p.part.budget(),
		Settings: agent.Settings{ReasoningEffort: s.effort},
		Limits:   s.limits,
		Verify:   agent.Verify{Command: s.verify},
		Backups:  s.backend.inPlace(),
		Approve:  guard.approve,
		Redactor: guard.redactor,
		Log:      j.env.log, Clock: p.clock,

		FinalAnswer:    c.Bool("final-answer"),
		Planner:        c.Bool("planner"),
		Titles:         c.Bool("title"),
		ProgressFile:   c.String("progress-file"),
		ReadFirst:      guard.readFirst,
		Modes:          guard.modes,
		ApproveTimeout: guard.approveTimeout,
	}
}

// openSessions returns the directory of sessions, after the user has allowed a model to act in e,
// if nothing else decides that: a sandbox, a flag, or rules about each call.
func (p *program) openSessions(
	ctx context.Context, allowed bool, e *environment,
) (string, error) {
	if p.part != nil {
		return p.part.openSessions(ctx, e)
	}
	state, err := stateDir()
	if err != nil {
		return "", err
	}
	if !e.isolated {
		if err := p.consent(ctx, allowed, state, e, ""); err != nil {
			return "", err
		}
	}
	if state, err = p.openState(state); err != nil {
		return "", err
	}
	return filepath.Join(state, "sessions"), nil
}

// readOnlyTools are the names of the tools for a read-only environment.
func readOnlyTools(all []tool.Tool) []string {
	// sub-agents are offered no more than this either
	names := slices.Concat(agentTools[:], plannerTools)
	for _, t := range all {
		if t.ReadOnly || !t.NeedsEnv || t.Class == policy.ClassShell {
			names = append(names, t.Name)
		}
	}
	return names
}

// prompt shows a question of the model to the user and returns the answer.
func (p *program) prompt(
	ctx context.Context, show *progress, question string,
) (answer string, err error) {
	show.pause(func() {
		fmt.Fprintf(p.std.err, "Question of the model: %s\n",
			cmp.Or(strings.TrimSpace(sanitize(question)), "(nothing)"))
		for strings.TrimSpace(answer) == "" && err == nil {
			fmt.Fprint(p.std.err, "Your answer: ")
			answer, err = p.lines.read(ctx, p.std.in)
		}
		if err != nil {
			fmt.Fprintln(p.std.err)
		}
	})
	return answer, err
}

// readOnlyText explains to a model that a run cannot change anything.
const readOnlyText = "This run is read-only: files can be read and searched, and commands run, " +
	"but none can change a file, except temporary ones in $TMPDIR. Where that cannot be enforced, " +
	"only commands run that certainly change nothing. If the task asks for a change, describe it " +
	"instead."
