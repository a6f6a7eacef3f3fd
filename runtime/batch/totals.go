package batch

import (
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Totals count the tasks of a batch. They encode as JSON.
type Totals struct {
	Tasks   int `json:"tasks"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Running int `json:"running"`
	// Repeated counts attempts whose failure was repeated.
	Repeated int `json:"repeated"`
	// Reasons counts the failed tasks by status.
	Reasons map[string]int `json:"reasons,omitempty"`
	Usage   llm.Usage      `json:"usage"`
	// Usage and CostUSD, as far as the price is known, are those of all attempts; Unpriced counts
	// those without a price that used tokens.
	CostUSD  float64 `json:"cost_usd"`
	Unpriced int     `json:"unpriced,omitempty"`
	// Stopped is why no attempt started any more; empty if all could.
	Stopped string `json:"stopped,omitempty"`

	// durations are those of the results, in milliseconds.
	durations []int64
}

// Left returns the number of tasks without a result.
func (t Totals) Left() int { return t.Tasks - t.Passed - t.Failed }

// Percentile returns the duration that p percent of the results do not exceed, by nearest rank,
// without those whose times are unknown; zero without results.
func (t Totals) Percentile(p float64) time.Duration {
	if len(t.durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.durations))
	rank := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return time.Duration(sorted[min(max(rank, 0), len(sorted)-1)]) * time.Millisecond
}

// add counts a result.
func (t *Totals) add(r *Record) {
	if r.Passed() {
		t.Passed++
	} else {
		t.Failed++
		if t.Reasons == nil {
			t.Reasons = make(map[string]int)
		}
		t.Reasons[r.Status]++
	}
	t.Spend(r)
	if r.Ended.After(r.Started) { // else the times are unknown
		t.durations = append(t.durations, r.Ended.Sub(r.Started).Milliseconds())
	}
}

// Spend counts what an attempt has used that is not the result of its task.
func (t *Totals) Spend(r *Record) {
	t.Usage = t.Usage.Add(r.Usage)
	switch {
	case r.CostUSD != nil:
		t.CostUSD = event.RoundMoney(t.CostUSD + *r.CostUSD)
	case r.Usage.Total() > 0:
		t.Unpriced++
	}
}

// clone returns a copy whose durations later results do not change.
func (t *Totals) clone() Totals {
	c := *t
	c.Reasons = maps.Clone(t.Reasons)
	c.durations = t.durations[:len(t.durations):len(t.durations)]
	return c
}

// Sum returns the totals of a batch with that many tasks from records of its results.
func Sum(tasks int, results iter.Seq2[*Record, error]) (Totals, error) {
	t := Totals{Tasks: tasks}
	for r, err := range results {
		if err != nil {
			return t, err
		}
		t.add(r)
	}
	return t, nil
}

// Summarize returns the totals of the batch in dir from its results.
func Summarize(dir string) (Totals, error) {
	tasks, err := Tasks(dir)
	if err != nil {
		return Totals{}, err
	}
	t := Totals{Tasks: len(tasks)}
	counted := make(map[attemptOf]bool)
	for r, err := range Results(dir) {
		if err != nil {
			return t, err
		}
		counted[r.of()] = true
		t.add(r)
	}
	for r, err := range Attempts(dir) {
		if err != nil {
			return t, err
		}
		if !counted[r.of()] { // a crash may have left it in both files
			t.Spend(r)
		}
	}
	return t, nil
}
