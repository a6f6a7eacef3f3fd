package search_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// searches are patterns that agents use.
var searches = []struct {
	name, pattern string
	ignoreCase    bool
}{
	{"literal", `ErrUnexpectedEOF`, false},
	{"nothing", `zzqqyy`, false},
	{"inner", `func \w+Error\(`, false},
	{"alternatives", `ErrNotExist|ErrPermission|ErrClosed`, false},
	{"case", `unexpectedeof`, true},
	{"classes", `[A-Z]{4}[0-9]{4}`, false},
}

// programs returns the command lines that search the working directory, without the pattern. GOROOT
// is no repository.
func programs(goroot bool) map[string][]string {
	git := []string{"git", "grep", "-nIE"}
	if goroot {
		git = []string{"git", "grep", "--no-index", "-nIE"}
	}
	return map[string][]string{
		"rg":  {"rg", "--no-config", "--hidden", "-n", "--no-heading", "--no-messages"},
		"git": git,
		"gnu": {"grep", "-rnIE", "--exclude-dir=.git"},
	}
}

// BenchmarkGrep searches Go's sources and this repository, in this process and by programs that do
// nothing else, one after the other, and reports medians and their ratios.
func BenchmarkGrep(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("go is not in PATH: ", err)
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		b.Skip("not a checkout: ", err)
	}
	for _, tree := range []struct {
		name, dir string
		programs  map[string][]string
	}{
		{"goroot", filepath.Join(strings.TrimSpace(string(goroot)), "src"), programs(true)},
		{"checkout", strings.TrimSpace(string(top)), programs(false)},
	} {
		e, err := local.New(local.Config{Dir: tree.dir})
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range searches {
			b.Run(tree.name+"/"+s.name, func(b *testing.B) {
				compareGrep(b, e, search.GrepOptions{
					Pattern: s.pattern, IgnoreCase: s.ignoreCase,
					MaxMatches: -1,
				}, tree.dir, tree.programs)
			})
		}
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}
}

func compareGrep(
	b *testing.B, e env.Environment, opts search.GrepOptions, dir string, programs map[string][]string,
) {
	b.Helper()
	times := map[string][]time.Duration{}
	for b.Loop() {
		start := time.Now()
		if _, err := search.Grep(b.Context(), e, opts,
			func(search.GrepMatch) error { return nil }); err != nil {
			b.Fatal(err)
		}
		times["ours"] = append(times["ours"], time.Since(start))
		for name, argv := range programs {
			if _, err := exec.LookPath(argv[0]); err != nil {
				continue
			}
			argv, pattern := slices.Clone(argv), opts.Pattern
			if opts.IgnoreCase {
				argv = append(argv, "-i")
			}
			if name != "rg" {
				pattern = strings.ReplaceAll(pattern, `\w`, "[[:alnum:]_]")
			}
			cmd := exec.Command(argv[0], append(argv[1:], "-e", pattern, "--", ".")...)
			cmd.Dir = dir
			start := time.Now()
			err := cmd.Run()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 1) {
				b.Fatal(name, err)
			}
			times[name] = append(times[name], time.Since(start))
		}
	}
	median := func(name string) float64 {
		all := slices.Sorted(slices.Values(times[name]))
		return float64(all[len(all)/2]) / float64(time.Millisecond)
	}
	b.ReportMetric(median("ours"), "ms")
	b.ReportMetric(0, "ns/op")
	for name := range programs {
		if len(times[name]) > 0 {
			b.ReportMetric(median(name), name+"-ms")
			b.ReportMetric(median("ours")/median(name), "x-of-"+name)
		}
	}
}

// BenchmarkGrepCancel reports the time from the cancellation of a long search to its end.
func BenchmarkGrepCancel(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("go is not in PATH: ", err)
	}
	e, err := local.New(local.Config{Dir: filepath.Join(strings.TrimSpace(string(goroot)), "src")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	var all []time.Duration
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		var at time.Time
		timer := time.AfterFunc(100*time.Millisecond, func() { at = time.Now(); cancel() })
		_, err := search.Grep(ctx, e, search.GrepOptions{
			Pattern:    `(?:[a-z]{1,30}){1,30}[0-9]{9}`,
			MaxMatches: -1, MaxTime: -1,
		}, func(search.GrepMatch) error { return nil })
		if !errors.Is(err, context.Canceled) {
			b.Fatal("error is ", err)
		}
		all = append(all, time.Since(at))
		timer.Stop()
	}
	slices.Sort(all)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(all[len(all)/2])/float64(time.Millisecond), "p50-ms")
	b.ReportMetric(float64(all[len(all)-1])/float64(time.Millisecond), "most-ms")
}
