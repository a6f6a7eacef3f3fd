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
		Usage:     "list your environments on a server",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent env list
sandboxagent env list --env ssh --host me@example.com`,
		Description: "Prints a line for each environment that you opened from this host, or with\n" +
			"--all for each on the server:\n" + serverHelp(func(b remoteBackend) string {
			list, _ := b.serverUsage()
			return list
		}),
		Flags: append([]cli.Flag{
			&cli.BoolFlag{
				Name: "all", Category: groupCommand,
				Usage: "list those of other users and hosts too",
			},
		}, serverFlags()...),
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
	if err := noArguments(c); err != nil {
		return 0, err
	}
	b, err := p.parseServerFlags(c)
	if err != nil {
		return 0, err
	}
	header, all, err := b.list(ctx)
	if err != nil {
		return 0, err
	}
	own, err := ownEnvironments(all)
	if err != nil {
		return 0, err
	}
	if c.Bool("all") {
		own = all
	}
	if n := len(all) - len(own); n > 0 {
		p.notify(fmt.Sprintf("environments of others that are not listed: %d (--all lists them)", n))
	}
	if len(own) == 0 {
		return codeDone, nil
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(header, "\t")) // Flush returns the error
	for _, l := range own {
		_, _ = fmt.Fprintln(table, strings.Join(l.row, "\t"))
	}
	return codeDone, table.Flush()
}

// ownEnvironments returns the environments that this user opened from this host: those with a file
// in the state directory, and those whose server names him as their creator.
func ownEnvironments(all []listed) ([]listed, error) {
	_, kept, err := keptSessions()
	if err != nil {
		return nil, err
	}
	var own []listed
	for _, l := range all {
		if l.own || slices.Contains(kept, l.session) {
			own = append(own, l)
		}
	}
	return own, nil
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
