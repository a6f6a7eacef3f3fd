package local_test

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// BenchmarkSandbox compares each kind of sandbox with none, in a repository: the start and the end
// of an environment, commands whose outputs are kept, and files of 1 KiB that are written and read.
// It reports medians and their ratios.
func BenchmarkSandbox(b *testing.B) {
	const commands = 20
	for _, by := range sandbox.Mechanisms() {
		b.Run(string(by), func(b *testing.B) {
			if err := sandbox.Available(by); err != nil {
				b.Skip(err)
			}
			times := map[string][]time.Duration{}
			for b.Loop() {
				for _, kind := range []string{"none", "sandbox"} {
					timed := func(what string, work func() error) {
						start := time.Now()
						if err := work(); err != nil {
							b.Fatal(err)
						}
						times[kind+" "+what] = append(times[kind+" "+what], time.Since(start))
					}
					cfg := local.Config{Dir: b.TempDir()}
					if out, err := exec.Command("git", "init", "-q", cfg.Dir).CombinedOutput(); err != nil {
						b.Fatalf("%v\n%s", err, out)
					}
					var e *local.SupervisedEnvironment
					timed("start", func() (err error) {
						if kind == "none" {
							e, err = local.Supervised(b.Context(), cfg, remote.Helper{})
						} else {
							e, err = local.SandboxedBy(b.Context(), cfg, remote.Helper{}, env.Sandbox{Require: true}, by)
						}
						return err
					})
					for range commands {
						timed("command", func() error {
							_, err := e.Exec(b.Context(), env.Command{
								Argv: []string{"true"}, Stdout: &bytes.Buffer{},
								Stderr: &bytes.Buffer{},
							})
							return err
						})
						timed("file", func() error {
							if _, err := e.WriteFile(b.Context(), "file", bytes.NewReader(make([]byte, 1024)),
								env.WriteOptions{}); err != nil {
								return err
							}
							_, err := env.ReadFile(b.Context(), e, "file", 1<<20)
							return err
						})
					}
					timed("end", e.Close)
				}
			}
			b.ReportMetric(0, "ns/op") // of all together, which means nothing
			for _, what := range []string{"start", "command", "file", "end"} {
				var median [2]time.Duration
				for i, kind := range []string{"none", "sandbox"} {
					all := times[kind+" "+what]
					slices.Sort(all)
					median[i] = all[len(all)/2]
				}
				b.ReportMetric(float64(median[1].Microseconds())/1000, what+"-ms")
				b.ReportMetric(float64(median[0].Microseconds())/1000, what+"-none-ms")
				b.ReportMetric(float64(median[1])/float64(median[0]), what+"-ratio")
			}
		})
	}
}
