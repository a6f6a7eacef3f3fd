package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkPlan plans a sandbox for the homes, mounts and sockets of this machine. It reports the
// time of the processor, which other work on the machine affects less.
func BenchmarkPlan(b *testing.B) {
	for _, by := range Mechanisms() {
		b.Run(string(by), func(b *testing.B) {
			if err := Available(by); err != nil {
				b.Skip(err)
			}
			policy := Policy{Dir: b.TempDir()}
			spent := func() int64 {
				var usage unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
					b.Fatal(err)
				}
				return usage.Utime.Nano() + usage.Stime.Nano()
			}
			start := spent()
			for b.Loop() {
				p, err := New(policy, by, HomeDirs(), os.Getenv)
				if err != nil {
					b.Fatal(err)
				}
				p.unlock()
			}
			b.ReportMetric(float64(spent()-start)/float64(b.N)/1e3, "cpu-µs/op")
		})
	}
}
