package portable_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// BenchmarkShells measures the operations of an environment over each shell, and a command of package os/exec in the same
// run. It reports medians.
func BenchmarkShells(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			e := k.open(b, nil)
			content := strings.Repeat("0123456789abcde\n", 64)
			operations := []struct {
				name string
				run  func() error
			}{
				{"os/exec", func() error {
					c := exec.CommandContext(b.Context(), "true")
					c.Stdout, c.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
					return c.Run()
				}},
				{"exec", func() error {
					_, err := e.Exec(b.Context(), env.Command{Argv: []string{"true"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
					return err
				}},
				{"discard", func() error {
					_, err := e.Exec(b.Context(), env.Command{Argv: []string{"true"}})
					return err
				}},
				{"write1K", func() error {
					_, err := e.WriteFile(b.Context(), "file", strings.NewReader(content), env.WriteOptions{})
					return err
				}},
				{"read1K", func() error {
					_, err := env.ReadFile(b.Context(), e, "file", 0)
					return err
				}},
				{"stat", func() error {
					_, err := e.Stat(b.Context(), "file")
					return err
				}},
			}
			took := make([][]time.Duration, len(operations))
			for b.Loop() {
				for i, o := range operations {
					start := time.Now()
					if err := o.run(); err != nil {
						b.Fatal(o.name, err)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			b.ReportMetric(0, "ns/op") // of all together, which means nothing
			for i, o := range operations {
				slices.Sort(took[i])
				b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), o.name+"-µs")
			}
		})
	}
}
