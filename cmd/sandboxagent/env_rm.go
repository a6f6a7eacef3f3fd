package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"
)

func (p *program) removeCommand() *cli.Command {
	return &cli.Command{
		Usage:     "remove environments, with everything that runs in them",
		ArgsUsage: "[flags] ID...",
		UsageText: `
sandboxagent env rm ID
sandboxagent env rm --env docker ID ID`,
		Description: `
ID is a name that "sandboxagent env list" prints, or the start of one. You must have opened the
environment from this host. A program that uses it gets an error. Flags are needed only if the state
directory has no file of the environment. Exit codes: 0 all are removed, 2 an ID is unknown or
ambiguous, 6 one could not be removed.`,
		Flags:  serverFlags(),
		Action: p.action(p.removeEnvironments),
	}
}

// removeEnvironments is the command env rm.
func (p *program) removeEnvironments(ctx context.Context, c *cli.Context) (int, error) {
	if !c.Args().Present() {
		return 0, usagef("the name of the environment is missing (\"sandboxagent env list\" lists them)")
	}
	var errs []error
	for _, id := range c.Args().Slice() {
		session, err := p.removeEnvironment(ctx, c, id)
		if err == nil {
			_, err = fmt.Fprintln(p.std.out, "removed", session)
		}
		errs = append(errs, err)
	}
	return codeDone, errors.Join(errs...)
}

// removeEnvironment removes the environment id and returns its session.
func (p *program) removeEnvironment(
	ctx context.Context, c *cli.Context, id string,
) (session string, err error) {
	kept, err := p.findKept(id)
	if err != nil {
		return "", err
	}
	if kept != nil {
		if err := kept.backend.remove(ctx, kept.session, kept.Stored); err != nil {
			return "", err
		}
		return kept.session, kept.forget()
	}
	b, err := p.parseServerFlags(c)
	if err != nil {
		return "", errors.Join(unknownEnvironment(id), err)
	}
	_, all, err := b.list(ctx)
	if err != nil {
		return "", fmt.Errorf("%s; %w", unknownEnvironment(id).Error(), err) // with its code
	}
	var own []string
	for _, l := range all {
		if l.own {
			own = append(own, l.session)
		}
	}
	if session, err = matchSession(keptSession(id), own); err != nil {
		return "", err
	}
	if session == "" {
		return "", unknownEnvironment(id)
	}
	return session, b.remove(ctx, session, nil)
}
