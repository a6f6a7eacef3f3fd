package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// batchScript is a model that does a task with one command.
const batchScript = `turns:
  - calls: [{tool: shell, args: {command: echo done >out.txt}}]
  - text: done
`

// Scripts that run the command in their arguments for the tasks 1 to %d, each in a directory.
const (
	loopScript  = `for i in $(seq %d); do "$@" --workdir=$i --patch=$i.patch $i; done`
	xargsScript = `seq %d | xargs -P 8 -I{} "$@" --workdir={} --patch={}.patch {}`
)

// BenchmarkBatch is the time of tasks in a batch, one after the other and eight at a time, against
// that of a shell's loop over the command run, and of xargs -P 8.
func BenchmarkBatch(b *testing.B) {
	for _, on := range []struct {
		name    string
		tasks   int
		command func(b *testing.B) func(dir string, args ...string) *exec.Cmd
		flags   []string
	}{
		{"local", 32, func(b *testing.B) func(string, ...string) *exec.Cmd { return programIn(b) }, nil},
		{"docker", 16, func(b *testing.B) func(string, ...string) *exec.Cmd {
			d := sharedDocker(b)
			return func(dir string, args ...string) *exec.Cmd {
				return d.command(b, dir, newMark(), args...)
			}
		}, nil},
		{"k8s", 16, func(b *testing.B) func(string, ...string) *exec.Cmd {
			k := sharedKube(b)
			return func(dir string, args ...string) *exec.Cmd {
				return k.command(b, dir, newMark(), args...)
			}
		}, []string{"--image=" + daemons.Debian, "--helper-image=" + daemons.Helper}},
	} {
		b.Run(on.name, func(b *testing.B) {
			benchBatch(b, on.tasks, on.command(b), on.flags)
		})
	}
}

func benchBatch(
	b *testing.B, n int, command func(string, ...string) *exec.Cmd, flags []string,
) {
	dir := b.TempDir()
	writeTree(b, dir, map[string]string{"model.yaml": batchScript})
	flags = append([]string{"--yes", "-q", "--model=script:" + filepath.Join(dir, "model.yaml")},
		flags...)
	workdir := func() string { return b.TempDir() }
	runs := func(script string) error {
		dir := b.TempDir()
		for i := range n {
			if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i+1)), 0o700); err != nil {
				return err
			}
		}
		run := command(dir, append([]string{"run"}, flags...)...)
		cmd := exec.CommandContext(b.Context(), "sh", append([]string{
			"-ec", fmt.Sprintf(script, n), "sh", run.Path,
		}, run.Args[1:]...)...)
		cmd.Dir, cmd.Env = dir, run.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if patches, err := filepath.Glob(filepath.Join(dir, "*.patch")); len(patches) != n {
			return fmt.Errorf("%d patches of %d tasks: %w", len(patches), n, err)
		}
		return nil
	}
	batch := func(parallel int) error {
		dir := b.TempDir()
		writeTasks(b, dir, n, func(int) string { return fmt.Sprintf(`"workdir":%q`, workdir()) })
		cmd := command(dir, append([]string{
			"batch", fmt.Sprintf("--parallel=%d", parallel), fmt.Sprintf("--starting=%d", parallel),
			"tasks.jsonl",
		}, flags...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	var loop, xargs, one, eight bench.Samples
	for b.Loop() {
		loop.Time(b, func() error { return runs(loopScript) })
		one.Time(b, func() error { return batch(1) })
		xargs.Time(b, func() error { return runs(xargsScript) })
		eight.Time(b, func() error { return batch(8) })
	}
	b.ReportMetric(0, "ns/op")
	perMinute := func(s bench.Samples) float64 {
		return float64(n) / s.Percentile(50).Minutes()
	}
	b.ReportMetric(perMinute(loop), "loop/min")
	b.ReportMetric(perMinute(one), "batch-1/min")
	b.ReportMetric(perMinute(xargs), "xargs-8/min")
	b.ReportMetric(perMinute(eight), "batch-8/min")
	b.ReportMetric(bench.Ratio(loop, one), "loop-x")
	b.ReportMetric(bench.Ratio(xargs, eight), "xargs-x")
	above := (one.Percentile(50) - loop.Percentile(50)) / time.Duration(n)
	b.ReportMetric(bench.Milliseconds(above), "above-run-ms")
}
