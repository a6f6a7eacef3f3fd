package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
)

func (p *program) listCommand() *cli.Command {
	return &cli.Command{
		Name:      "env list",
		Usage:     "list the environments on a server",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent env list
sandboxagent env list --env ssh --host me@example.com`,
		Description: "Prints a line for each environment:\n" + serverHelp(func(b remoteBackend) string {
			list, _ := b.serverUsage()
			return list
		}),
		Flags:  serverFlags(),
		Action: p.action(p.listEnvironments),
	}
}

// serverFlags are the flags that select a backend and the server of its environments.
func serverFlags() []cli.Flag {
	all := remoteBackends(nil)
	flags := []cli.Flag{&cli.StringFlag{
		Name: "env", Category: groupEnvironment, Value: all[0].name(),
		Usage: "select the `BACKEND` of the environments: " + backendNames(all),
	}}
	for _, b := range all {
		flags = append(flags, b.connectFlags()...)
	}
	return uniqueFlags(flags)
}

// parseServerFlags reads serverFlags.
func (p *program) parseServerFlags(c *cli.Context) (remoteBackend, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	all := remoteBackends(p.notify)
	i := slices.IndexFunc(all, func(b remoteBackend) bool { return b.name() == c.String("env") })
	if i < 0 {
		return nil, usagef("--env: environments of %q leave nothing behind (known: %s)",
			c.String("env"), backendNames(all))
	}
	if err := checkOwnership(c, all[i]); err != nil {
		return nil, err
	}
	return all[i], all[i].parseConnection(c)
}

// noArguments rejects arguments of a command that takes none.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%s takes no arguments", c.Command.Name)
	}
	return nil
}

// listEnvironments is the command env list.
func (p *program) listEnvironments(ctx context.Context, c *cli.Context) (int, error) {
	b, err := p.parseServerFlags(c)
	if err != nil {
		return 0, err
	}
	rows, err := b.list(ctx)
	if err != nil {
		return 0, err
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // Flush returns the error
	}
	return codeDone, table.Flush()
}

// age formats the time since then for people.
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
