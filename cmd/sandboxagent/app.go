package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	app := p.app()
	args = args[min(len(args), 1):]
	if len(args) > 0 {
		switch args[0] {
		case "help":
			args = append([]string{helpFlag}, args[1:]...)
		case "--version", "-version":
			args = append([]string{"version"}, args[1:]...)
		}
	}
	var err error
	p.line, err = parseCommandLine(app, args)
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
	l = p.line
	only := *app // package cli prepares each command that it has
	only.Commands = []*cli.Command{app.Command(l.command)}
	return only.RunContext(ctx, slices.Concat([]string{app.Name, l.command}, l.flags, []string{"--"},
		l.rest))
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

func (p *program) app() *cli.App {
	return p.appOf(
		p.runCommand(), p.execCommand(), p.toolCommand(),
		p.batchCommand(), p.batchStatusCommand(), p.batchRetryCommand(), p.batchSchemaCommand(),
		p.submitCommand(), p.batchWaitCommand(), p.batchLogsCommand(), p.batchCollectCommand(),
		p.batchCancelCommand(),
		p.verifyCommand(), p.listCommand(),
		p.attachCommand(), p.removeCommand(), p.gcCommand(),
		p.imagesCommand(), p.buildCommand(), p.modelsCommand(),
		p.policyCheckCommand(), p.policyExplainCommand(), p.policyTestCommand(),
		p.policySuggestCommand(), p.policySchemaCommand(),
		p.sessionsCommand(), p.showCommand(), p.resumeCommand(), p.removeSessionCommand(),
		p.gcSessionsCommand(), p.rollbackCommand(), p.undoCommand(),
		p.forkCommand(), p.diffSessionsCommand(), p.exportCommand(), p.importCommand(),
		p.testSessionsCommand(),
		p.configShowCommand(), p.configPathCommand(), p.configSchemaCommand(),
		p.doctorCommand(), p.demoCommand(),
		p.completionCommand(), p.versionCommand(),
	)
}

// appOf returns the application with the given commands.
func (p *program) appOf(commands ...*cli.Command) *cli.App {
	app := &cli.App{
		Name:                      "sandboxagent",
		Usage:                     "an LLM agent whose tools run in an execution environment",
		Writer:                    p.std.out,
		ErrWriter:                 p.std.err,
		HideHelp:                  true, // writeHelp writes it
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Commands:                  commands,
	}
	for _, c := range app.Commands {
		c.HideHelp = true
		c.OnUsageError = onUsageError
		if readsFiles(c.Flags) {
			c.Flags = append(c.Flags, profileNameFlag())
		}
		c.Flags = withNames(c.Flags)
	}
	return app
}

// onUsageError makes a usageError of an error that parseCommandLine did not find.
func onUsageError(_ *cli.Context, err error, _ bool) error { return usagef("%s", err) }

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
