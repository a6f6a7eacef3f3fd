package k8s_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// burst is how often ours is timed in a row for each call of kubectl.
const burst = 20

// bare starts a pod that sleeps until the end of the benchmark, and returns a function that runs
// kubectl.
func bare(b *testing.B, cluster *k8s.Cluster) (name string, kubectl func(args ...string) error) {
	b.Helper()
	name = fmt.Sprintf("bare-%x", rand.Uint32())
	remove, err := k8s.StartBare(b.Context(), cluster, name, daemons.Debian)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = remove() })
	return name, func(args ...string) error {
		_, err := daemons.Kubectl(b.Context(), daemons.Kubeconfig(b), "",
			append([]string{"-n", namespace}, args...)...)
		return err
	}
}

// BenchmarkExec times a command against kubectl exec, in the same run.
func BenchmarkExec(b *testing.B) {
	cluster := connect(b)
	e := open(b, cluster, k8s.Config{CPUs: 1})
	name, kubectl := bare(b, cluster)
	var ours, native bench.Samples
	for b.Loop() {
		for range burst {
			ours.Time(b, func() error {
				_, err := e.Exec(b.Context(), command("/bin/true"))
				return err
			})
		}
		native.Time(b, func() error { return kubectl("exec", name, "--", "/bin/true") })
	}
	bench.Compare(b, ours, map[string]bench.Samples{"kubectl-exec": native})
}

// BenchmarkFile times a file of 1 KiB, written and read, against kubectl cp.
func BenchmarkFile(b *testing.B) {
	cluster := connect(b)
	e := open(b, cluster, k8s.Config{CPUs: 1})
	name, kubectl := bare(b, cluster)
	content := strings.Repeat("x", 1024)
	file := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
	var write, read, copyIn, copyOut bench.Samples
	for b.Loop() {
		for range burst {
			write.Time(b, func() error {
				_, err := e.WriteFile(b.Context(), "file", strings.NewReader(content), env.WriteOptions{})
				return err
			})
			read.Time(b, func() error {
				data, err := env.ReadFile(b.Context(), e, "file", 0)
				if err == nil && !bytes.Equal(data, []byte(content)) {
					err = fmt.Errorf("%d bytes", len(data))
				}
				return err
			})
		}
		copyIn.Time(b, func() error { return kubectl("cp", file, name+":/tmp/file") })
		copyOut.Time(b, func() error { return kubectl("cp", name+":/tmp/file", file) })
	}
	b.ReportMetric(0, "ns/op")
	write.Report(b, "write", 1e6, "ms")
	read.Report(b, "read", 1e6, "ms")
	b.ReportMetric(bench.Ratio(copyIn, write), "kubectl-cp-write-x")
	b.ReportMetric(bench.Ratio(copyOut, read), "kubectl-cp-read-x")
}

// BenchmarkReady times an environment, with its helper, until it is ready, against a bare pod. A
// kubelet looks at its containers once a second, so each start has another distance from that.
func BenchmarkReady(b *testing.B) {
	cluster := connect(b)
	configs := map[string]k8s.Config{
		"sent": {CPUs: 1}, "image": {CPUs: 1, HelperImage: daemons.Helper},
	}
	samples := make(map[string]bench.Samples)
	var plain bench.Samples
	for b.Loop() {
		for name, c := range configs {
			s := samples[name]
			var e *k8s.Environment
			time.Sleep(rand.N(time.Second))
			s.Time(b, func() (err error) {
				e, err = cluster.Open(b.Context(), config(b, c))
				return err
			})
			samples[name] = s
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		}
		var remove func() error
		time.Sleep(rand.N(time.Second))
		plain.Time(b, func() (err error) {
			name := fmt.Sprintf("bare-%x", rand.Uint32())
			remove, err = k8s.StartBare(b.Context(), cluster, name, daemons.Debian)
			return err
		})
		if err := remove(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	plain.Report(b, "bare", 1e6, "ms")
	for name, s := range samples {
		s.Report(b, "helper-"+name, 1e6, "ms")
		b.ReportMetric(bench.Ratio(s, plain), "helper-"+name+"-x")
	}
}
