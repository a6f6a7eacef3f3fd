package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/ssh"
)

// placeFlags are the flags of commands that look at the environments in one place.
func placeFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "env", Value: "docker", Usage: "the `ENVIRONMENT` whose kind is meant: docker or ssh", EnvVars: variable("env")},
	}, hostFlags()...)
}

// onlyThere refuses other places than docker, and flags that it does not obey.
func onlyThere(c *cli.Context) error {
	if name := c.String("env"); name != "docker" {
		return usagef("--env: nothing is left behind in the environment %q; it is docker or ssh", name)
	}
	return onlyFor(c, "docker")
}

// withHost calls work with the host that the flags name.
func (p *program) withHost(ctx context.Context, c *cli.Context, work func(*ssh.Host) error) (err error) {
	t, err := p.readHostFlags(c)
	if err != nil {
		return err
	}
	host, err := ssh.Connect(ctx, t)
	if err != nil {
		return sshError(err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	return work(host)
}

// listHost lists the environments on a host.
func (p *program) listHost(ctx context.Context, c *cli.Context) error {
	return p.withHost(ctx, c, func(h *ssh.Host) error {
		list, err := h.List(ctx)
		if err != nil || len(list) == 0 {
			return err
		}
		out, end := printable(p.std.out)
		table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "NAME\tSTATE\tAGE\tTTL\tFROM\tNOTE") // Flush tells of errors
		for _, l := range list {
			state, note := "running", fmt.Sprintf("process %d", l.PID)
			if !l.Running {
				state, note = "dead", "its helper was killed; env gc removes what it has left"
			}
			began := "-"
			if !l.Created.IsZero() {
				began = age(l.Created)
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Session, state, began, l.TTL, l.From, note)
		}
		return errors.Join(table.Flush(), end())
	})
}

// collectHost removes what was left on a host.
func (p *program) collectHost(ctx context.Context, c *cli.Context, dry bool) error {
	return p.withHost(ctx, c, func(h *ssh.Host) error {
		done, err := h.Collect(ctx, ssh.CollectOptions{DryRun: dry, All: c.Bool("all")})
		out, end := printable(p.std.out)
		word := "removed"
		if dry {
			word = "would remove"
		}
		for _, d := range done {
			why := "its helper was killed"
			if d.Running {
				why = "it was running"
			}
			if d.Err == nil {
				if _, werr := fmt.Fprintf(out, "%s environment %s: %s\n", word, d.Session, why); werr != nil {
					return errors.Join(err, werr)
				}
			}
		}
		return errors.Join(err, end())
	})
}
