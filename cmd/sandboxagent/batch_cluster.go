package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// clusterFlags are the flags of commands about submitted batches.
func clusterFlags(more ...cli.Flag) []cli.Flag {
	return append(more, (&k8sBackend{}).connectFlags()...)
}

func (p *program) batchWaitCommand() *cli.Command {
	return &cli.Command{
		Usage:     "wait for the end of a submitted batch",
		ArgsUsage: "[flags] NAME",
		UsageText: `
sandboxagent batch wait tasks-x7k2qa
sandboxagent batch wait --timeout 2h tasks-x7k2qa`,
		Description: `
Prints its totals. Exit codes: 0 all passed, 1 some did not, 124 the time is over.`,
		Flags: clusterFlags(jsonFlag("the totals as JSON"), &cli.DurationFlag{
			Name: "timeout", Category: groupCommand, DefaultText: "none",
			Usage: "wait at most this `DURATION`",
		}),
		Action: p.onSubmitted(p.batchWait),
	}
}

func (p *program) batchLogsCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print the progress of a task of a submitted batch",
		ArgsUsage: "[flags] NAME TASK",
		UsageText: `
sandboxagent batch logs tasks-x7k2qa parser
sandboxagent batch logs --follow tasks-x7k2qa parser`,
		Description: `
It is the output of the agent's pod or, when that is deleted, what is stored with the result.`,
		Flags: clusterFlags(&cli.BoolFlag{
			Name: "follow", Category: groupCommand, Usage: "go on until the agent ends",
		}),
		Action: p.onSubmitted(p.batchLogs),
	}
}

func (p *program) batchCollectCommand() *cli.Command {
	return &cli.Command{
		Usage:     "get the results of a submitted batch",
		ArgsUsage: "[flags] NAME",
		UsageText: `
sandboxagent batch collect tasks-x7k2qa
sandboxagent batch collect --out results tasks-x7k2qa`,
		Description: `
The directory is that of the command batch: "batch --out DIR" goes on with the tasks that have no
result. A batch that runs can be collected, too, and again later: results that DIR has stay. Exit
codes: 0 all tasks have passed, 1 some have not, or have no result yet.`,
		Flags: clusterFlags(
			&cli.StringFlag{
				Name: "out", Category: groupBatch, DefaultText: "NAME.results in the current directory",
				Usage: "store the results in `DIR`",
			},
			&cli.StringFlag{
				Name: "junit", Category: groupBatch,
				Usage: "write the results to `FILE` as JUnit's XML",
			},
			jsonFlag("the totals as JSON"),
		),
		Action: p.onSubmitted(p.batchCollect),
	}
}

func (p *program) batchCancelCommand() *cli.Command {
	return &cli.Command{
		Usage:     "end a submitted batch",
		ArgsUsage: "[flags] NAME",
		UsageText: `
sandboxagent batch cancel tasks-x7k2qa
sandboxagent batch cancel --remove tasks-x7k2qa`,
		Description: `
Its pods end, and nothing starts any more. The results stay in the cluster until "batch cancel
--remove", or for the time of --keep-for.`,
		Flags: clusterFlags(&cli.BoolFlag{
			Name: "remove", Category: groupCommand,
			Usage: "delete the batch from the cluster, with its results",
		}),
		Action: p.onSubmitted(p.batchCancel),
	}
}

// submitted is a submitted batch.
type submitted struct {
	*jobs.Client
	name string
}

// onSubmitted returns the action of a command about the submitted batch that its first argument
// names.
func (p *program) onSubmitted(
	work func(ctx context.Context, c *cli.Context, s submitted) (int, error),
) cli.ActionFunc {
	return p.action(func(ctx context.Context, c *cli.Context) (code int, err error) {
		if c.NArg() == 0 && c.Command.Name != batchStatusName {
			return 0, usagef("give the name of a submitted batch")
		}
		var b k8sBackend
		if err := b.parseConnection(c); err != nil {
			return 0, err
		}
		err = withCluster(ctx, b.address, func(cluster *k8s.Cluster) error {
			client, err := jobs.New(cluster)
			if err == nil {
				code, err = work(ctx, c, submitted{client, c.Args().First()})
			}
			return err
		})
		if errors.Is(err, jobs.ErrMissing) {
			return 0, usagef("%s in the namespace (--namespace, --context)", err)
		}
		return code, err
	})
}

// oneName rejects arguments beside a name.
func oneName(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("give the name of one submitted batch")
	}
	return nil
}

// batchWait is the command batch wait.
func (p *program) batchWait(ctx context.Context, c *cli.Context, s submitted) (int, error) {
	if err := oneName(c); err != nil {
		return 0, err
	}
	p.quiet = c.Bool("json")
	_, ofRun := p.line.sources["--timeout"] // of a variable or a file
	if d := c.Duration("timeout"); d > 0 && !ofRun {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, errWaited)
		defer cancel()
	}
	last, why, looked := "", "", time.Time{}
	status, err := s.Wait(ctx, s.name, func(st jobs.Status) {
		line := stateLine(st)
		switch {
		case st.Active <= st.Ready:
			why = ""
		case time.Since(looked) >= blockedPause:
			why, looked = s.blocked(ctx), time.Now()
		}
		line += why
		if line != last {
			p.notify(line)
			last = line
		}
	})
	if errors.Is(err, errWaited) {
		p.printLine(fmt.Sprintf("%s runs still (--timeout)", s.name))
		return codeTimeout, nil
	}
	if err != nil {
		return 0, err
	}
	return p.printStatus(ctx, c, s, status)
}

var errWaited = errors.New("the time to wait is over")

// blockedPause is the least time between two looks at pods that do not start.
const blockedPause = 20 * time.Second

// blocked returns why a pod of an agent does not start; may be empty.
func (s submitted) blocked(ctx context.Context) string {
	why, err := s.Blocked(ctx, s.name)
	if err != nil || why == "" {
		return "" // the pods may start yet
	}
	return ": " + why
}

// stateLine describes a status in one line.
func stateLine(s jobs.Status) string {
	text := fmt.Sprintf("%s: %d of %s passed", s.State, s.Succeeded, count(s.Inputs, "task"))
	if n := len(s.Failed); n > 0 {
		text += fmt.Sprintf(", %d did not", n)
	}
	if s.Active > 0 {
		text += fmt.Sprintf(", %s at work, %d to start", count(s.Ready, "agent"),
			max(s.Active-s.Ready, 0))
	}
	return text
}

// printStatus prints the totals of a submitted batch. The exit code is 0 if all tasks have passed.
func (p *program) printStatus(
	ctx context.Context, c *cli.Context, s submitted, status jobs.Status,
) (int, error) {
	summaries, err := s.Summaries(ctx, status)
	if err != nil {
		return 0, err
	}
	var earlier []*batch.Record
	totals, err := batch.Sum(status.Inputs, func(yield func(*batch.Record, error) bool) {
		have := make(map[int]bool)
		for _, r := range summaries {
			var summary workSummary
			err := json.Unmarshal(r.Summary, &summary)
			have[r.Index] = true
			if !yield(&summary.Record, err) {
				return
			}
			earlier = append(earlier, summary.Earlier...)
		}
		for _, i := range status.Failed {
			if !have[i] && status.State == jobs.Ended && !yield(lostRecord(batch.Task{}, ""), nil) {
				return
			}
		}
	})
	if err != nil {
		return 0, err
	}
	for _, r := range earlier {
		totals.Spend(r)
	}
	totals.Running, totals.Stopped = status.Ready, status.Reason
	if status.State == jobs.Ended {
		totals.Stopped = ""
	}
	if i, ok := status.StoppedBy(); ok {
		if totals.Stopped, err = s.stopReason(ctx, status, i); err != nil {
			return 0, err
		}
	}
	code := codeDone
	if totals.Passed < totals.Tasks {
		code = codeFailed
	}
	if c.Bool("json") {
		return code, json.NewEncoder(p.std.out).Encode(submittedTotals{
			Name: s.name, State: status.State, Totals: totals, Left: totals.Left(),
			P50MS: totals.Percentile(50).Milliseconds(), P95MS: totals.Percentile(95).Milliseconds(),
		})
	}
	var took time.Duration
	if !status.Finished.IsZero() {
		took = status.Finished.Sub(status.Created)
	}
	state := string(status.State)
	if status.Active > status.Ready {
		state += s.blocked(ctx)
	}
	text := fmt.Sprintf("%-9s %s\n%s", "state", state, totalsText(totals, took))
	_, err = io.WriteString(p.std.out, text)
	return code, err
}

// stopReason describes why a task has ended its batch: the model refuses all.
func (s submitted) stopReason(
	ctx context.Context, status jobs.Status, index int,
) (string, error) {
	tasks, err := s.tasks(ctx, status)
	if err != nil {
		return "", err
	}
	why, err := s.Failure(ctx, s.name, index)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("task %s: %s", tasks[index].ID, cmp.Or(why, status.Reason)), nil
}

// submittedTotals are the totals of a submitted batch in JSON.
type submittedTotals struct {
	Name  string     `json:"name"`
	State jobs.State `json:"state"`
	batch.Totals
	Left  int   `json:"left"`
	P50MS int64 `json:"p50_ms"`
	P95MS int64 `json:"p95_ms"`
}

// lostRecord is the record of a task whose agents have failed without a result.
func lostRecord(t batch.Task, why string) *batch.Record {
	now := time.Now()
	r := &batch.Record{
		TaskID: t.ID, Labels: t.Labels, Attempt: 1, Started: now, Ended: now,
		Result: event.Result{
			Status: string(agent.StatusEnvironmentError), ExitCode: codeEnvironment,
			Error: "the pods of its agent have failed",
		},
	}
	if why != "" {
		r.Error += ": " + why
	}
	return r
}

// tasks returns the tasks of a submitted batch as its file has them.
func (s submitted) tasks(ctx context.Context, status jobs.Status) ([]batch.Task, error) {
	inputs, err := s.Inputs(ctx, status)
	if err != nil {
		return nil, err
	}
	tasks := make([]batch.Task, len(inputs))
	for i, in := range inputs {
		var w workTask
		if err := json.Unmarshal(in, &w); err != nil {
			return nil, fmt.Errorf("read task %d of %s: %w", i, s.name, err)
		}
		tasks[i] = w.Task
	}
	return tasks, nil
}

// batchLogs is the command batch logs.
func (p *program) batchLogs(ctx context.Context, c *cli.Context, s submitted) (int, error) {
	if c.NArg() != 2 {
		return 0, usagef("give the name of a submitted batch, and the ID of a task")
	}
	status, err := s.Status(ctx, s.name)
	if err != nil {
		return 0, err
	}
	tasks, err := s.tasks(ctx, status)
	if err != nil {
		return 0, err
	}
	id := c.Args().Get(1)
	index := slices.IndexFunc(tasks, func(t batch.Task) bool { return t.ID == id })
	if index < 0 {
		return 0, usagef("the batch %s has no task %q", s.name, id)
	}
	// A pod that was repeated after the result was stored has no log.
	data, err := s.Result(ctx, status, index)
	if errors.Is(err, jobs.ErrMissing) {
		err = s.Logs(ctx, s.name, index, c.Bool("follow"), p.std.out)
		if errors.Is(err, jobs.ErrNoPod) {
			err = fmt.Errorf("the task %s has not started, or its pods are gone", id)
		}
		return codeDone, err
	}
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "sandboxagent-logs-")
	if err != nil {
		return 0, err
	}
	defer removeTree(dir)
	if _, err := (workResult{}).restore(ctx, data, dir); err != nil {
		return 0, err
	}
	text, err := readFile(filepath.Join(dir, attemptLog), maxWorkResult<<4)
	if err == nil {
		_, err = p.std.out.Write(text)
	}
	return codeDone, err
}

// batchCollect is the command batch collect.
func (p *program) batchCollect(ctx context.Context, c *cli.Context, s submitted) (int, error) {
	if err := oneName(c); err != nil {
		return 0, err
	}
	status, err := s.Status(ctx, s.name)
	if err != nil {
		return 0, err
	}
	junit, err := parseJUnit(c)
	if err != nil {
		return 0, err
	}
	tasks, err := s.tasks(ctx, status)
	if err != nil {
		return 0, err
	}
	dir, err := filepath.Abs(cmp.Or(c.String("out"), s.name+".results"))
	if err != nil {
		return 0, err
	}
	totals, err := batch.Collect(dir, tasks, s.collect(ctx, status, tasks))
	if err != nil {
		return 0, batchError(err)
	}
	if junit != nil {
		err := junit.replace(0o666, func(w io.Writer) error { return batch.WriteJUnit(w, s.name, dir) })
		if err != nil {
			return 0, fmt.Errorf("--junit: %w", err)
		}
	}
	code := codeDone
	if totals.Passed < totals.Tasks {
		code = codeFailed
	}
	return code, p.printTotals(c, dir, totals, 0)
}

// collect returns the results of a submitted batch: those that agents have stored, and after its
// end one for each task whose agents have failed without.
func (s submitted) collect(
	ctx context.Context, status jobs.Status, tasks []batch.Task,
) iter.Seq2[batch.Collected, error] {
	return func(yield func(batch.Collected, error) bool) {
		have := make(map[int]bool)
		for r, err := range s.Results(ctx, status) {
			if err == nil && (r.Index < 0 || r.Index >= len(tasks)) {
				err = fmt.Errorf("the cluster has a result of a task %d of %d", r.Index, len(tasks))
			}
			if err != nil {
				yield(batch.Collected{}, err)
				return
			}
			have[r.Index] = true
			var summary workSummary
			if err := json.Unmarshal(r.Summary, &summary); err != nil {
				yield(batch.Collected{}, fmt.Errorf("read the summary of task %d: %w", r.Index, err))
				return
			}
			if !yield(batch.Collected{
				TaskID: tasks[r.Index].ID, Earlier: summary.Earlier,
				Restore: func(dir string) (*batch.Record, error) {
					return workResult{}.restore(ctx, r.Data, dir)
				},
			}, nil) {
				return
			}
		}
		for _, i := range status.Failed {
			if have[i] || status.State != jobs.Ended { // else the end of the batch may have killed it
				continue
			}
			if !yield(batch.Collected{
				TaskID: tasks[i].ID,
				Restore: func(string) (*batch.Record, error) {
					why, _ := s.Failure(ctx, s.name, i) // its pods may be gone
					return lostRecord(tasks[i], why), nil
				},
			}, nil) {
				return
			}
		}
	}
}

// batchCancel is the command batch cancel.
func (p *program) batchCancel(ctx context.Context, c *cli.Context, s submitted) (int, error) {
	if err := oneName(c); err != nil {
		return 0, err
	}
	status, err := s.Status(ctx, s.name)
	if err != nil {
		return 0, err
	}
	if c.Bool("remove") {
		return codeDone, s.Remove(ctx, s.name)
	}
	if status.Done() {
		p.notify("the batch has ended: " + strings.TrimPrefix(stateLine(status),
			string(status.State)+": "))
		return codeDone, nil
	}
	return codeDone, s.Cancel(ctx, s.name)
}
