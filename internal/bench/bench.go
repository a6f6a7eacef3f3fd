// Package bench compares times in benchmarks.
package bench

import (
	"slices"
	"testing"
	"time"
)

// Samples are times of one thing.
type Samples []time.Duration

// Time calls f and adds how long it took. An error ends the benchmark.
func (s *Samples) Time(b *testing.B, f func() error) {
	b.Helper()
	started := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	*s = append(*s, time.Since(started))
}

// Percentile returns the time that percent of the samples do not exceed; 0 without samples.
func (s Samples) Percentile(percent int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[min(len(s)*percent/100, len(s)-1)]
}

// Report prints the median and the 95th percentile in the unit of the name suffix.
func (s Samples) Report(b *testing.B, name string, unit time.Duration, suffix string) {
	b.ReportMetric(float64(s.Percentile(50))/float64(unit), name+"-p50-"+suffix)
	b.ReportMetric(float64(s.Percentile(95))/float64(unit), name+"-p95-"+suffix)
}

// Compare prints the median and the 95th percentile of ours, and the medians of others with their
// ratios to ours.
func Compare(b *testing.B, ours Samples, others map[string]Samples) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	ours.Report(b, "ours", time.Millisecond, "ms")
	for name, s := range others {
		b.ReportMetric(Milliseconds(s.Percentile(50)), name+"-p50-ms")
		b.ReportMetric(Ratio(s, ours), name+"-x")
	}
}

// Milliseconds returns d in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Ratio returns how many times the median of s is that of other.
func Ratio(s, other Samples) float64 {
	return float64(s.Percentile(50)) / float64(other.Percentile(50))
}
