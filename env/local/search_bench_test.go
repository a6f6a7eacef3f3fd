package local_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// searches are patterns that agents look for, with options of programs that say the same.
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

// BenchmarkGrep searches Go's sources, in this process and by programs that do nothing else, one after the other, and reports
// medians and their ratios.
func BenchmarkGrep(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("there is no go in PATH: ", err)
	}
	root := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	e, err := local.New(local.Config{Dir: root})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	programs := map[string][]string{
		"rg":  {"rg", "--no-config", "--hidden", "-n", "--no-heading", "--no-messages"},
		"gnu": {"grep", "-rnIE"},
	}
	for _, s := range searches {
		b.Run(s.name, func(b *testing.B) {
			times := map[string][]time.Duration{}
			for b.Loop() {
				start := time.Now()
				if _, err := env.Grep(b.Context(), e, env.GrepOptions{Pattern: s.pattern, IgnoreCase: s.ignoreCase, MaxMatches: -1}, func(env.GrepMatch) error { return nil }); err != nil {
					b.Fatal(err)
				}
				times["ours"] = append(times["ours"], time.Since(start))
				for name, argv := range programs {
					if _, err := exec.LookPath(argv[0]); err != nil {
						continue
					}
					argv = slices.Clone(argv)
					if s.ignoreCase {
						argv = append(argv, "-i")
					}
					pattern := s.pattern
					if name == "gnu" {
						pattern = strings.ReplaceAll(pattern, `\w`, "[[:alnum:]_]")
					}
					cmd := exec.Command(argv[0], append(argv[1:], "-e", pattern, ".")...)
					cmd.Dir = root
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
		})
	}
}
