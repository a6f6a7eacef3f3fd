package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TestBatchOnTerminal has a batch of three tasks, two at a time, on a terminal.
func TestBatchOnTerminal(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "batch", "--yes", "--read-only", "--parallel=2", "--out="+t.TempDir()+"/out",
		"--model=script:s.yaml", "tasks.jsonl")
	p.writeFile(t, "s.yaml", "turns:\n  - calls: [{tool: shell, args: {command: \"until test -e "+
		"go-on; do sleep 0.01; done; : MARKER\"}}]\n  - text: done\n")
	p.writeFile(t, "tasks.jsonl", `{"id":"first","prompt":"x"}`+"\n"+`{"id":"second","prompt":"x"}`+
		"\n"+`{"id":"third","prompt":"x"}`+"\n")
	lines, all := watchRun(t, p, 0, "> 0 of 3 tasks", "      first ", "      second ", " runs ")
	before, _, _ := strings.Cut(all, "[1/3]")
	if strings.Contains(before, "third") {
		t.Errorf("a third task has started: %q", before)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"[1/3] ", "[2/3] ", "[3/3] ", "third"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q: %q", want, text)
		}
	}
	if strings.Contains(text, "> 3 of") || strings.Contains(text, " runs ") {
		t.Errorf("the table is left: %q", text)
	}
}

// TestBatchRows has batches at one moment.
func TestBatchRows(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		before, running int
		totals          batch.Totals
		width           int
		want            string
	}{
		"new": {0, 1, batch.Totals{Tasks: 5}, 80, `> 0 of 5 tasks · 2m0s in all
      task0                    runs   2m0s`},
		"half": {0, 2, batch.Totals{
			Tasks: 8, Passed: 3, Failed: 1, Usage: llm.Usage{Input: 1500}, CostUSD: 0.25,
		}, 110, "> 4 of 8 tasks · 1 not passed · 2 a minute · 2m0s left · 2m0s in all · 1.5k " +
			`tokens for $0.25
      task0                    runs   2m0s
      task1                    starts 2m0s, attempt 2`},
		"resumed": {
			90, 0,
			batch.Totals{Tasks: 100, Passed: 94},
			80,
			"> 94 of 100 tasks · 2 a minute · 3m0s left · 2m0s in all",
		},
		"all": {0, 0, batch.Totals{Tasks: 4, Passed: 4}, 80, "> 4 of 4 tasks · 2 a minute · 2m0s in all"},
		"narrow": {0, 1, batch.Totals{Tasks: 5}, 20, `> 0 of 5 tasks · 2m…
      task0        …`},
		"many": {0, 30, batch.Totals{Tasks: 50}, 80, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newBatchDisplay(io.Discard)
			defer d.close()
			d.mu.Lock()
			defer d.mu.Unlock()
			d.started, d.now = start, func() time.Time { return start.Add(2 * time.Minute) }
			d.before, d.totals = tt.before, tt.totals
			for i := range tt.running {
				d.running = append(d.running, runningTask{
					id: fmt.Sprintf("task%d", i), attempt: i + 1, since: start, open: i%2 == 0,
				})
			}
			rows := d.rows(tt.width)
			if tt.want == "" {
				last := rows[len(rows)-1]
				if len(rows) < 3 || last != fmt.Sprintf("      … and %d more", tt.running-len(rows)+2) {
					t.Errorf("%d rows, the last is %q", len(rows), last)
				}
				return
			}
			if got := strings.Join(rows, "\n"); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}
