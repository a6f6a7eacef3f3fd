package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// batchDisplay writes the progress of a batch: a line for each result and, on a terminal, below
// them a line of totals and a table of the tasks that run.
type batchDisplay struct {
	*progress
	// The mutex of progress guards the fields below.
	totals batch.Totals
	// before is the number of results when the batch started here.
	before  int
	running []runningTask
}

// runningTask is a task that runs.
type runningTask struct {
	id      string
	attempt int
	since   time.Time
	open    bool
}

// newBatchDisplay starts to show progress on w. The caller closes it.
func newBatchDisplay(w io.Writer) *batchDisplay {
	d := &batchDisplay{progress: newProgress(w), before: -1}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table = d.rows
	return d
}

// observe shows a change of the batch.
func (d *batchDisplay) observe(c batch.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	done := c.Totals.Passed + c.Totals.Failed
	if d.before < 0 {
		d.before = done
	}
	d.totals = c.Totals
	i := slices.IndexFunc(d.running, func(t runningTask) bool { return t.id == c.TaskID })
	switch {
	case c.Kind == batch.Started:
		d.running = append(d.running, runningTask{id: c.TaskID, attempt: c.Attempt, since: d.now()})
	case i < 0:
	case c.Kind == batch.Opened:
		d.running[i].open = true
	default:
		d.running = slices.Delete(d.running, i, i+1)
	}
	number := fmt.Sprintf("[%d/%d] ", done, c.Totals.Tasks)
	switch c.Kind {
	case batch.Ended:
		r := c.Record
		details := []string{
			count(r.ModelCalls, "model call"), shortCount(r.Usage.Total()) + " tokens",
			shortDuration(r.Ended.Sub(r.Started)),
		}
		about := ""
		if !r.Passed() {
			about = strings.ReplaceAll(r.Status, "_", " ") + ": " + r.Error
		}
		d.result(r.Passed(), number+r.TaskID, about, details...)
	case batch.Repeated:
		d.line("retry", fmt.Sprintf("%s in %s: %s: %s", c.TaskID, shortDuration(c.Wait),
			strings.ReplaceAll(c.Record.Status, "_", " "), c.Record.Error))
	case batch.Aborted:
		d.line("", c.TaskID+" aborted")
	}
	if d.drawn == nil {
		d.draw()
	}
}

// rows returns the line of totals and the table.
func (d *batchDisplay) rows(width int) []string {
	t := d.totals
	done := t.Passed + t.Failed
	parts := []string{fmt.Sprintf("%d of %s", done, count(t.Tasks, "task"))}
	if t.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d not passed", t.Failed))
	}
	elapsed := d.now().Sub(d.started)
	if here := done - max(d.before, 0); here > 0 && elapsed > 0 {
		parts = append(parts, fmt.Sprintf("%.3g a minute", float64(here)/elapsed.Minutes()))
		if left := t.Left(); left > 0 {
			eta := time.Duration(float64(elapsed) / float64(here) * float64(left))
			parts = append(parts, seconds(eta)+" left")
		}
	}
	parts = append(parts, seconds(elapsed)+" in all")
	if n := t.Usage.Total(); n > 0 {
		text := shortCount(n) + " tokens"
		if t.Unpriced == 0 {
			text += fmt.Sprintf(" for $%.4g", t.CostUSD)
		}
		parts = append(parts, text)
	}
	rows := []string{cut("> "+strings.Join(parts, " · "), width)}
	most := min(max(d.height()/3, 1), shownLines)
	for i, r := range d.running {
		if i == most {
			rows = append(rows, fmt.Sprintf("      … and %d more", len(d.running)-i))
			break
		}
		state := "starts"
		if r.open {
			state = "runs"
		}
		text := fmt.Sprintf("      %-24s %-6s %s", r.id, state, seconds(d.now().Sub(r.since)))
		if r.attempt > 1 {
			text += fmt.Sprintf(", attempt %d", r.attempt)
		}
		rows = append(rows, cut(text, width))
	}
	return rows
}
