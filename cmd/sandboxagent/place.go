package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
)

func (p *program) listCommand() *cli.Command {
	return &cli.Command{
		Name:      "env list",
		Usage:     "list the sandboxes that there are, whoever made them",
		ArgsUsage: "[flags]",
		Description: `Each line has the name, the state, the age, the owner and the image of a container, and what is to be said of it. With
--env=ssh it is the environments of the user on a host: name, state, age, time to live, and where they were opened from.`,
		Flags:  placeFlags(),
		Action: p.action(p.listSandboxes),
	}
}

func (p *program) collectCommand() *cli.Command {
	return &cli.Command{
		Name:      "env gc",
		Usage:     "remove what programs that were killed left behind",
		ArgsUsage: "[flags]",
		Description: `Removed are containers that never started or have ended; a container that runs ends by itself when its
program is gone. What is in use is never removed, and neither are images. With --env=ssh it is what helpers that were killed
have left on a host: folders and processes. Exit status: 0 nothing is left that can be removed, 6 something could not be removed.`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "dry-run", DisableDefaultText: true, Usage: "only say what would be removed"},
			&cli.BoolFlag{Name: "all", DisableDefaultText: true, Usage: "remove, too, containers of yours that still run though their program has ended, and stored helpers that no container uses; on a host all environments of yours"},
		}, placeFlags()...),
		Action: p.action(p.collect),
	}
}

// withDocker calls work with the daemon.
func withDocker(ctx context.Context, work func(*docker.Engine) error) (err error) {
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return dockerError(err)
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return work(engine)
}

// noArguments refuses arguments of a command that takes none.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%s takes no arguments", c.Command.Name)
	}
	return nil
}

// listSandboxes is the command env list.
func (p *program) listSandboxes(ctx context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	if c.String("env") == "ssh" {
		return codeDone, p.listHost(ctx, c)
	}
	if err := onlyThere(c); err != nil {
		return 0, err
	}
	return codeDone, withDocker(ctx, func(e *docker.Engine) error {
		list, err := e.List(ctx)
		if err != nil || len(list) == 0 {
			return err
		}
		out, end := printable(p.std.out)
		table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "NAME\tSTATE\tAGE\tOWNER\tIMAGE\tNOTE") // Flush tells of errors
		for _, s := range list {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.State, age(s.Created), s.Owner, s.Image, s.Why)
		}
		return errors.Join(table.Flush(), end())
	})
}

// age is how long ago something was, for people.
func age(then time.Time) string {
	d := time.Since(then)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}

// collect is the command env gc.
func (p *program) collect(ctx context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	dry := c.Bool("dry-run")
	if c.String("env") == "ssh" {
		return codeDone, p.collectHost(ctx, c, dry)
	}
	if err := onlyThere(c); err != nil {
		return 0, err
	}
	return codeDone, withDocker(ctx, func(e *docker.Engine) error {
		done, err := e.Collect(ctx, docker.CollectOptions{DryRun: dry, All: c.Bool("all")})
		out, end := printable(p.std.out)
		word := "removed"
		if dry {
			word = "would remove"
		}
		for _, d := range done {
			if d.Err == nil {
				if _, werr := fmt.Fprintf(out, "%s %s %s: %s\n", word, d.Kind, d.Name, d.Why); werr != nil {
					return errors.Join(err, werr)
				}
			}
		}
		return errors.Join(err, end())
	})
}
