package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

func (p *program) batchStatusCommand() *cli.Command {
	return &cli.Command{
		Name: "batch status", Usage: "print what is done of a batch",
		ArgsUsage: "[flags] DIR",
		UsageText: `
sandboxagent batch status tasks.results
sandboxagent batch status --json tasks.results`,
		Description: `
DIR is the directory of the batch. A batch that runs can be read, too.`,
		Flags:  []cli.Flag{jsonFlag("the totals as JSON")},
		Action: p.action(p.batchStatus),
	}
}

func (p *program) batchSchemaCommand() *cli.Command {
	return &cli.Command{
		Name: "batch schema", Usage: "print the JSON Schema of a task",
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

// batchStatus is the command batch status.
func (p *program) batchStatus(_ context.Context, c *cli.Context) (int, error) {
	if c.NArg() != 1 {
		return 0, usagef("give the directory of one batch")
	}
	dir := c.Args().First()
	t, err := batch.Summarize(dir)
	if err != nil {
		return 0, usagef("%s is no directory of a batch: %s", dir, err)
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
	p50, p95 := t.Percentile(50), t.Percentile(95)
	if c.Bool("json") {
		return json.NewEncoder(p.std.out).Encode(batchTotals{
			Dir: dir, Results: results, InUse: batch.InUse(dir), Totals: t, Left: t.Left(),
			P50MS: p50.Milliseconds(), P95MS: p95.Milliseconds(),
		})
	}
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
	line("duration", "p50 %s, p95 %s", shortDuration(p50), shortDuration(p95))
	if took > 0 {
		line("took", "%s", shortDuration(took))
	}
	line("results", "%s", results)
	_, err = fmt.Fprint(p.std.out, text.String())
	return err
}
