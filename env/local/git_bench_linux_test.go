package local_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// BenchmarkSandboxGit compares git in a repository of 10,000 files in a sandbox, writable and
// read-only, with git outside of one. It reports medians and their ratios.
func BenchmarkSandboxGit(b *testing.B) {
	if err := sandbox.Available(sandbox.Bubblewrap); err != nil {
		b.Skip(err)
	}
	dir := b.TempDir()
	script := func(e env.Environment, text string) time.Duration {
		start := time.Now()
		out, res, err := env.Output(b.Context(), e, env.Command{
			Argv: []string{"sh", "-ec", text}, Dir: dir,
		}, env.OutputOptions{})
		if err != nil || res.ExitCode != 0 {
			b.Fatalf("%s: %v, exit code %d, %s", text, err, res.ExitCode, out.Stderr.Bytes())
		}
		return time.Since(start)
	}
	open := func(mode string) *local.SupervisedEnvironment {
		cfg := local.Config{Dir: dir, Vars: []string{"GIT_CONFIG_GLOBAL=/dev/null"}}
		var e *local.SupervisedEnvironment
		var err error
		if mode == "none" {
			e, err = local.Supervised(b.Context(), cfg, remote.Helper{})
		} else {
			e, err = local.SandboxedBy(b.Context(), cfg, remote.Helper{},
				env.Sandbox{Require: true, GitReadOnly: mode == "ro"}, sandbox.Bubblewrap)
		}
		if err != nil {
			b.Fatal(err)
		}
		return e
	}
	const commit = `git -c user.name=a -c user.email=a@b -c gc.auto=0 commit -q -m x`
	outside := open("none")
	defer outside.Close() //nolint:errcheck // a benchmark
	script(outside, `git init -q .; for d in $(seq 100); do mkdir d$d; for f in $(seq 100); do `+
		`echo "$d $f" >d$d/f$f; done; done; git add .; `+commit)
	times := map[string][]time.Duration{}
	n := 0
	for b.Loop() {
		for _, mode := range []string{"none", "rw", "ro"} {
			e := outside
			if mode != "none" {
				e = open(mode)
			}
			n++
			work := map[string]string{"status": `git status --porcelain >/dev/null`}
			if mode != "ro" {
				work["add"] = fmt.Sprintf(`for d in $(seq 100); do echo %d >d$d/f1; done; git add .`, n)
				work["commit"] = commit
			}
			for _, what := range []string{"status", "add", "commit"} {
				if text, ok := work[what]; ok {
					times[mode+" "+what] = append(times[mode+" "+what], script(e, text))
				}
			}
			if mode != "none" {
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all together, which means nothing
	median := func(key string) time.Duration {
		all := times[key]
		slices.Sort(all)
		return all[len(all)/2]
	}
	for key := range times {
		mode, what, _ := strings.Cut(key, " ")
		b.ReportMetric(float64(median(key).Microseconds())/1000, what+"-"+mode+"-ms")
		if mode != "none" {
			b.ReportMetric(float64(median(key))/float64(median("none "+what)), what+"-"+mode+"-ratio")
		}
	}
}
