package main

import (
	"context"
	"errors"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/ssh"
)

func (p *program) attachCommand() *cli.Command {
	return &cli.Command{
		Name:      "env attach",
		Usage:     "run a command in an environment that is there already; a shell if none is named",
		ArgsUsage: "[flags] ID [-- COMMAND [ARG...]]",
		Description: `ID is the name that "sandboxagent env list" shows, of an environment that was opened from this machine by this
user: one that another program works in, that was kept by --keep, or whose program was killed and that waits for a client.
Without a command and with a terminal, it is an interactive shell. The environment stays. Exit status: that of exec.`,
		Flags:  []cli.Flag{ttyFlag()},
		Action: p.action(p.attach),
	}
}

// attach is the command env attach.
func (p *program) attach(ctx context.Context, c *cli.Context) (code int, err error) {
	if !c.Args().Present() {
		return 0, usagef("the name of the environment is missing; \"sandboxagent env list\" shows them")
	}
	t, drop, err := readTicket(c.Args().First())
	if err != nil {
		return 0, err
	}
	e, leave, err := p.rejoin(ctx, t)
	if errors.Is(err, env.ErrGone) {
		return 0, errors.Join(err, drop())
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
			return 0, usagef("the environment has no shell (%s); name a command behind \"--\"", info.NoShell)
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

// rejoin returns an environment that there is.
func (p *program) rejoin(ctx context.Context, t ticket) (_ env.Environment, leave func() error, err error) {
	switch {
	case t.Docker != nil:
		engine, err := docker.Connect(ctx, docker.Address{})
		if err != nil {
			return nil, nil, dockerError(err)
		}
		if engine.Address() != t.Daemon {
			err := usagef("the environment is in the daemon %s, and DOCKER_HOST or the docker context means %s", t.Daemon, engine.Address())
			return nil, nil, errors.Join(err, engine.Close())
		}
		e, err := engine.Attach(ctx, *t.Docker)
		if err != nil {
			return nil, nil, errors.Join(err, engine.Close())
		}
		return e, func() error { return errors.Join(e.Leave(), engine.Close()) }, nil
	case t.SSH != nil && t.Target != nil:
		host, err := ssh.Connect(ctx, ssh.Target{
			Host: t.Target.Host, Identities: t.Target.Identities, KnownHosts: t.Target.KnownHosts, Passphrase: p.passphrase(), Note: p.note,
		})
		if err != nil {
			return nil, nil, sshError(err)
		}
		e, err := host.Attach(ctx, *t.SSH)
		if err != nil {
			return nil, nil, errors.Join(sshError(err), host.Close())
		}
		return e, func() error { return errors.Join(e.Leave(), host.Close()) }, nil
	}
	return nil, nil, usagef("what is known of the environment is damaged; it cannot be attached to")
}
