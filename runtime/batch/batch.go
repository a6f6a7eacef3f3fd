package batch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Defaults of Config.
const (
	DefaultParallel = 4
	DefaultStarting = 4
)

// Waits before a task is tried again: a random part of retryBase × 2ⁿ, at most retryCap.
const (
	retryBase = time.Second
	retryCap  = 30 * time.Second
)

// codeEnvironment is the exit code of a run that the program or its environment has failed.
const codeEnvironment = 6

// Attempt is one attempt at a task.
type Attempt struct {
	Task Task
	// Number counts the attempts at the task from 1, with those of earlier processes.
	Number int
	// Dir is an empty directory for the files of the attempt.
	Dir string

	opened func()
}

// Opened ends the start of an attempt: its environment is open, and another one may start. It is
// idempotent. Without it the start ends with the attempt.
func (a *Attempt) Opened() { a.opened() }

// Outcome is the result of an attempt.
type Outcome struct {
	event.Result
	// Repeatable means that the environment or the model failed, that the next attempt may not, and
	// that nothing that this one has done is left: the task may be tried again.
	Repeatable bool
	// NoResult means that the batch has ended the attempt, such as at a limit of all tasks: the task
	// has no result.
	NoResult bool
}

// Config configures Run.
type Config struct {
	// Dir is the directory of the batch. Run creates it.
	Dir string
	// Run makes one attempt. It is called concurrently, and returns soon after ctx ends.
	Run func(ctx context.Context, a *Attempt) Outcome
	// Parallel is the number of attempts at the same time, and Starting that of those whose
	// environment is not open yet. Zero values are DefaultParallel and DefaultStarting.
	Parallel, Starting int
	// Retries is how often a task is tried again if Outcome.Repeatable.
	Retries int
	// Begin, if not nil, is called before all else while no other process works in Dir.
	Begin func() error
	// Forget, if not nil, reports the results to remove before the attempts start, so that their tasks
	// are done again; the records go to attempts.jsonl.
	Forget func(*Record) bool
	// Drain, if closed, lets no attempt start any more; nil never does. Those under way end.
	Drain <-chan struct{}
	// Enough returns why no further attempt starts, or ""; may be nil.
	Enough func(Totals) string
	// Observe gets each change; may be nil. Calls do not overlap.
	Observe func(Change)
}

// ChangeKind is the kind of a Change.
type ChangeKind string

// Kinds of changes.
const (
	// Started: an attempt has started; Opened: its environment is open.
	Started ChangeKind = "started"
	Opened  ChangeKind = "opened"
	// Repeated: an attempt has failed, and the task is tried again after Wait.
	Repeated ChangeKind = "repeated"
	// Ended: the task has a result.
	Ended ChangeKind = "ended"
	// Aborted: an attempt ended with the context of Run or the batch, and gave no result.
	Aborted ChangeKind = "aborted"
)

// Change is a change of a batch.
type Change struct {
	Kind   ChangeKind
	TaskID string
	// Attempt is the number of the attempt.
	Attempt int
	// Record is the result of an attempt that has ended; nil before.
	Record *Record
	Wait   time.Duration
	Totals Totals
}

// batch is one call of Run.
type batch struct {
	Config
	starting   *semaphore.Weighted
	results    *records
	unfinished *records // attempts that are no results

	mu      sync.Mutex
	waiting []Task
	totals  Totals
	// enough is why no further attempt starts; empty while they may.
	enough string
}

// Run works on those tasks of a batch that have no result, until all have one, or Config.Drain or
// Config.Enough ends the start of attempts, or ctx ends, which ends those under way without a
// result. It returns the totals with the results of earlier calls. The error is ErrInUse while
// another process works on the batch, ErrOtherTasks if the directory has a batch of other tasks, or
// that of a result that cannot be stored.
func Run(ctx context.Context, cfg Config, tasks []Task) (_ Totals, err error) {
	if cfg.Parallel <= 0 {
		cfg.Parallel = DefaultParallel
	}
	if cfg.Starting <= 0 {
		cfg.Starting = DefaultStarting
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Change) {}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return Totals{}, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return Totals{}, err
	}
	l, err := lock(cfg.Dir)
	if err != nil {
		return Totals{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := storeTasks(cfg.Dir, tasks); err != nil {
		return Totals{}, err
	}
	if cfg.Begin != nil {
		if err := cfg.Begin(); err != nil {
			return Totals{}, err
		}
	}
	if cfg.Forget != nil {
		if err := forget(cfg.Dir, cfg.Forget); err != nil {
			return Totals{}, err
		}
	}
	b := &batch{Config: cfg, starting: semaphore.NewWeighted(int64(cfg.Starting))}
	done, counted := make(map[string]bool), make(map[attemptOf]bool)
	b.totals.Tasks = len(tasks)
	b.results, err = openRecords(cfg.Dir, ResultsName, func(r *Record) {
		done[r.TaskID], counted[r.of()] = true, true
		b.totals.add(r)
	})
	if err != nil {
		return b.totals, err
	}
	defer func() { err = errors.Join(err, b.results.f.Close()) }()
	b.unfinished, err = openRecords(cfg.Dir, AttemptsName, func(r *Record) {
		if !counted[r.of()] { // a crash may have left it in both files
			b.totals.Spend(r)
		}
	})
	if err != nil {
		return b.totals, err
	}
	defer func() { err = errors.Join(err, b.unfinished.f.Close()) }()
	for _, t := range tasks {
		if !done[t.ID] {
			b.waiting = append(b.waiting, t)
		}
	}
	workers, working := errgroup.WithContext(ctx) // without a place for results no attempt goes on
	for range min(cfg.Parallel, len(b.waiting)) {
		workers.Go(func() error { return b.work(working) })
	}
	err = workers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.totals.Left() > 0 {
		b.mayStart(ctx) // which has the reason
	}
	return b.current(), err
}

// work works on one task after another.
func (b *batch) work(ctx context.Context) error {
	for {
		t, ok := b.next()
		if !ok {
			return nil
		}
		if err := b.task(ctx, t); err != nil {
			b.stop("a result cannot be stored")
			return err
		}
	}
}

// next returns the next task, and false after the last one.
func (b *batch) next() (Task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return Task{}, false
	}
	t := b.waiting[0]
	b.waiting = b.waiting[1:]
	return t, true
}

// mayStart reports whether attempts may start. The caller holds the lock.
func (b *batch) mayStart(ctx context.Context) bool {
	select {
	case <-b.Drain:
		return false
	default:
	}
	if b.enough == "" && b.Enough != nil {
		b.enough = b.Enough(b.current())
	}
	return ctx.Err() == nil && b.enough == ""
}

func (b *batch) stop(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enough = reason
}

// current returns the totals. The caller holds the lock.
func (b *batch) current() Totals {
	t := b.totals.clone()
	t.Stopped = b.enough
	return t
}

// change applies edit to the totals and reports a change.
func (b *batch) change(c Change, edit func(*Totals)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	edit(&b.totals)
	c.Totals = b.current()
	b.Observe(c)
}

// task works on t until it has a result, or no attempt may start.
func (b *batch) task(ctx context.Context, t Task) error {
	for retries := 0; ; retries++ {
		r, o, err := b.attempt(ctx, t)
		if err != nil || r == nil {
			return err
		}
		c := Change{Kind: Ended, TaskID: t.ID, Attempt: r.Attempt, Record: r}
		switch {
		case o.NoResult, ctx.Err() != nil && !r.Passed():
			c.Kind = Aborted
		case o.Repeatable && retries < b.Retries:
			c.Kind = Repeated
			c.Wait = time.Duration(rand.Float64() * float64(min(retryBase<<min(retries, 10), retryCap)))
		}
		if err := b.store(c); err != nil || c.Kind != Repeated {
			return err
		}
		timer := time.NewTimer(c.Wait)
		select {
		case <-ctx.Done():
		case <-b.Drain:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// starts reports whether attempts may start.
func (b *batch) starts(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mayStart(ctx)
}

// store stores the record of an attempt that has ended.
func (b *batch) store(c Change) error {
	to, count := b.unfinished, (*Totals).Spend
	if c.Kind == Ended {
		to, count = b.results, (*Totals).add
	}
	if err := to.add(c.Record); err != nil {
		return err
	}
	b.change(c, func(t *Totals) {
		t.Running--
		count(t, c.Record)
		if c.Kind == Repeated {
			t.Repeated++
		}
	})
	return nil
}

// attempt makes one attempt at t. The record is nil if none may start.
func (b *batch) attempt(ctx context.Context, t Task) (r *Record, o Outcome, err error) {
	if err := b.starting.Acquire(ctx, 1); err != nil {
		return nil, o, nil //nolint:nilerr // the caller of Run has ended it
	}
	release := sync.OnceFunc(func() { b.starting.Release(1) })
	defer release()
	if !b.starts(ctx) {
		return nil, o, nil
	}
	a := &Attempt{Task: t}
	a.Number, a.Dir, err = newAttempt(b.Dir, t.ID)
	if err != nil {
		return nil, o, fmt.Errorf("make a directory for %s: %w", t.ID, err)
	}
	r = &Record{TaskID: t.ID, Attempt: a.Number, Labels: t.Labels, Started: time.Now()}
	a.opened = sync.OnceFunc(func() {
		release()
		r.OpenMS = time.Since(r.Started).Milliseconds()
		b.change(Change{Kind: Opened, TaskID: t.ID, Attempt: a.Number}, func(*Totals) {})
	})
	b.change(Change{Kind: Started, TaskID: t.ID, Attempt: a.Number}, func(t *Totals) { t.Running++ })
	o = b.run(ctx, a)
	r.Ended, r.Result = time.Now(), o.Result
	return r, o, nil
}

// run calls Config.Run. A panic is a failure of its attempt.
func (b *batch) run(ctx context.Context, a *Attempt) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = Outcome{Result: event.Result{
				Status: string(agent.StatusInternalError), ExitCode: codeEnvironment,
				Error: fmt.Sprintf("the program panicked: %v\n%s", p, debug.Stack()),
			}}
		}
	}()
	return b.Run(ctx, a)
}
