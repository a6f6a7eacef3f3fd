package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// Names of the commands for batches.
const (
	batchName      = "batch"
	batchRetryName = "batch retry"

	batchStatusName = "batch status"
)

func (p *program) batchCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run many tasks, each in an environment of its own",
		ArgsUsage: "[flags] TASKS.jsonl",
		UsageText: `
sandboxagent batch -m openai/gpt-5 tasks.jsonl
sandboxagent batch --env docker --parallel 16 t.jsonl`,
		Description: `
Each line of TASKS.jsonl is a task ("batch schema" prints its JSON Schema). Each task gets
one result in DIR/results.jsonl, and a directory with its patch, its journal and its progress. The
same command goes on after an interruption: no task with a result runs again. ^C lets the tasks that
run end, and a second one aborts them. Exit codes: 0 all passed, 1 some did not, 2 usage, 3 the
limit of money was reached, 5 the model cannot be used, 6 results cannot be stored, 130
interrupted, 143 terminated.`,
		Flags: append([]cli.Flag{&cli.StringFlag{
			Name: "out", Category: groupBatch, DefaultText: "TASKS.results in the current directory",
			Usage: "keep results in `DIR`, and go on with those that it has",
		}}, batchFlags()...),
		Action: p.batchAction(func(c *cli.Context) (batchInput, error) {
			return readBatch(c.Args().Slice(), c.String("out"))
		}),
	}
}

func (p *program) batchRetryCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run the failed tasks of a batch again",
		ArgsUsage: "[flags] DIR",
		UsageText: `
sandboxagent batch retry --failed tasks.results
sandboxagent batch retry --status limit_reached DIR`,
		Description: `
The batch has the flags of its last start on this machine, but for --yes and --quiet; a flag that
you give replaces the one of its name. One that was collected has those that you give, and those of
variables and files. The results of these tasks go to DIR/attempts.jsonl. Tasks without a result run
too.`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{
				Name: "failed", Category: groupBatch,
				Usage: "run all tasks again that did not pass, as without --status",
			},
			&cli.StringSliceFlag{
				Name: "status", Category: groupBatch, DefaultText: "all but completed",
				Usage: "run the tasks again whose results have the `STATUS`; may be repeated",
			},
		}, batchFlags()...),
		Action: p.batchAction(func(c *cli.Context) (batchInput, error) {
			if c.Bool("failed") && c.IsSet("status") {
				return batchInput{}, usagef("--failed and --status exclude each other")
			}
			return retryBatch(c.Args().Slice(), c.StringSlice("status"))
		}),
	}
}

// withoutBatch are the flags of run that a batch does not have: the tasks or the program set them,
// or they are about one environment.
var withoutBatch = [...]string{
	"output", "verbose", "patch", "apply", "download", "env-id", "keep", "max-cost", "file",
	"image-file",
}

// batchFlags are the flags of the commands that run tasks of a batch.
func batchFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.IntFlag{
			Name: "parallel", Category: groupBatch, Value: batch.DefaultParallel,
			Usage: "work on `N` tasks at the same time",
		},
		&cli.IntFlag{
			Name: "starting", Category: groupBatch, Value: batch.DefaultStarting,
			Usage: "open at most `N` environments at the same time",
		},
		&cli.IntFlag{
			Name: "retries", Category: groupBatch, Value: defaultRetries,
			Usage: "try a task again at most `N` times, in a fresh environment, if its environment or " +
				"its model has failed",
		},
		&cli.BoolFlag{
			Name: "fail-fast", Category: groupBatch, Usage: "start no task after one that did not pass",
		},
		&cli.IntFlag{
			Name: "max-failures", Category: groupBatch, DefaultText: "no limit",
			Usage: "start no task after `N` that did not pass",
		},
		&cli.Float64Flag{
			Name: "max-cost", Category: groupBatch, DefaultText: "no limit",
			Usage: "spend at most `N` US dollars with all tasks; in a file it limits each run",
		},
		&cli.StringFlag{
			Name: "junit", Category: groupBatch, Usage: "write the results to `FILE` as JUnit's XML",
		},
		jsonFlag("the totals as JSON"),
	}
	return append(flags, slices.DeleteFunc(runFlags(), func(f cli.Flag) bool {
		return slices.Contains(withoutBatch[:], f.Names()[0])
	})...)
}

// defaultRetries is the default of --retries.
const defaultRetries = 2

// batchInput are the tasks of a batch and its directory.
type batchInput struct {
	tasks []batch.Task
	dir   string
	// name names the batch in reports.
	name string
	// forget reports the results that are removed first; may be nil.
	forget func(*batch.Record) bool
}

// readBatch reads the file of tasks that args name.
func readBatch(args []string, dir string) (batchInput, error) {
	if len(args) != 1 {
		return batchInput{}, usagef("give one file of tasks, such as tasks.jsonl")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return batchInput{}, usagef("read the tasks: %s", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	tasks, err := batch.ReadTasks(f)
	if err != nil {
		return batchInput{}, usagef("%s: %s", args[0], err)
	}
	name := filepath.Base(args[0])
	name = strings.TrimSuffix(name, filepath.Ext(name))
	dir, err = filepath.Abs(cmp.Or(dir, name+".results"))
	return batchInput{tasks: tasks, dir: dir, name: name}, err
}

// retryBatch returns a batch without the results that statuses select.
func retryBatch(args, statuses []string) (batchInput, error) {
	for _, s := range statuses {
		if _, ok := runCodes[agent.Status(s)]; !ok {
			var known []string
			for status := range runCodes {
				known = append(known, string(status))
			}
			slices.Sort(known)
			return batchInput{}, usagef("--status: %q is not one of %s", s, strings.Join(known, ", "))
		}
	}
	dir := args[0] // recallBatch has counted them
	tasks, err := batch.Tasks(dir)
	if err != nil {
		return batchInput{}, usagef("%s is no directory of a batch: %s", dir, err)
	}
	return batchInput{
		tasks: tasks, dir: dir, name: strings.TrimSuffix(filepath.Base(dir), ".results"),
		forget: func(r *batch.Record) bool {
			return !r.Passed() && (len(statuses) == 0 || slices.Contains(statuses, r.Status))
		},
	}, nil
}

// batchError turns mistakes about the directory of a batch into usageErrors.
func batchError(err error) error {
	switch {
	case errors.Is(err, batch.ErrInUse):
		return usagef("%s", err)
	case errors.Is(err, batch.ErrOtherTasks):
		return usagef("%s; name another one with --out", err)
	}
	return err
}

// batchLine returns the file with the programLine of the last start of the batch in dir: it is not
// in dir, where commands and repositories may put files.
func batchLine(dir string) (string, error) {
	state, err := stateDir()
	if err == nil && state == "" {
		err = usagef("there is no home directory for the flags of batches; set SANDBOXAGENT_STATE_DIR")
	}
	name := fmt.Sprintf("%x.json", sha256.Sum256([]byte(dir)))
	return filepath.Join(state, "batches", name), err
}

// storeBatchLine stores the programLine of a batch.
func storeBatchLine(dir string, line json.RawMessage) error {
	file, err := batchLine(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return replaceFile(file, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(line, '\n'))
		return err
	})
}

// recallBatch adds the flags of a batch to those of batch retry, and enters its directory.
func (p *program) recallBatch(app *cli.App) error {
	l := &p.line
	if len(l.rest) != 1 {
		return usagef("give the directory of one batch")
	}
	dir, err := filepath.Abs(l.rest[0])
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, batch.TasksName)); err != nil {
		return usagef("%s is no directory of a batch: %s", l.rest[0], err)
	}
	file, err := batchLine(dir)
	if err != nil {
		return err
	}
	var before programLine
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &before)
	}
	given := l.given()
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(given, "model") { // it was collected
		l.rest[0] = dir
		return l.addSettings(app, programLine{})
	}
	if err != nil {
		return usagef("the flags of the batch are not known on this machine (%s); give them, at least "+
			"--model", err)
	}
	l.rest[0] = dir
	if err := l.addSettings(app, before); err != nil {
		return err
	}
	if err := l.checkAgain(before); err != nil {
		return err
	}
	if err := l.makeAbsolute(); err != nil {
		return err
	}
	if err := os.Chdir(before.Dir); err != nil {
		return usagef("enter the directory that the batch began in: %s", err)
	}
	l.merge(before, given, app.Command(l.command).Flags)
	l.costOfRun = slices.Contains(l.recalled, "--max-cost") &&
		slices.Contains(before.Variables, "max-cost")
	return nil
}

// batchSettings are the values of batchFlags beside those of run.
type batchSettings struct {
	parallel, starting, retries, maxFailures int
	maxCost                                  float64
	// keysElsewhere: this program does not have the keys of models.
	keysElsewhere bool
	// isElsewhere reports whether a name is not one of this machine; may be nil.
	isElsewhere func(name string) bool
	// junit is the destination of a report; nil without one.
	junit *destination
}

func parseBatchFlags(c *cli.Context) (batchSettings, error) {
	s := batchSettings{
		parallel: c.Int("parallel"), starting: c.Int("starting"), retries: c.Int("retries"),
		maxFailures: c.Int("max-failures"), maxCost: c.Float64("max-cost"),
	}
	if s.starting < 1 {
		return s, usagef("--starting is %d; it must be at least 1", s.starting)
	}
	if c.IsSet("max-cost") && !(s.maxCost > 0) {
		return s, usagef("--max-cost %g is no amount of US dollars that allows a request", s.maxCost)
	}
	err := s.check(c)
	if err == nil {
		s.junit, err = parseJUnit(c)
	}
	return s, err
}

// check validates the settings that a submitted batch has, too.
func (s *batchSettings) check(c *cli.Context) error {
	switch {
	case s.parallel < 1:
		return usagef("--parallel is %d; it must be at least 1", s.parallel)
	case s.retries < 0:
		return usagef("--retries is negative")
	case c.IsSet("max-failures") && s.maxFailures < 1:
		return usagef("--max-failures is %d; it must be at least 1", s.maxFailures)
	case c.IsSet("max-failures") && c.Bool("fail-fast"):
		return usagef("--fail-fast and --max-failures exclude each other")
	}
	if c.Bool("fail-fast") {
		s.maxFailures = 1
	}
	return nil
}

// parseJUnit reads --junit; nil without it.
func parseJUnit(c *cli.Context) (*destination, error) {
	name := c.String("junit")
	if name == "" {
		return nil, nil
	}
	file, err := writableFile(name)
	if err != nil {
		return nil, usagef("--junit: %s", err)
	}
	to, err := findDestination(file)
	if err != nil {
		return nil, usagef("--junit: %s", err)
	}
	return &to, nil
}

// batchAction returns the action of a command that runs the tasks of a batch.
func (p *program) batchAction(input func(*cli.Context) (batchInput, error)) cli.ActionFunc {
	return p.action(func(ctx context.Context, c *cli.Context) (int, error) {
		s, err := parseBatchFlags(c)
		if err != nil {
			return 0, err
		}
		in, err := input(c)
		if err != nil {
			return 0, err
		}
		r, err := p.newBatchRunner(c, in, s)
		if err != nil {
			return 0, err
		}
		return r.run(ctx, c)
	})
}

// run runs the tasks, shows their progress, and writes the reports.
func (r *batchRunner) run(ctx context.Context, c *cli.Context) (code int, err error) {
	p := r.p
	if err := os.MkdirAll(r.in.dir, 0o700); err != nil {
		return 0, usagef("--out: %s", err)
	}
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	interrupted := make(chan struct{}, 1)
	p.command.Store(&interrupted)
	defer p.command.Store(nil)
	kill := r.kill
	p.kill.Store(&kill)
	show := newBatchDisplay(p.screen())
	p.display.Store(show.progress)
	defer show.close()
	drain := make(chan struct{})
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-interrupted:
			close(drain)
			show.notify("no task starts any more; ^C again aborts those that run")
		case <-ended:
		}
	}()
	r.show = show
	started := time.Now()
	totals, err := batch.Run(ctx, batch.Config{
		Dir: r.in.dir, Run: r.attempt, Parallel: r.settings.parallel, Starting: r.settings.starting,
		Retries: r.settings.retries, Drain: drain, Enough: r.stopReason, Observe: show.observe,
		Begin: r.begin, Forget: r.in.forget,
	}, r.in.tasks)
	show.close()
	_ = r.cluster.close()     // it never fails
	_ = os.Remove(r.archives) // unless something is left, which the next start removes
	var refused *usageError
	if errors.As(context.Cause(ctx), &refused) { // the consent
		return 0, refused
	}
	if err != nil {
		return 0, batchError(err)
	}
	if err := r.report(c, totals, time.Since(started)); err != nil {
		return 0, err
	}
	return r.exitCode(ctx, totals, drain)
}

// begin prepares the directory of the batch, in which no other process works.
func (r *batchRunner) begin() error {
	if r.archives != "" {
		removeTree(r.archives) // the rest of a killed program
	}
	return storeBatchLine(r.in.dir, r.line)
}

// stopReason returns why no task starts any more.
func (r *batchRunner) stopReason(t batch.Totals) string {
	refusal := r.refusal.Load()
	if r.failed < 0 {
		r.failed = t.Failed
	}
	switch {
	case r.spent.Load():
		return costReason
	case refusal != nil:
		return *refusal
	case r.settings.maxFailures > 0 && t.Failed-r.failed >= r.settings.maxFailures:
		return fmt.Sprintf("%s did not pass", count(t.Failed-r.failed, "task"))
	}
	return ""
}

const costReason = "the limit of money was reached (--max-cost)"

// exitCode returns the exit code of a batch with totals.
func (r *batchRunner) exitCode(
	ctx context.Context, t batch.Totals, drain <-chan struct{},
) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	select {
	case <-drain:
		if t.Left() > 0 {
			return codeInterrupted, nil
		}
	default:
	}
	switch {
	case t.Left() > 0 && r.spent.Load():
		return codeLimit, nil
	case t.Left() > 0 && r.refusal.Load() != nil:
		if r.p.worker != nil {
			r.p.worker.Explain(oneLine(*r.refusal.Load()))
		}
		return codeModel, nil
	case t.Passed < t.Tasks:
		return codeFailed, nil
	}
	return codeDone, nil
}

// report writes the reports of a batch.
func (r *batchRunner) report(c *cli.Context, t batch.Totals, took time.Duration) error {
	if r.settings.junit != nil {
		err := r.settings.junit.replace(0o666, func(w io.Writer) error {
			return batch.WriteJUnit(w, r.in.name, r.in.dir)
		})
		if err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	return r.p.printTotals(c, r.in.dir, t, took)
}
