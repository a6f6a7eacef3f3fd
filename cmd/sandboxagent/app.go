package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// program is one execution of the program.
type program struct {
	std  streams
	line commandLine
	code int
	// command interrupts the command of execute; it takes one value. It is nil unless one runs that
	// was not interrupted yet.
	command atomic.Pointer[chan struct{}]
	// kill immediately kills the processes of the open environment.
	kill atomic.Pointer[func()]
	// restore resets the terminal of the user. It is idempotent.
	restore atomic.Pointer[func()]
	// display is the progress of the current run.
	display atomic.Pointer[progress]
	// applying is held while changes are applied on the host, when the program must not exit.
	applying sync.Mutex
	// quiet leaves out progress and notes.
	quiet bool
	// refusal is done once a note has told how to allow a write that the sandbox refused.
	refusal sync.Once
	// lines reads the answers of the user.
	lines lineReader
	// stored is the session that the command goes on with; may be nil. held are the sessions that
	// closeHeld closes.
	stored *storedSession
	held   []heldSession
	// replay is the replay of a recorded session; may be nil.
	replay *replaying
	// part is the attempt of a batch that the program is; nil for a program of its own.
	part *part
	// worker is the agent of a submitted batch that the program is; may be nil. handed are rules that
	// tighten the policy; may be nil.
	worker *jobs.Worker
	handed *policy.Policy
	// pause is how long the server of a model wants to be left alone by a batch; zero if not longer
	// than the limit of a request.
	pause atomic.Int64
	// later means that a quota has no room for the sandbox of a worker.
	later atomic.Bool

	// tools, wrapClient, wrapStore, clock and patience are test seams: tools beside those of the
	// profile, a client around that of the model, a store around that of a session, and a clock for
	// that of the system.
	tools      []tool.Tool
	wrapClient func(llm.Client) llm.Client
	wrapStore  func(session.Store) session.Store
	clock      llm.Clock
	// patience is endTime and doctorTime, except in tests, where one value replaces both.
	patience time.Duration
}

func (p *program) endTime() time.Duration { return cmp.Or(p.patience, endTime) }

// run runs the program with args, the first of which is its name, and returns its exit code.
func (p *program) run(ctx context.Context, args []string) (code int) {
	log.SetOutput(p.std.err) // libraries write to it
	args = args[min(len(args), 1):]
	if len(args) > 0 {
		switch args[0] {
		case "help":
			args = append([]string{helpFlag}, args[1:]...)
		case "--version", "-version":
			args = append([]string{"version"}, args[1:]...)
		}
	}
	app := p.appFor(args)
	var err error
	p.line, err = parseCommandLine(app, args)
	if err != nil { // the message may name other commands
		app = p.app()
		p.line, err = parseCommandLine(app, args)
	}
	if err == nil {
		err = p.runCommandLine(ctx, app)
	} else {
		p.reportUnstarted(ctx, err)
	}
	if err != nil {
		p.fail(err)
		return failureCode(ctx, p.line.command, err)
	}
	return p.code
}

// reportUnstarted writes the record of a run whose command line has the mistake err.
func (p *program) reportUnstarted(ctx context.Context, err error) {
	if !runsTask(p.line.command) {
		return
	}
	p.line.nameSource(err)
	_, output := variable("output")
	format := cmp.Or(p.line.value("output"), output, formatText)
	if report, rerr := newReport(format, p.std.out); rerr == nil {
		report.failed(ctx, "", err)
	}
}

func (p *program) runCommandLine(ctx context.Context, app *cli.App) error {
	l := p.line
	switch {
	case l.help && l.command == "tool" && len(l.rest) > 0:
		return p.toolHelp(l.rest)
	case l.help:
		return writeHelp(p.std.out, app, l.command)
	case app.Command(l.command) == nil: // a subcommand is missing
		p.code = codeUsage
		return writeHelp(p.std.err, app, l.command)
	}
	defer p.closeHeld()
	err := p.recall(app)
	if err == nil {
		err = p.line.checkModel()
	}
	if err != nil {
		p.reportUnstarted(ctx, err)
		return err
	}
	return p.runAction(ctx, app)
}

// runAction runs the action of the command line. Commands have no Before, After and Subcommands,
// and flags no Action and Required, which App.Run of package cli obeys. App.Run also writes help
// with text/template, and the linker keeps every method of a program that can reach that, 5 MB.
func (p *program) runAction(ctx context.Context, app *cli.App) error {
	command := app.Command(p.line.command)
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	values := make(map[string][]string)
	for _, f := range p.line.flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		values[name] = append(values[name], strings.TrimSpace(value))
	}
	for _, f := range command.Flags {
		name := f.Names()[0]
		list, isList := f.(*cli.StringSliceFlag)
		if isList && values[name] != nil { // its Set would take commas for separators
			list.Value, list.HasBeenSet = cli.NewStringSlice(values[name]...), true
		}
		if err := f.Apply(set); err != nil {
			return err
		}
		if isList || values[name] == nil {
			continue
		}
		if err := set.Set(name, p.line.value(name)); err != nil {
			return usagef("--%s: %s", name, err)
		}
	}
	if err := set.Parse(append([]string{"--"}, p.line.rest...)); err != nil {
		return usagef("%s", err)
	}
	c := cli.NewContext(app, set, nil)
	c.Context, c.Command = ctx, command
	return command.Action(c)
}

// fail writes an error to standard error, in one line.
func (p *program) fail(err error) {
	p.line.nameSource(err)
	p.printLine(err.Error())
}

// printLine writes one line to standard error.
func (p *program) printLine(text string) {
	fmt.Fprintf(p.std.err, "sandboxagent: %s\n", oneLine(strings.ReplaceAll(text, "\n", "; ")))
}

// command is the name of a command, and what makes the rest of it.
type command struct {
	name string
	make func(*program) *cli.Command
}

// commands returns all commands in the order of the help.
func commands() []command {
	return []command{
		{runName, (*program).runCommand},
		{"exec", (*program).execCommand},
		{"tool", (*program).toolCommand},
		{batchName, (*program).batchCommand},
		{batchStatusName, (*program).batchStatusCommand},
		{batchRetryName, (*program).batchRetryCommand},
		{"batch schema", (*program).batchSchemaCommand},
		{submitName, (*program).submitCommand},
		{"batch wait", (*program).batchWaitCommand},
		{"batch logs", (*program).batchLogsCommand},
		{"batch collect", (*program).batchCollectCommand},
		{"batch cancel", (*program).batchCancelCommand},
		{"env verify", (*program).verifyCommand},
		{"env list", (*program).listCommand},
		{"env attach", (*program).attachCommand},
		{"env rm", (*program).removeCommand},
		{"env gc", (*program).gcCommand},
		{"image list", (*program).imagesCommand},
		{"image build", (*program).buildCommand},
		{"model list", (*program).modelsCommand},
		{"policy check", (*program).policyCheckCommand},
		{"policy explain", (*program).policyExplainCommand},
		{"policy test", (*program).policyTestCommand},
		{"policy suggest", (*program).policySuggestCommand},
		{"policy schema", (*program).policySchemaCommand},
		{"session list", (*program).sessionsCommand},
		{"session show", (*program).showCommand},
		{resumeName, (*program).resumeCommand},
		{"session rm", (*program).removeSessionCommand},
		{"session gc", (*program).gcSessionsCommand},
		{rollbackName, (*program).rollbackCommand},
		{undoName, (*program).undoCommand},
		{"session fork", (*program).forkCommand},
		{"session diff", (*program).diffSessionsCommand},
		{"session export", (*program).exportCommand},
		{"session import", (*program).importCommand},
		{"session test", (*program).testSessionsCommand},
		{configShowName, (*program).configShowCommand},
		{"config path", (*program).configPathCommand},
		{"config schema", (*program).configSchemaCommand},
		{"doctor", (*program).doctorCommand},
		{"demo", (*program).demoCommand},
		{"completion", (*program).completionCommand},
		{"version", (*program).versionCommand},
	}
}

// app returns the application with all commands.
func (p *program) app() *cli.App { return p.appOf(commands()...) }

// appFor returns the application with the commands that args can mean, if they start with the first
// word of a name: the others need not be made. Else it has all.
func (p *program) appFor(args []string) *cli.App {
	meant := slices.DeleteFunc(commands(), func(c command) bool {
		first, _, _ := strings.Cut(c.name, " ")
		return len(args) == 0 || first != args[0]
	})
	if len(meant) == 0 {
		return p.app()
	}
	return p.appOf(meant...)
}

// appOf returns the application with the given commands.
func (p *program) appOf(list ...command) *cli.App {
	app := &cli.App{
		Name:  "sandboxagent",
		Usage: "an LLM agent whose tools run in an execution environment",
	}
	for _, each := range list {
		c := each.make(p)
		c.Name = each.name
		if readsFiles(c.Flags) {
			c.Flags = append(c.Flags, profileNameFlag())
		}
		app.Commands = append(app.Commands, c)
	}
	return app
}

// action returns an action that runs work until it returns or a signal ends its context. An error
// of work is written to standard error and decides the exit code.
func (p *program) action(
	work func(ctx context.Context, c *cli.Context) (int, error),
) cli.ActionFunc {
	return func(c *cli.Context) error {
		p.code = p.interruptible(c.Context, func(ctx context.Context) int {
			code, err := work(ctx, c)
			if err == nil {
				return code
			}
			if p.part != nil {
				p.part.failure = err
			}
			var sig *signalError
			if !errors.As(context.Cause(ctx), &sig) {
				p.fail(err)
			} else {
				p.fail(sig)
			}
			return failureCode(ctx, c.Command.Name, err)
		})
		return nil
	}
}

// interactive reports whether the user can answer questions.
func (p *program) interactive() bool {
	return terminal(p.std.in) != nil &&
		terminal(p.std.err) != nil
}
