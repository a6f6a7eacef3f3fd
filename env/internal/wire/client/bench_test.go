package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// bulk is how much the benchmarks of throughput move.
const bulk = 100 << 20

// both returns the environment of this machine, alone and over a pipe, in one directory.
func both(b *testing.B) (alone, piped env.Environment, dir string) {
	b.Helper()
	if runtime.GOOS == "windows" {
		b.Skip("the commands of the benchmarks are those of Unix")
	}
	dir = b.TempDir()
	alone, err := local.New(local.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := alone.Close(); err != nil {
			b.Error(err)
		}
	})
	return alone, serveLocal(b, dir, nil).open(b, nil), dir
}

// timed returns how long f takes.
func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// compare reports the medians of one operation done by each of several, of which the last is the
// wire.
func compare(b *testing.B, names []string, ops ...func() error) {
	b.Helper()
	times := make([][]time.Duration, len(ops))
	for b.Loop() {
		for i, op := range ops {
			times[i] = append(times[i], timed(b, op))
		}
	}
	b.ReportMetric(0, "ns/op") // of all together, which means nothing
	wire := median(times[len(ops)-1])
	b.ReportMetric(float64(wire.Nanoseconds())/1e3, "wire-µs")
	for i, name := range names {
		other := median(times[i])
		b.ReportMetric(float64(other.Nanoseconds())/1e3, name+"-µs")
		b.ReportMetric(float64(wire)/float64(other), "ratio-to-"+name)
	}
}

// BenchmarkRoundTrips compares small operations over a pipe with the same ones of this machine in
// the same run.
func BenchmarkRoundTrips(b *testing.B) {
	alone, piped, dir := both(b)
	ctx := context.Background()
	program, err := exec.LookPath("true")
	if err != nil {
		b.Skip("no program true in PATH")
	}
	content := strings.Repeat("x", 1<<10)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
	each := func(op func(env.Environment) error) []func() error {
		return []func() error{func() error { return op(alone) }, func() error { return op(piped) }}
	}
	b.Run("exec", func(b *testing.B) {
		run := func(e env.Environment) error {
			_, err := e.Exec(ctx, env.Command{
				Argv: []string{program}, Stdout: &bytes.Buffer{},
				Stderr: &bytes.Buffer{},
			})
			return err
		}
		compare(b, []string{"os/exec", "local"}, slices.Insert(each(run), 0, func() error {
			cmd := exec.CommandContext(ctx, program)
			cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
			return cmd.Run()
		})...)
	})
	b.Run("stat", func(b *testing.B) {
		compare(b, []string{"local"}, each(func(e env.Environment) error {
			_, err := e.Stat(ctx, "f")
			return err
		})...)
	})
	b.Run("read", func(b *testing.B) {
		compare(b, []string{"local"}, each(func(e env.Environment) error {
			_, err := env.ReadFile(ctx, e, "f", 1<<20)
			return err
		})...)
	})
	b.Run("write", func(b *testing.B) {
		compare(b, []string{"local"}, each(func(e env.Environment) error {
			_, err := e.WriteFile(ctx, "w", strings.NewReader(content), env.WriteOptions{})
			return err
		})...)
	})
	b.Run("64 commands at once", func(b *testing.B) {
		compare(b, []string{"local"}, each(func(e env.Environment) error {
			errs := make([]error, 64)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { _, errs[i] = e.Exec(ctx, env.Command{Argv: []string{program}}) })
			}
			wg.Wait()
			return errors.Join(errs...)
		})...)
	})
}

// zeros gives zeros, and not for ever.
func zeros() io.Reader { return io.LimitReader(zeroReader{}, bulk) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// BenchmarkBulk compares how 100 MiB move.
func BenchmarkBulk(b *testing.B) {
	alone, piped, dir := both(b)
	ctx := context.Background()
	f, err := os.Create(filepath.Join(dir, "bulk"))
	if err == nil {
		_, err = io.Copy(f, zeros())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name string
		op   func(env.Environment) error
	}{
		{"stdout", func(e env.Environment) error {
			_, err := e.Exec(ctx, env.Command{
				Argv:   []string{"head", "-c", "104857600", "/dev/zero"},
				Stdout: io.Discard,
			})
			return err
		}},
		{"stdin", func(e env.Environment) error {
			_, err := e.Exec(ctx, env.Command{Argv: []string{"sh", "-c", "cat >/dev/null"}, Stdin: zeros()})
			return err
		}},
		{"upload", func(e env.Environment) error {
			_, err := e.WriteFile(ctx, "copy", zeros(), env.WriteOptions{})
			return err
		}},
		{"download", func(e env.Environment) error {
			f, err := e.Open(ctx, "bulk")
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, f)
			return errors.Join(err, f.Close())
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var local, wire []time.Duration
			for b.Loop() {
				local = append(local, timed(b, func() error { return bm.op(alone) }))
				wire = append(wire, timed(b, func() error { return bm.op(piped) }))
			}
			b.ReportMetric(0, "ns/op") // of both together, which means nothing
			b.ReportMetric(bulk>>20/median(local).Seconds(), "local-MiB/s")
			b.ReportMetric(bulk>>20/median(wire).Seconds(), "wire-MiB/s")
		})
	}
}
