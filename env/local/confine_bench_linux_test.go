package local_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// BenchmarkConfine compares a confined command with the same command unconfined in the same run. It
// reports the medians, their ratio and their difference.
func BenchmarkConfine(b *testing.B) {
	program, err := exec.LookPath("true")
	if err != nil {
		b.Skip("true is not installed")
	}
	for name, confine := range map[string]env.Confinement{
		"write": {Write: []string{"."}}, "hide": {Write: []string{"."}, Hide: "."},
	} {
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, local.Config{})
			if e.Info().Strength(env.ConfinedCommands) == env.Absent {
				b.Skip("commands cannot be confined here")
			}
			run := func(c *env.Confinement) time.Duration {
				start := time.Now()
				cmd := env.Command{Argv: []string{program}, Confine: c}
				if _, err := e.Exec(b.Context(), cmd); err != nil {
					b.Fatal(err)
				}
				return time.Since(start)
			}
			run(&confine) // which makes the directory for temporary files
			var free, confined []time.Duration
			for b.Loop() {
				free, confined = append(free, run(nil)), append(confined, run(&confine))
			}
			slices.Sort(free)
			slices.Sort(confined)
			p50, base := confined[len(confined)/2], free[len(free)/2]
			b.ReportMetric(0, "ns/op") // of both together, which means nothing
			b.ReportMetric(float64(p50.Microseconds()), "confined-µs")
			b.ReportMetric(float64(base.Microseconds()), "free-µs")
			b.ReportMetric(float64(p50)/float64(base), "ratio")
			b.ReportMetric(float64((p50 - base).Microseconds()), "above-µs")
		})
	}
}
