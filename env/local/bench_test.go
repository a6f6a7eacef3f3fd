package local_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// BenchmarkExec compares Exec with what package os/exec needs for the same command in the same run.
// It reports the medians, their ratio and their difference.
func BenchmarkExec(b *testing.B) {
	needUnix(b)
	program, err := exec.LookPath("true")
	if err != nil {
		b.Skip("true is not installed")
	}
	for _, bm := range []struct {
		name   string
		output bool
	}{{"discarded", false}, {"captured", true}} {
		b.Run(bm.name, func(b *testing.B) {
			e := newEnv(b, local.Config{})
			var ours, theirs []time.Duration
			for b.Loop() {
				start := time.Now()
				c := exec.CommandContext(b.Context(), program)
				if bm.output {
					c.Stdout, c.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
				}
				if err := c.Run(); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				cmd := env.Command{Argv: []string{program}}
				if bm.output {
					cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
				}
				if _, err := e.Exec(b.Context(), cmd); err != nil {
					b.Fatal(err)
				}
				theirs = append(theirs, middle.Sub(start))
				ours = append(ours, time.Since(middle))
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			p50, base := ours[len(ours)/2], theirs[len(theirs)/2]
			b.ReportMetric(0, "ns/op") // of both together, which means nothing
			b.ReportMetric(float64(p50.Microseconds()), "exec-µs")
			b.ReportMetric(float64(base.Microseconds()), "os/exec-µs")
			b.ReportMetric(float64(p50)/float64(base), "ratio")
			b.ReportMetric(float64((p50 - base).Microseconds()), "above-µs")
		})
	}
}

// BenchmarkOutput measures how fast output comes through.
func BenchmarkOutput(b *testing.B) {
	needUnix(b)
	e := newEnv(b, local.Config{})
	const size = 256 << 20
	b.SetBytes(size)
	for b.Loop() {
		cmd := env.Command{
			Argv:   []string{"head", "-c", "268435456", "/dev/zero"},
			Stdout: writerFunc(io.Discard.Write),
		}
		if _, err := e.Exec(b.Context(), cmd); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteFile measures the replacement of a small file, and what the file system needs for
// that alone.
func BenchmarkWriteFile(b *testing.B) {
	content := strings.Repeat("x", 1024)
	b.Run("local", func(b *testing.B) {
		e := newEnv(b, local.Config{})
		for b.Loop() {
			if _, err := e.WriteFile(b.Context(), "f", strings.NewReader(content),
				env.WriteOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			if err := os.WriteFile(dir+"/t", []byte(content), 0o600); err != nil {
				b.Fatal(err)
			}
			if err := os.Rename(dir+"/t", dir+"/f"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKillTree measures how long a tree of 100 processes takes to die.
func BenchmarkKillTree(b *testing.B) {
	needUnix(b)
	e := newEnv(b, local.Config{})
	var dying time.Duration
	for b.Loop() {
		cmd := sh(`i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait`)
		cmd.Timeout = 500 * time.Millisecond
		start := time.Now()
		if r, err := e.Exec(b.Context(), cmd); err != nil || !r.TimedOut {
			b.Fatal(r, err)
		}
		dying += time.Since(start) - cmd.Timeout
	}
	b.ReportMetric(float64(dying.Milliseconds())/float64(b.N), "ms/kill")
}
