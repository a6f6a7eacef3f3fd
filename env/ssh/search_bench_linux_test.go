package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	envsearch "github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// BenchmarkSearch compares with ripgrep by the program ssh, on a live connection, on loopback and
// at a round trip of 20 ms.
func BenchmarkSearch(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("needs go in PATH: ", err)
	}
	source := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	for _, trip := range []time.Duration{0, 20 * time.Millisecond} {
		s := daemons.NewSSHD(b, daemons.SSHDConfig{})
		address := slowly(b, s.Address(), trip/2)
		n := newNative(b, s, address)
		t := target(b, s)
		t.Host, t.KnownHosts = s.User()+"@"+address, knownAs(b, s, address)
		h := connect(b, t)
		b.Run(fmt.Sprintf("trip=%s", trip), func(b *testing.B) {
			e := open(b, h, ssh.Config{WorkDir: source})
			for _, pattern := range []string{`ErrUnexpectedEOF`, `func \w+Error\(`, `(?i)unexpectedeof`} {
				b.Run("grep_"+pattern, func(b *testing.B) {
					rg := "{ rg --no-config --hidden -n --no-heading -e '" + pattern + "' . || [ $? = 1 ]; }"
					search(b, n, trip, "cd "+source+" && "+rg, func() error {
						o := envsearch.GrepOptions{Pattern: pattern, MaxMatches: -1}
						_, err := envsearch.Grep(b.Context(), e, o, ignore)
						return err
					})
				})
			}
			b.Run("cancel", func(b *testing.B) { measureCancel(b, e, source) })
			b.Run("glob", func(b *testing.B) {
				const glob = "**/*_test.go"
				rg := "rg --no-config --hidden --files --sortr modified -g '" + glob + "'"
				search(b, n, trip, "cd "+source+" && "+rg, func() error {
					_, err := envsearch.Glob(b.Context(), e, envsearch.GlobOptions{Pattern: glob})
					return err
				})
			})
		})
	}
}

func ignore(envsearch.GrepMatch) error { return nil }

// search compares one search with a command by ssh.
func search(b *testing.B, n *native, trip time.Duration, command string, fn func() error) {
	b.Helper()
	var ours, others, trips bench.Samples
	bare := echo(b, trip/2)
	for b.Loop() {
		trips.Time(b, bare)
		ours.Time(b, fn)
		others.Time(b, func() error { return n.run(command) })
	}
	report(b, ours, trips, nil, map[string]bench.Samples{"rg": others})
}

// measureCancel reports how long a search of seconds continues after it was cancelled.
func measureCancel(b *testing.B, e *ssh.Environment, dir string) {
	b.Helper()
	var all bench.Samples
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		var at time.Time
		timer := time.AfterFunc(300*time.Millisecond, func() { at = time.Now(); cancel() })
		_, err := envsearch.Grep(ctx, e, envsearch.GrepOptions{
			Path: dir, Pattern: `(?:[a-z]{1,30}){1,30}[0-9]{9}`, MaxMatches: -1, MaxTime: -1,
		}, ignore)
		if !errors.Is(err, context.Canceled) {
			b.Fatal("a cancelled search: ", err)
		}
		all = append(all, time.Since(at))
		timer.Stop()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bench.Milliseconds(all.Percentile(50)), "p50-ms")
	b.ReportMetric(bench.Milliseconds(all.Percentile(100)), "most-ms")
}
