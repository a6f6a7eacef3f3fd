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
		Name:      "env attach",
		Usage:     "run a command, by default a shell, in an environment that is running",
		ArgsUsage: "[flags] ID [-- COMMAND [ARG...]]",
		UsageText: `
sandboxagent env attach ID
sandboxagent env attach ID -- tail -f build.log`,
		Description: `
ID is the name that "sandboxagent env list" prints. The same user must have opened the
environment from this host: another program uses it, --keep left it running, or its program was
killed and its TTL has not expired. Without a command and with a terminal, the shell is
interactive. The environment stays. Exit codes: those of exec.`,
		Flags:  ttyFlags(),
		Action: p.action(p.attach),
	}
}

// attach is the command env attach.
func (p *program) attach(ctx context.Context, c *cli.Context) (code int, err error) {
	if !c.Args().Present() {
		return 0, usagef("the name of the environment is missing (\"sandboxagent env list\" lists them)")
	}
	kept, forget, err := readKept(c.Args().First())
	if err != nil {
		return 0, err
	}
	all := remoteBackends(p.notify)
	i := slices.IndexFunc(all, func(b remoteBackend) bool { return b.name() == kept.Backend })
	if i < 0 {
		return 0, usagef("the stored data of the environment is damaged: unknown backend %q",
			kept.Backend)
	}
	e, leave, err := all[i].attach(ctx, kept.Stored)
	if errors.Is(err, env.ErrGone) {
		return 0, errors.Join(err, forget())
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, leave()) }()
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
	return p.execute(ctx, e, cmd), nil
}
