package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

func (p *program) batchStatusCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print what is done of a batch",
		ArgsUsage: "[flags] DIR|NAME",
		UsageText: `
sandboxagent batch status tasks.results
sandboxagent batch status --env k8s tasks-x7k2qa`,
		Description: `
DIR is the directory of the batch. A batch that runs can be read, too. With --env=k8s it is the
name of a submitted one; without a name all are listed.`,
		Flags: clusterFlags(jsonFlag("the totals as JSON"), &cli.StringFlag{
			Name: "env", Category: groupEnvironment, DefaultText: "this machine",
			Usage: "look in `ENVIRONMENT`: " + (&k8sBackend{}).name(),
		}),
		Action: func(c *cli.Context) error {
			// One that a variable or a file sets is that of other commands.
			_, set := p.line.sources["--env"]
			if c.IsSet("env") && !set {
				return p.onSubmitted(p.submittedStatus)(c)
			}
			return p.action(p.batchStatus)(c)
		},
	}
}

func (p *program) batchSchemaCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print the JSON Schema of a task",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent batch schema
sandboxagent batch schema >task.schema.json`,
		Description: `
A file of tasks has one such object a line.`,
		Action: p.action(func(_ context.Context, c *cli.Context) (int, error) {
			if err := noArguments(c); err != nil {
				return 0, err
			}
			_, err := p.std.out.Write(batch.Schema())
			return codeDone, err
		}),
	}
}

// submittedStatus is the command batch status for a submitted batch.
func (p *program) submittedStatus(
	ctx context.Context, c *cli.Context, s submitted,
) (int, error) {
	if name := (&k8sBackend{}).name(); c.String("env") != name {
		return 0, usagef("--env: batches are submitted to %s only", name)
	}
	if c.NArg() == 0 {
		return codeDone, p.listSubmitted(ctx, s)
	}
	if err := oneName(c); err != nil {
		return 0, err
	}
	status, err := s.Status(ctx, s.name)
	if err == nil {
		_, err = p.printStatus(ctx, c, s, status)
	}
	return codeDone, err
}

// listSubmitted prints the submitted batches.
func (p *program) listSubmitted(ctx context.Context, s submitted) error {
	all, err := s.List(ctx)
	for _, one := range all {
		_, werr := fmt.Fprintf(p.std.out, "%s %s\n", one.Name, stateLine(one))
		err = errors.Join(err, werr)
	}
	return err
}

// batchStatus is the command batch status.
func (p *program) batchStatus(_ context.Context, c *cli.Context) (int, error) {
	if c.NArg() != 1 {
		return 0, usagef("give the directory of one batch")
	}
	dir := c.Args().First()
	t, err := batch.Summarize(dir)
	if err != nil {
		hint := ""
		if jobs.CheckName(dir) == nil {
			hint = "; --env=k8s is about submitted batches"
		}
		return 0, usagef("%s is no directory of a batch: %s%s", dir, err, hint)
	}
	if batch.InUse(dir) && !c.Bool("json") {
		if _, err := fmt.Fprintln(p.std.out, "a process works on it"); err != nil {
			return 0, err
		}
	}
	return codeDone, p.printTotals(c, dir, t, 0)
}

// batchTotals are the totals of a batch in JSON.
type batchTotals struct {
	Dir     string `json:"dir"`
	Results string `json:"results"`
	InUse   bool   `json:"in_use"`
	batch.Totals
	Left  int   `json:"left"`
	P50MS int64 `json:"p50_ms"`
	P95MS int64 `json:"p95_ms"`
}

// printTotals writes the totals of a batch to standard output, and how long it took, unless that is
// not known.
func (p *program) printTotals(
	c *cli.Context, dir string, t batch.Totals, took time.Duration,
) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	results := filepath.Join(dir, batch.ResultsName)
	if c.Bool("json") {
		return json.NewEncoder(p.std.out).Encode(batchTotals{
			Dir: dir, Results: results, InUse: batch.InUse(dir), Totals: t, Left: t.Left(),
			P50MS: t.Percentile(50).Milliseconds(), P95MS: t.Percentile(95).Milliseconds(),
		})
	}
	_, err = fmt.Fprintf(p.std.out, "%s%-9s %s\n", totalsText(t, took), "results", results)
	return err
}

// totalsText returns lines with the totals of a batch, and how long it took, unless that is not
// known.
func totalsText(t batch.Totals, took time.Duration) string {
	var text strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("passed", "%d of %s", t.Passed, count(t.Tasks, "task"))
	if t.Failed > 0 {
		var reasons []string
		for _, status := range slices.Sorted(maps.Keys(t.Reasons)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", t.Reasons[status],
				strings.ReplaceAll(status, "_", " ")))
		}
		line("failed", "%d (%s)", t.Failed, strings.Join(reasons, ", "))
	}
	if t.Left() > 0 {
		why := ""
		if t.Stopped != "" {
			why = ": " + t.Stopped
		}
		line("left", "%d%s", t.Left(), why)
	}
	if t.Repeated > 0 {
		line("repeated", "%s", count(t.Repeated, "attempt"))
	}
	cost := fmt.Sprintf(" for $%.4g", t.CostUSD)
	switch {
	case t.Unpriced > 0 && t.CostUSD > 0:
		cost += fmt.Sprintf(" and the unknown price of %s", count(t.Unpriced, "attempt"))
	case t.Unpriced > 0:
		cost = ", the price is not known"
	}
	line("tokens", "%s%s", shortCount(t.Usage.Total()), cost)
	line("duration", "p50 %s, p95 %s", shortDuration(t.Percentile(50)),
		shortDuration(t.Percentile(95)))
	if took > 0 {
		line("took", "%s", shortDuration(took))
	}
	return text.String()
}
