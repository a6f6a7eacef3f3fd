package batch_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// tasks returns n tasks with the IDs t1, t2 and so on.
func tasks(n int) (list []batch.Task) {
	for i := range n {
		list = append(list, batch.Task{ID: fmt.Sprintf("t%d", i+1), Prompt: "p"})
	}
	return list
}

func passed() batch.Outcome {
	price := 0.25
	return batch.Outcome{Result: event.Result{
		Status: "completed", Usage: llm.Usage{Input: 10}, CostUSD: &price,
	}}
}

func failed(status string, code int, repeatable bool) batch.Outcome {
	return batch.Outcome{
		Result:     event.Result{Status: status, ExitCode: code, Error: "why\nmore"},
		Repeatable: repeatable,
	}
}

// log counts the attempts at each task.
type log struct {
	mu       sync.Mutex
	attempts map[string]int
	now, all int
	most     int
}

// run returns a Config.Run that counts and calls work.
func (l *log) run(work func(context.Context, *batch.Attempt) batch.Outcome) func(
	context.Context, *batch.Attempt) batch.Outcome {
	return func(ctx context.Context, a *batch.Attempt) batch.Outcome {
		l.mu.Lock()
		if l.attempts == nil {
			l.attempts = make(map[string]int)
		}
		l.attempts[a.Task.ID]++
		l.now, l.all = l.now+1, l.all+1
		l.most = max(l.most, l.now)
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.now--
		}()
		return work(ctx, a)
	}
}

// results returns the records of a batch by task; a second one of a task is an error.
func results(t *testing.T, dir string) map[string]*batch.Record {
	t.Helper()
	found := make(map[string]*batch.Record)
	for r, err := range batch.Results(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if found[r.TaskID] != nil {
			t.Errorf("two results of %s", r.TaskID)
		}
		found[r.TaskID] = r
	}
	return found
}

func run(t *testing.T, cfg batch.Config, list []batch.Task) batch.Totals {
	t.Helper()
	totals, err := batch.Run(t.Context(), cfg, list)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	synctest.Test(t, func(t *testing.T) {
		var l log
		var mu sync.Mutex
		starting, mostStarting := 0, 0
		kinds := make(map[batch.ChangeKind]int)
		var last batch.Totals
		totals := run(t, batch.Config{
			Dir: dir, Parallel: 8, Starting: 3,
			Run: l.run(func(_ context.Context, a *batch.Attempt) batch.Outcome {
				mu.Lock()
				starting++
				mostStarting = max(mostStarting, starting)
				mu.Unlock()
				if entries, err := os.ReadDir(a.Dir); err != nil || len(entries) > 0 || a.Number != 1 {
					t.Errorf("attempt %d in %s: %v", a.Number, a.Dir, err)
				}
				time.Sleep(time.Second)
				mu.Lock()
				starting--
				mu.Unlock()
				a.Opened()
				time.Sleep(9 * time.Second)
				if a.Task.ID == "t7" {
					return failed("task_failed", 1, false)
				}
				return passed()
			}),
			Observe: func(c batch.Change) { kinds[c.Kind]++; last = c.Totals },
		}, tasks(100))
		if l.most != 8 || mostStarting != 3 || l.all != 100 {
			t.Errorf("%d attempts, %d at a time, %d opened at a time", l.all, l.most, mostStarting)
		}
		if totals.Passed != 99 || totals.Failed != 1 || totals.Left() != 0 || totals.Running != 0 ||
			totals.Reasons["task_failed"] != 1 || totals.CostUSD != 99*0.25 || totals.Usage.Input != 990 ||
			totals.Percentile(50) != 10*time.Second || totals.Stopped != "" {
			t.Errorf("%+v", totals)
		}
		if kinds[batch.Started] != 100 || kinds[batch.Opened] != 100 || kinds[batch.Ended] != 100 ||
			last.Passed != 99 {
			t.Errorf("%v, %+v", kinds, last)
		}
	})
	found := results(t, dir)
	if r := found["t1"]; len(found) != 100 || r.OpenMS != 1000 || r.Attempt != 1 || !r.Passed() ||
		r.Ended.Sub(r.Started) != 10*time.Second {
		t.Errorf("%d results, %+v", len(found), found["t1"])
	}
	sum, err := batch.Summarize(dir)
	if err != nil || sum.Passed != 99 || sum.Tasks != 100 || sum.Percentile(95) != 10*time.Second {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestResume has batches that end early in each way; the next one goes on.
func TestResume(t *testing.T) {
	for name, end := range map[string]func(*batch.Config, context.CancelFunc, chan struct{}){
		"drained": func(c *batch.Config, _ context.CancelFunc, drain chan struct{}) {
			c.Observe = func(ch batch.Change) {
				if ch.Totals.Passed == 10 && ch.Kind == batch.Ended {
					close(drain)
				}
			}
		},
		"enough": func(c *batch.Config, _ context.CancelFunc, _ chan struct{}) {
			c.Enough = func(t batch.Totals) string {
				if t.Passed >= 10 {
					return "ten"
				}
				return ""
			}
		},
		"aborted": func(c *batch.Config, cancel context.CancelFunc, _ chan struct{}) {
			c.Observe = func(ch batch.Change) {
				if ch.Totals.Passed == 10 {
					cancel()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var l log
			var done map[string]*batch.Record
			work := l.run(func(ctx context.Context, a *batch.Attempt) batch.Outcome {
				if done[a.Task.ID] != nil {
					t.Errorf("%s runs again", a.Task.ID)
				}
				took := time.Second + time.Duration(len(a.Dir)+int(a.Task.ID[1]))*time.Millisecond
				if llm.SystemClock().Sleep(ctx, took) != nil {
					return failed("aborted", 130, false)
				}
				return passed()
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				drain := make(chan struct{})
				cfg := batch.Config{Dir: dir, Run: work, Parallel: 3, Retries: 5, Drain: drain}
				end(&cfg, cancel, drain)
				totals, err := batch.Run(ctx, cfg, tasks(30))
				if err != nil || totals.Passed < 10 || totals.Passed > 13 || totals.Running != 0 ||
					(totals.Stopped == "ten") != (name == "enough") {
					t.Fatalf("%+v, %v", totals, err)
				}
			})
			done = results(t, dir)
			aborted := l.all - len(done)
			if (aborted > 0) != (name == "aborted") {
				t.Errorf("%d attempts without a result", aborted)
			}
			synctest.Test(t, func(t *testing.T) {
				totals := run(t, batch.Config{Dir: dir, Run: work, Parallel: 3}, tasks(30))
				if totals.Passed != 30 || totals.Percentile(100) < time.Second {
					t.Errorf("%+v", totals)
				}
			})
			all := results(t, dir)
			if len(all) != 30 || l.all != 30+aborted {
				t.Errorf("%d results of %d attempts", len(all), l.all)
			}
			for id, r := range all {
				if r.Attempt != l.attempts[id] {
					t.Errorf("%s has a result of attempt %d of %d", id, r.Attempt, l.attempts[id])
				}
			}
		})
	}
}

func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		failures, retries int
		repeatable        bool
		attempts          int
		passes            bool
	}{
		{0, 2, true, 1, true},
		{2, 2, true, 3, true},
		{3, 2, true, 3, false},
		{1, 0, true, 1, false},
		{1, 2, false, 1, false},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var l log
			repeated := 0
			totals := run(t, batch.Config{
				Dir: dir, Retries: tt.retries,
				Run: l.run(func(_ context.Context, a *batch.Attempt) batch.Outcome {
					if a.Number <= tt.failures {
						return failed("environment_error", 6, tt.repeatable)
					}
					return passed()
				}),
				Observe: func(c batch.Change) {
					if c.Kind == batch.Repeated {
						repeated++
					}
				},
			}, tasks(1))
			if l.all != tt.attempts || (totals.Passed == 1) != tt.passes ||
				repeated != tt.attempts-1 || totals.Repeated != repeated || totals.Left() != 0 {
				t.Errorf("%+v: %d attempts, %d repeated, %+v", tt, l.all, repeated, totals)
			}
		})
		if r := results(t, dir)["t1"]; r == nil || r.Attempt != tt.attempts {
			t.Errorf("%+v: %+v", tt, r)
		}
	}
}

// TestDamagedResults has files of results after a crash: a result that is not complete does not
// count, and damage before the end is reported.
func TestDamagedResults(t *testing.T) {
	dir := t.TempDir()
	var l log
	cfg := batch.Config{Dir: dir, Run: l.run(func(context.Context, *batch.Attempt) batch.Outcome {
		return passed()
	})}
	run(t, cfg, tasks(3))
	name := filepath.Join(dir, batch.ResultsName)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	last := lines[2]
	for cut := range len(last) {
		if cut%20 != 0 && cut < len(last)-2 {
			continue
		}
		if err := os.WriteFile(name, whole[:len(whole)-len(last)+cut], 0o600); err != nil {
			t.Fatal(err)
		}
		before := l.all
		if totals := run(t, cfg, tasks(3)); totals.Passed != 3 || l.all != before+1 {
			t.Fatalf("cut at %d: %d attempts, %+v", cut, l.all-before, totals)
		}
		if found := results(t, dir); len(found) != 3 {
			t.Fatalf("cut at %d: %d results", cut, len(found))
		}
	}
	bad := slices.Concat(lines[0], []byte("{\"task_id\":\n"), lines[1])
	if err := os.WriteFile(name, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = batch.Run(t.Context(), cfg, tasks(3))
	if err == nil || !strings.Contains(err.Error(), "results.jsonl: line 2 is no result") {
		t.Errorf("damage: %v", err)
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, bad) {
		t.Error("the damaged file was changed")
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	inner := make(chan error, 1)
	cfg := batch.Config{Dir: dir}
	cfg.Run = func(context.Context, *batch.Attempt) batch.Outcome {
		_, err := batch.Run(t.Context(), cfg, tasks(1))
		inner <- err
		if !batch.InUse(dir) {
			t.Error("the batch is not in use")
		}
		return passed()
	}
	run(t, cfg, tasks(1))
	if err := <-inner; !errors.Is(err, batch.ErrInUse) {
		t.Errorf("a second process: %v", err)
	}
	if batch.InUse(dir) {
		t.Error("the batch is in use")
	}
	other := tasks(1)
	other[0].Prompt = "other"
	if _, err := batch.Run(t.Context(), cfg, other); !errors.Is(err, batch.ErrOtherTasks) {
		t.Errorf("other tasks: %v", err)
	}
	if stored, err := batch.Tasks(dir); err != nil || len(stored) != 1 || stored[0].Prompt != "p" {
		t.Errorf("%+v, %v", stored, err)
	}
}

func TestPanic(t *testing.T) {
	dir := t.TempDir()
	totals := run(
		t,
		batch.Config{Dir: dir, Run: func(_ context.Context, a *batch.Attempt) batch.Outcome {
			if a.Task.ID == "t1" {
				panic("oops")
			}
			return passed()
		}},
		tasks(2),
	)
	r := results(t, dir)["t1"]
	if totals.Passed != 1 || r.Status != "internal_error" || r.ExitCode != 6 ||
		!strings.HasPrefix(r.Error, "the program panicked: oops\n") {
		t.Errorf("%+v, %+v", totals, r)
	}
}

// TestForget removes the failed results, which are kept elsewhere; their tasks run again.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	var l log
	cfg := batch.Config{Dir: dir, Run: l.run(func(_ context.Context, a *batch.Attempt) batch.Outcome {
		if a.Number == 1 && a.Task.ID != "t2" {
			return failed("task_failed", 1, false)
		}
		return passed()
	})}
	run(t, cfg, tasks(3))
	cfg.Forget = func(r *batch.Record) bool { return !r.Passed() }
	wrong := errors.New("wrong")
	cfg.Begin = func() error { return wrong }
	if _, err := batch.Run(t.Context(), cfg, tasks(3)); !errors.Is(err, wrong) || l.all != 3 ||
		len(results(t, dir)) != 3 {
		t.Errorf("without a beginning: %v, %d attempts", err, l.all)
	}
	cfg.Begin = nil
	// A crash has left a result in both files.
	lines, err := os.ReadFile(filepath.Join(dir, batch.ResultsName))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		if bytes.Contains(line, []byte("task_failed")) {
			err = os.WriteFile(filepath.Join(dir, batch.AttemptsName), line, 0o600)
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds nothing
		if totals := run(t, cfg, tasks(3)); totals.Passed != 3 || l.attempts["t2"] != 1 || l.all != 5 {
			t.Errorf("%+v, %v", totals, l.attempts)
		}
	}
	removed, err := os.ReadFile(filepath.Join(dir, batch.AttemptsName))
	if err != nil || bytes.Count(removed, []byte("\n")) != 2 {
		t.Errorf("removed results: %s, %v", removed, err)
	}
	if r := results(t, dir)["t1"]; r.Attempt != 2 {
		t.Errorf("%+v", r)
	}
}

// TestCollect collects a result with an attempt before it, after a crash that has stored only the
// attempt, and again.
func TestCollect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Now()
	restores := 0
	collect := func(fail error) (batch.Totals, error) {
		return batch.Collect(dir, tasks(2), func(yield func(batch.Collected, error) bool) {
			earlier, last := passed(), passed()
			earlier.Status, earlier.ExitCode = "model_error", 5
			_ = yield(batch.Collected{
				TaskID:  "t2",
				Earlier: []*batch.Record{{Started: began, Result: earlier.Result}},
				Restore: func(string) (*batch.Record, error) {
					restores++
					return &batch.Record{Started: began.Add(time.Second), Result: last.Result}, fail
				},
			}, nil)
		})
	}
	crash := errors.New("crash")
	if _, err := collect(crash); !errors.Is(err, crash) {
		t.Errorf("%v", err)
	}
	for range 2 {
		totals, err := collect(nil)
		if err != nil || totals.Passed != 1 || totals.Left() != 1 || totals.Usage.Input != 20 ||
			totals.CostUSD != 0.5 {
			t.Errorf("%+v, %v", totals, err)
		}
	}
	numbers := map[int]string{}
	for r, err := range batch.Attempts(dir) {
		if err != nil {
			t.Fatal(err)
		}
		numbers[r.Attempt] += r.TaskID
	}
	r := results(t, dir)["t2"]
	numbers[r.Attempt] += "result"
	if len(numbers) != 2 || numbers[1] != "t2" || restores != 2 {
		t.Errorf("%v, %d restores", numbers, restores)
	}
}

// TestNothingStarts has attempts that wait, to start or to be repeated, when the batch is drained:
// none starts, and none of their tasks has a result.
func TestNothingStarts(t *testing.T) {
	for name, tt := range map[string]struct {
		work     func(drain func(), a *batch.Attempt) batch.Outcome
		attempts int
		results  int
		late     time.Duration // from the drain to the end
	}{
		"starts": {func(drain func(), a *batch.Attempt) batch.Outcome {
			drain() // the others wait, since it does not open
			time.Sleep(time.Second)
			return passed()
		}, 1, 1, time.Second},
		"repeats": {func(drain func(), a *batch.Attempt) batch.Outcome {
			if a.Task.ID == "t5" {
				a.Opened()
				time.Sleep(time.Nanosecond) // the others wait to be repeated
				drain()
			}
			return failed("environment_error", 6, true)
		}, 5, 0, 0},
		"last chance": {func(drain func(), a *batch.Attempt) batch.Outcome {
			a.Opened()
			time.Sleep(time.Second)
			if a.Task.ID == "t5" {
				drain()
			}
			time.Sleep(time.Second)
			return failed("environment_error", 6, true)
		}, 5, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var l log
			synctest.Test(t, func(t *testing.T) {
				drain := make(chan struct{})
				var mu sync.Mutex
				var drained time.Time
				stop := func() {
					mu.Lock()
					defer mu.Unlock()
					drained = time.Now()
					close(drain)
				}
				run(t, batch.Config{
					Dir: dir, Parallel: 5, Starting: 1, Retries: 1000, Drain: drain,
					Run: l.run(func(_ context.Context, a *batch.Attempt) batch.Outcome {
						return tt.work(stop, a)
					}),
				}, tasks(5))
				mu.Lock()
				defer mu.Unlock()
				if late := time.Since(drained); late != tt.late {
					t.Errorf("it ended %s after the drain", late)
				}
			})
			if found := results(t, dir); l.all < tt.attempts || len(found) != tt.results ||
				name != "repeats" && l.all != tt.attempts {
				t.Errorf("%d attempts, %d results", l.all, len(found))
			}
		})
	}
}

func TestJUnit(t *testing.T) {
	dir := t.TempDir()
	run(t, batch.Config{
		Dir: dir, Parallel: 1,
		Enough: func(t batch.Totals) string {
			if t.Passed+t.Failed == 3 {
				return "enough"
			}
			return ""
		},
		Run: func(_ context.Context, a *batch.Attempt) batch.Outcome {
			switch a.Task.ID {
			case "t1":
				return failed("verify_failed", 1, false)
			case "t2":
				o := failed("environment_error", 6, false)
				o.Error = "a <b> & \x1b[31m\x00" + strings.Repeat("é", 10_000)
				return o
			}
			return passed()
		},
	}, tasks(4))
	var out bytes.Buffer
	if err := batch.WriteJUnit(&out, "suite", dir); err != nil {
		t.Fatal(err)
	}
	type problem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
	var got struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *problem  `xml:"failure"`
			Error   *problem  `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if got.Name != "suite" || got.Tests != 4 || got.Failures != 1 || got.Errors != 1 ||
		got.Skipped != 1 || len(got.Cases) != 4 {
		t.Fatalf("%+v", got)
	}
	f, e := got.Cases[0].Failure, got.Cases[1].Error
	if f == nil || f.Type != "verify_failed" || f.Message != "why" || f.Text != "why\nmore" ||
		e == nil || !strings.HasPrefix(e.Text, "a <b> & ␀é") || len(e.Text) > 8<<10 ||
		got.Cases[2].Failure != nil || got.Cases[3].Skipped == nil || got.Cases[3].Name != "t4" {
		t.Errorf("%s", out.Bytes())
	}
}

func TestPercentile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		totals := run(t, batch.Config{Dir: dir, Parallel: 1, Run: func(
			_ context.Context, a *batch.Attempt,
		) batch.Outcome {
			var n int
			_, _ = fmt.Sscanf(a.Task.ID, "t%d", &n)
			time.Sleep(time.Duration(n) * time.Second)
			return passed()
		}}, tasks(20))
		for p, want := range map[float64]time.Duration{
			0: time.Second, 50: 10 * time.Second, 51: 11 * time.Second, 95: 19 * time.Second,
			100: 20 * time.Second,
		} {
			if got := totals.Percentile(p); got != want {
				t.Errorf("p%g is %s, want %s", p, got, want)
			}
		}
	})
	if (batch.Totals{}).Percentile(50) != 0 {
		t.Error("a percentile of nothing")
	}
}

// TestSummarize has a result that a crash has left in both files, which counts once, and one whose
// times are unknown.
func TestSummarize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const start = `"started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:`
	for name, text := range map[string]string{
		batch.TasksName: `{"id":"a","prompt":"x"}` + "\n" + `{"id":"b","prompt":"x"}` + "\n",
		batch.ResultsName: `{"task_id":"a","attempt":2,` + start + `05Z","cost_usd":1}` + "\n" +
			`{"task_id":"b","attempt":1,` + start + `00Z","exit_code":6}` + "\n",
		batch.AttemptsName: `{"task_id":"a","attempt":2,"cost_usd":2}` + "\n" +
			`{"task_id":"a","attempt":2,` + start + `05Z","cost_usd":1}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := batch.Summarize(dir)
	if err != nil || got.CostUSD != 3 || got.Percentile(1) != 5*time.Second || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = batch.Run(t.Context(), batch.Config{Dir: dir}, mustTasks(t, dir))
	if err != nil || got.CostUSD != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func mustTasks(t *testing.T, dir string) []batch.Task {
	t.Helper()
	tasks, err := batch.Tasks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}
