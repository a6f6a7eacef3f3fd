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

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// program is one execution of the program.
type program struct {
	std  streams
	code int
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
	// lines reads the answers of the user.
	lines lineReader

	// tools, wrapClient and patience are test seams: tools beside those of the profile, and a client
	// around that of the model.
	tools      []tool.Tool
	wrapClient func(llm.Client) llm.Client
	// patience is endTime, except in tests.
	patience time.Duration
}

func (p *program) endTime() time.Duration { return cmp.Or(p.patience, endTime) }

// run runs the program with args, the first of which is its name, and returns its exit code.
func (p *program) run(ctx context.Context, args []string) int {
	log.SetOutput(p.std.err) // libraries write to it
	app := p.app()
	if len(args) < 2 {
		app.Writer = p.std.err
		_ = app.RunContext(ctx, []string{app.Name, "--help"})
		return codeUsage
	}
	args = args[1:]
	switch args[0] {
	case "help":
		args = append([]string{helpFlag}, args[1:]...)
	case "--version", "-version":
		args = append([]string{"version"}, args[1:]...)
	}
	l, err := parseCommandLine(app, args)
	if err == nil {
		err = p.runCommandLine(ctx, app, l)
	}
	if err != nil {
		p.fail(err)
		return failureCode(ctx, l.command, err)
	}
	return p.code
}

func (p *program) runCommandLine(ctx context.Context, app *cli.App, l commandLine) error {
	if l.help && l.command == "tool" && len(l.rest) > 0 {
		return p.toolHelp(l.rest)
	}
	args := []string{app.Name}
	if l.command != "" {
		args = append(args, l.command)
	}
	if l.help {
		args = append(args, helpFlag)
	} else {
		args = slices.Concat(args, l.flags, []string{"--"}, l.rest)
	}
	return app.RunContext(ctx, args)
}

// fail writes an error to standard error, in one line.
func (p *program) fail(err error) { p.printLine(err.Error()) }

// printLine writes one line to standard error.
func (p *program) printLine(text string) {
	fmt.Fprintf(p.std.err, "sandboxagent: %s\n", oneLine(strings.ReplaceAll(text, "\n", "; ")))
}

func (p *program) app() *cli.App {
	app := &cli.App{
		Name:                      "sandboxagent",
		Usage:                     "an LLM agent whose tools run in an execution environment",
		Writer:                    p.std.out,
		ErrWriter:                 p.std.err,
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		CustomAppHelpTemplate:     appHelp,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Commands: []*cli.Command{
			p.runCommand(), p.execCommand(), p.toolCommand(), p.verifyCommand(), p.listCommand(),
			p.attachCommand(), p.gcCommand(),
			p.imagesCommand(), p.buildCommand(), p.modelsCommand(), p.demoCommand(), p.versionCommand(),
		},
	}
	for _, c := range app.Commands {
		c.HideHelpCommand = true
		c.Description = strings.TrimSpace(c.Description)
		c.CustomHelpTemplate = commandHelp
		c.OnUsageError = onUsageError
	}
	return app
}

// onUsageError makes a usageError of an error that parseCommandLine did not find.
func onUsageError(_ *cli.Context, err error, _ bool) error { return usagef("%s", err) }

const appHelp = `sandboxagent - {{.Usage}}

usage: sandboxagent COMMAND [flags] [arguments]

commands:
{{range .VisibleCommands}}  {{.Name}}{{"\t"}}{{.Usage}}
{{end}}
"sandboxagent COMMAND --help" describes a command.
Flags are valid before and after arguments; "--" ends them.
`

const commandHelp = `sandboxagent {{.Name}} - {{.Usage}}

usage: sandboxagent {{.Name}} {{.ArgsUsage}}
{{if .Description}}
{{.Description}}
{{end}}{{if .VisibleFlags}}
flags:
{{range .VisibleFlags}}  {{.}}
{{end}}{{end}}`

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
