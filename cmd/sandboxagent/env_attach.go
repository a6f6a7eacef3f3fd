package main

import (
	"context"
	"errors"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
)

func (p *program) attachCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run a command, by default a shell, in an environment that is running",
		ArgsUsage: "[flags] ID [-- COMMAND [ARG...]]",
		UsageText: `
sandboxagent env attach ID
sandboxagent env attach ID -- tail -f build.log`,
		Description: `
ID is the name that "sandboxagent env list" prints, or the start of it. The same user must have
opened the environment from this host: another program uses it, --keep left it running, or its
program was killed and its TTL has not expired. Without a command and with a terminal, the shell is
interactive. The environment stays. Exit codes and ^C: as with exec.`,
		Flags:  ttyFlags(),
		Action: p.action(p.attach),
	}
}

// attach is the command env attach.
func (p *program) attach(ctx context.Context, c *cli.Context) (code int, err error) {
	if !c.Args().Present() {
		return 0, usagef("the name of the environment is missing (\"sandboxagent env list\" lists them)")
	}
	kept, err := p.readKept(c.Args().First())
	if err != nil {
		return 0, err
	}
	o, err := kept.attach(ctx)
	if err != nil {
		return 0, err
	}
	e := o.plain
	defer func() { err = errors.Join(err, e.Close()) }()
	cmd := env.Command{Argv: slices.Clone(c.Args().Tail()), Stdin: p.std.in}
	tty := c.Bool("tty")
	if len(cmd.Argv) == 0 {
		info := e.Info()
		if len(info.Shell) == 0 {
			return 0, usagef("the environment has no shell (%s); name a command after \"--\"", info.NoShell)
		}
		cmd.Argv = info.Shell[:1]
		tty = tty || terminal(p.std.in) != nil && terminal(p.std.out) != nil
	}
	if tty {
		if err := p.onTerminal(&cmd, nil); err != nil {
			return 0, err
		}
	}
	return p.execute(ctx, e, cmd, nil), nil
}
