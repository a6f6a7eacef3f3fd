package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

func (p *program) gcCommand() *cli.Command {
	return &cli.Command{
		Usage:     "remove the leftovers of killed programs",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent env gc --dry-run
sandboxagent env gc --all`,
		Description: "Removes:\n" + serverHelp(func(b remoteBackend) string {
			_, gc := b.serverUsage()
			return gc
		}) + `
It removes no container that is in use, and no other image. An environment ends by itself --ttl
after its last client disconnects. Exit codes: 0 all garbage is removed, 6 something could not be
removed.`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{
				Name: "dry-run", Category: groupCommand,
				Usage: "print the leftovers, and remove nothing",
			},
			&cli.BoolFlag{
				Name: "all", Category: groupCommand,
				Usage: "also remove what is named above",
			},
		}, serverFlags()...),
		Action: p.action(p.gc),
	}
}

// gc is the command env gc.
func (p *program) gc(ctx context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	b, err := p.parseServerFlags(c)
	if err != nil {
		return 0, err
	}
	opts := remote.CollectOptions{DryRun: c.Bool("dry-run"), All: c.Bool("all")}
	removed, err := b.gc(ctx, opts)
	verb := "removed"
	if opts.DryRun {
		verb = "would remove"
	}
	for _, r := range removed {
		if r.Err != nil {
			continue // err reports it
		}
		_, werr := fmt.Fprintf(p.std.out, "%s %s %s: %s\n", verb, r.Kind, r.Name, r.Reason)
		if werr != nil {
			return codeDone, errors.Join(err, werr)
		}
	}
	return codeDone, err
}
