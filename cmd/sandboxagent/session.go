package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func (p *program) sessionsCommand() *cli.Command {
	return &cli.Command{
		Usage: "list the stored sessions",
		UsageText: `
sandboxagent session list
sandboxagent session list --json`,
		Description: `
Prints a line for each session, the last used first: its ID, the time since it was used, the status
of its last run, the model, the environment, the price, and its title or the first line of its first
task. The status is "running" while a process works on it, and "interrupted" if that died.`,
		Flags:  []cli.Flag{jsonFlag("one JSON object a line")},
		Action: p.action(p.listSessions),
	}
}

func (p *program) showCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print what a session did",
		ArgsUsage: "[flags] ID",
		UsageText: `
sandboxagent session show ID
sandboxagent session show ID --failures`,
		Description: `
Prints the inputs, the answers, and the calls of tools with the starts of their results. The whole
is in the journal, whose name is the first line.`,
		Flags: []cli.Flag{
			jsonFlag("the turns as one JSON object a line"),
			&cli.BoolFlag{
				Name: "failures", Category: groupOutput,
				Usage: "print what failed, and what helped",
			},
		},
		Action: p.action(p.showSession),
	}
}

func (p *program) removeSessionCommand() *cli.Command {
	return &cli.Command{
		Usage:     "remove stored sessions",
		ArgsUsage: "[flags] ID...",
		UsageText: `
sandboxagent session rm ID
sandboxagent session rm ID1 ID2`,
		Description: "Removes the sessions with their outputs and backups, and those of their " +
			"sub-agents.",
		Action: p.action(p.removeSessions),
	}
}

func (p *program) gcSessionsCommand() *cli.Command {
	return &cli.Command{
		Usage: "remove old sessions",
		UsageText: `
sandboxagent session gc --older-than 720h
sandboxagent session gc --older-than 720h --dry-run`,
		Description: `
Removes sessions that were not used for a time, and prints their IDs. Sessions in use stay. It also
removes what programs left that were killed more than a day ago: copies, sessions without an entry,
and sub-agents without their session.`,
		Flags: []cli.Flag{
			&cli.DurationFlag{
				Name: "older-than", Category: groupCommand,
				Usage: "remove sessions that were not used for this `DURATION`",
			},
			&cli.BoolFlag{
				Name: "dry-run", Category: groupCommand, Usage: "print the IDs, and remove nothing",
			},
		},
		Action: p.action(p.gcSessions),
	}
}

func jsonFlag(what string) cli.Flag {
	return &cli.BoolFlag{Name: "json", Category: groupOutput, Usage: "print " + what}
}

// sessionLine is a session in "session list --json".
type sessionLine struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Status  string    `json:"status"`
	Model   string    `json:"model"`
	Env     string    `json:"env"`
	WorkDir string    `json:"workdir,omitempty"`
	Turns   int       `json:"turns"`
	Tokens  int64     `json:"tokens"`
	// CostUSD is missing if it is not known.
	CostUSD *float64 `json:"cost_usd,omitempty"`
	// Title is missing without one.
	Title string `json:"title,omitempty"`
	Task  string `json:"task"`
}

// statusRunning is the status of a session that a process works on.
const statusRunning = "running"

func lineOf(r *session.Record) sessionLine {
	used, dollars := r.Total()
	l := sessionLine{
		ID: r.ID, Created: r.Created, Updated: r.Updated, Status: r.Status(), Model: r.Started.Model,
		Env: r.Started.Backend, WorkDir: r.Started.WorkDir, Turns: r.Spent.Turns,
		Tokens: used.Total(), CostUSD: dollars, Title: r.Title,
	}
	if session.InUse(r.Dir) {
		l.Status = statusRunning
	}
	if len(r.Runs) > 0 {
		l.Task = r.Runs[0].Task
	}
	return l
}

// listSessions is the command session list.
func (p *program) listSessions(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	dir, err := sessionsDir()
	if err != nil {
		return 0, err
	}
	list, err := session.List(dir, func(dir string, err error) { p.printLine(err.Error()) })
	if err != nil || len(list) == 0 {
		return codeDone, err
	}
	if c.Bool("json") {
		enc := json.NewEncoder(p.std.out)
		for _, r := range list {
			if err := enc.Encode(lineOf(r)); err != nil {
				return 0, err
			}
		}
		return codeDone, nil
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	// Flush returns the errors of all writes.
	_, _ = fmt.Fprintln(table, "ID\tUSED\tSTATUS\tMODEL\tENV\tCOST\tTASK")
	for _, r := range list {
		l := lineOf(r)
		cost := "?"
		if l.CostUSD != nil {
			cost = fmt.Sprintf("$%.2f", *l.CostUSD)
		}
		task, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(l.Title, l.Task)), "\n")
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, ago(time.Since(l.Updated)),
			l.Status, row(l.Model), row(l.Env), cost, shorten.Cut(row(task), maxTaskLine))
	}
	return codeDone, table.Flush()
}

// maxTaskLine bounds the task in a list, and maxResultLine a result that is shown, in characters.
const (
	maxTaskLine   = 60
	maxResultLine = 160
)

// ago returns a time span in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// showSession is the command session show.
func (p *program) showSession(_ context.Context, c *cli.Context) (int, error) {
	if c.NArg() != 1 {
		return 0, usagef("give the ID of one session (\"session list\" prints them)")
	}
	dir, err := findSession(c.Args().First())
	if err != nil {
		return 0, err
	}
	r, err := session.Load(dir)
	if err != nil {
		return 0, err
	}
	var b strings.Builder
	switch {
	case c.Bool("failures") && c.Bool("json"):
		err = encodeLines(&b, failureLines(r))
	case c.Bool("failures"):
		writeFailures(&b, r)
	case c.Bool("json"):
		err = encodeLines(&b, r.Conversation)
	default:
		writeSession(&b, r)
	}
	if err != nil {
		return 0, err
	}
	_, err = io.WriteString(p.std.out, b.String())
	return codeDone, err
}

// encodeLines writes a list as one JSON object a line.
func encodeLines[T any](b *strings.Builder, list []T) error {
	enc := json.NewEncoder(b)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// failureLine is a failure in "session show --failures --json".
type failureLine struct {
	event.Failure
	// Resolved means that a success has made it obsolete, and Remedy are the calls that helped; empty
	// without any.
	Resolved bool   `json:"resolved"`
	Remedy   string `json:"remedy,omitempty"`
}

func failureLines(r *session.Record) []failureLine {
	list := make([]failureLine, len(r.Failures))
	for i, f := range r.Failures {
		list[i] = failureLine{Failure: f.Failure, Resolved: f.Resolved, Remedy: remedyText(f)}
	}
	return list
}

// writeFailures writes the failures of a session for people.
func writeFailures(b *strings.Builder, r *session.Record) {
	for _, f := range failureLines(r) {
		state := "open"
		if f.Resolved {
			state = "resolved"
		}
		fmt.Fprintf(b, "%s  %s, %s: %s, %s\n", f.Time.Local().Format(time.DateTime), state, f.Kind,
			f.Class, f.Strategy)
		if f.Tool != "" {
			fmt.Fprintf(
				b,
				"  call    %s %s\n",
				row(f.Tool),
				shorten.Cut(oneLine(f.Arguments), maxResultLine),
			)
		}
		if f.ExitCode != nil {
			fmt.Fprintf(b, "  code    %d\n", *f.ExitCode)
		}
		fmt.Fprintf(b, "  learned %s\n", shorten.Cut(oneLine(f.Learning), maxResultLine))
		if f.Remedy != "" {
			fmt.Fprintf(b, "  helped  %s\n", shorten.Cut(oneLine(f.Remedy), maxResultLine))
		}
	}
}

// writeSession writes a session for people.
func writeSession(b *strings.Builder, r *session.Record) {
	l := lineOf(r)
	fmt.Fprintf(b, "journal  %s\nstatus   %s, used %s\nmodel    %s\nenv      %s, in %s\n",
		filepath.Join(r.Dir, session.JournalName), l.Status, ago(time.Since(l.Updated)), row(l.Model),
		row(l.Env), row(l.WorkDir))
	fmt.Fprintf(b, "used     %d requests, %d tokens", l.Turns, l.Tokens)
	if l.CostUSD != nil {
		fmt.Fprintf(b, ", $%.4f", *l.CostUSD)
	}
	b.WriteByte('\n')
	if r.Torn > 0 {
		fmt.Fprintf(b, "torn     the last %d bytes of the journal are no whole entry\n", r.Torn)
	}
	for i, t := range r.Conversation {
		switch t.Kind {
		case session.TurnUser, session.TurnSteering:
			text := sanitize(strings.TrimSpace(t.Text()))
			fmt.Fprintf(b, "\n> %s\n", strings.ReplaceAll(text, "\n", "\n> "))
		case session.TurnAssistant:
			if text := strings.TrimSpace(t.Text()); text != "" {
				fmt.Fprintf(b, "\n%s\n", sanitize(text))
			}
			for _, part := range t.Parts {
				if part.ToolCall != nil {
					fmt.Fprintf(b, "\n* %s %s\n", row(part.ToolCall.Name),
						shorten.Cut(oneLine(part.ToolCall.Arguments), maxResultLine))
				}
			}
		case session.TurnToolResults:
			for _, res := range t.Results {
				mark := "ok"
				if res.IsError {
					mark = "error"
				}
				fmt.Fprintf(b, "  %s: %s\n", mark, shorten.Cut(oneLine(res.Text()), maxResultLine))
			}
		}
		for _, point := range r.Points {
			switch {
			case point.Turns != i+1:
			case point.Lost:
				fmt.Fprintf(b, "  @%d, changes of files are not known\n", point.Seq)
			case point.Files > 0:
				fmt.Fprintf(b, "  @%d, %d files changed\n", point.Seq, point.Files)
			default:
				fmt.Fprintf(b, "  @%d\n", point.Seq)
			}
		}
	}
	if r.Waiting != nil {
		fmt.Fprintf(b, "  waits for an approval: %s\n", waitingText(r.Waiting.PermissionAsked))
		if end := r.Waiting.Expires; !end.IsZero() {
			fmt.Fprintf(b, "  until: %s\n", end.Local().Format(time.DateTime))
		}
	}
	for _, call := range r.Calls {
		if call.Result == nil && (r.Waiting == nil || call.ID != r.Waiting.CallID) {
			fmt.Fprintf(b, "  without a result: %s %s\n", row(call.Name), row(call.ID))
		}
	}
}

// removeSessions is the command session rm.
func (p *program) removeSessions(_ context.Context, c *cli.Context) (int, error) {
	if !c.Args().Present() {
		return 0, usagef("give the IDs of sessions (\"session list\" prints them)")
	}
	var dirs []string
	for _, id := range c.Args().Slice() {
		dir, err := findSession(id)
		if err != nil {
			return 0, err
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		err := session.Remove(dir)
		if errors.Is(err, session.ErrInUse) {
			return 0, usagef("the session %s is in use: another process works on it", filepath.Base(dir))
		}
		if err != nil {
			return 0, err
		}
	}
	return codeDone, nil
}

// unfinishedAge is the age from which on session gc takes an unfinished session for interrupted.
const unfinishedAge = 24 * time.Hour

// gcSessions is the command session gc.
func (p *program) gcSessions(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	age := c.Duration("older-than")
	if !c.IsSet("older-than") || age < 0 {
		return 0, usagef("--older-than is missing or negative; such as 720h, thirty days")
	}
	dir, err := sessionsDir()
	if err != nil {
		return 0, err
	}
	list, err := session.List(dir, func(dir string, err error) { p.printLine(err.Error()) })
	if err != nil {
		return 0, err
	}
	if !c.Bool("dry-run") { // one that is younger may be under way
		if err := session.RemoveUnfinished(dir, time.Now().Add(-unfinishedAge)); err != nil {
			return 0, err
		}
	}
	for _, r := range list {
		if time.Since(r.Updated) <= age || session.InUse(r.Dir) {
			continue
		}
		if !c.Bool("dry-run") {
			err := session.Remove(r.Dir)
			if errors.Is(err, session.ErrInUse) {
				continue
			}
			if err != nil {
				return 0, err
			}
		}
		if _, err := fmt.Fprintln(p.std.out, r.ID); err != nil {
			return 0, err
		}
	}
	return codeDone, nil
}
