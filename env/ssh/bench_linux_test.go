package ssh_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

// report adds to bench.Compare the difference of ours to a bare round trip and, with work, to both
// together.
func report(b *testing.B, ours, trips, work bench.Samples, others map[string]bench.Samples) {
	b.Helper()
	bench.Compare(b, ours, others)
	above := ours.Percentile(50) - trips.Percentile(50)
	b.ReportMetric(bench.Milliseconds(trips.Percentile(50)), "trip-p50-ms")
	b.ReportMetric(bench.Milliseconds(above), "ours-above-trip-ms")
	if len(work) > 0 {
		b.ReportMetric(bench.Milliseconds(work.Percentile(50)), "work-p50-ms")
		b.ReportMetric(bench.Milliseconds(above-work.Percentile(50)), "ours-above-both-ms")
	}
}

// native uses a host with the programs ssh and sftp, over one lasting connection (ControlMaster).
type native struct {
	config string
	sftp   *exec.Cmd
	in     io.Writer
	out    *bufio.Reader
}

// newNative connects.
func newNative(b *testing.B, s *daemons.SSHD, address string) *native {
	b.Helper()
	host, port, _ := strings.Cut(address, ":")
	dir := s.MakeDir(b) // its name is short enough for a socket
	n := &native{config: filepath.Join(dir, "config")}
	lines := fmt.Sprintf("Host h\nHostName %s\nPort %s\nUser %s\nIdentityFile %s\nIdentitiesOnly "+
		"yes\nIdentityAgent none\nStrictHostKeyChecking no\n"+
		"UserKnownHostsFile /dev/null\nLogLevel ERROR\nControlMaster auto\nControlPersist "+
		"300\nControlPath %s/mux\n", host, port, s.User(), s.Key(), dir)
	if err := os.WriteFile(n.config, []byte(lines), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := n.run("true"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = exec.Command("ssh", "-F", n.config, "-O", "exit", "h").Run() })
	n.sftp = exec.Command("sftp", "-q", "-F", n.config, "h")
	in, err := n.sftp.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := n.sftp.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := n.sftp.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = n.sftp.Wait()
	})
	n.in, n.out = in, bufio.NewReader(out)
	return n
}

// run runs a command by the program ssh.
func (n *native) run(command string) error {
	return exec.Command("ssh", "-F", n.config, "h", command).Run()
}

// transfer sends a command to the running program sftp, and waits for its end.
func (n *native) transfer(command string) error {
	mark := fmt.Sprint("mark", time.Now().UnixNano())
	if _, err := fmt.Fprintf(n.in, "%s\n!echo %s\n", command, mark); err != nil {
		return err
	}
	for {
		line, err := n.out.ReadString('\n')
		if err != nil || strings.HasPrefix(line, mark) {
			return err
		}
	}
}

// slowly returns the address of a proxy for an address that adds delay in each direction.
func slowly(b *testing.B, address string, delay time.Duration) string {
	b.Helper()
	if delay == 0 {
		return address
	}
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil),
		zerolog.New(io.Discard)), "slow", "127.0.0.1:0", address)
	if err := proxy.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(proxy.Stop)
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":"%s","type":"latency","stream":"%s","toxicity":1,`+
			`"attributes":{"latency":%d}}`, stream, stream, delay.Milliseconds())
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
	return proxy.Listen
}

// BenchmarkOperations compares with the programs ssh and sftp on a live connection, on loopback and
// at a round trip of 20 ms.
func BenchmarkOperations(b *testing.B) {
	for _, trip := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("trip=%s", trip), func(b *testing.B) {
			s := daemons.NewSSHD(b, daemons.SSHDConfig{})
			address := slowly(b, s.Address(), trip/2)
			n := newNative(b, s, address)
			known, dir := knownAs(b, s, address), b.TempDir()
			t := target(b, s)
			t.Host, t.KnownHosts = s.User()+"@"+address, known
			h := connect(b, t)
			operations(b, open(b, h, ssh.Config{WorkDir: dir}), n, dir, trip)
		})
	}
}

// echo returns a function that sends a byte over a connection with delay, and waits for its echo.
func echo(b *testing.B, delay time.Duration) func() error {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	c, err := net.Dial("tcp", slowly(b, l.Addr().String(), delay))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	one := make([]byte, 1)
	return func() error {
		_, err := c.Write(one)
		if err == nil {
			_, err = io.ReadFull(c, one)
		}
		return err
	}
}

func operations(b *testing.B, e *ssh.Environment, n *native, dir string, trip time.Duration) {
	type operation struct {
		name         string
		ours, native func() error
		work         func() error // the work of the host
	}
	all := []operation{{
		"exec",
		func() error { _, err := e.Exec(b.Context(), command("/bin/true")); return err },
		func() error { return n.run("true") },
		func() error { return exec.Command("/bin/true").Run() },
	}}
	local := filepath.Join(b.TempDir(), "f")
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KiB", 1 << 10}, {"16MiB", 16 << 20}} {
		data, file := bytes.Repeat([]byte("x"), size.bytes), filepath.Join(dir, size.name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			b.Fatal(err)
		}
		all = append(all, operation{
			"read_" + size.name,
			func() error { _, err := env.ReadFile(b.Context(), e, size.name, 32<<20); return err },
			func() error { return n.transfer("get " + file + " " + local) },
			func() error { _, err := os.ReadFile(file); return err },
		}, operation{
			"write_" + size.name,
			func() error { return write(b.Context(), e, "written", data) },
			func() error { return n.transfer("put " + file + " " + dir + "/written2") },
			func() error { return replace(dir, data) },
		})
	}
	for _, tt := range all {
		b.Run(tt.name, func(b *testing.B) {
			var ours, others, trips, work bench.Samples
			bare := echo(b, trip/2)
			for b.Loop() {
				trips.Time(b, bare)
				work.Time(b, tt.work)
				ours.Time(b, tt.ours)
				others.Time(b, tt.native)
			}
			report(b, ours, trips, work, map[string]bench.Samples{"native": others})
		})
	}
}

func write(ctx context.Context, e env.Environment, name string, data []byte) error {
	_, err := e.WriteFile(ctx, name, bytes.NewReader(data), env.WriteOptions{})
	return err
}

// replace replaces a file by rename, as the helper does.
func replace(dir string, data []byte) error {
	next := filepath.Join(dir, "next")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "replaced"))
}

// knownAs returns a known_hosts file with a server under another address.
func knownAs(b *testing.B, s *daemons.SSHD, address string) string {
	b.Helper()
	host, port, _ := strings.Cut(address, ":")
	name := filepath.Join(b.TempDir(), "known")
	line := fmt.Appendf(nil, "[%s]:%s %s\n", host, port, s.HostKey())
	if err := os.WriteFile(name, line, 0o600); err != nil {
		b.Fatal(err)
	}
	return name
}

// BenchmarkOpen compares opening an environment on a live connection with a command by ssh.
func BenchmarkOpen(b *testing.B) {
	s := daemons.NewSSHD(b, daemons.SSHDConfig{})
	n := newNative(b, s, s.Address())
	h := connect(b, target(b, s))
	var ours, first, others bench.Samples
	for b.Loop() {
		var e *ssh.Environment
		ours.Time(b, func() (err error) {
			e, err = h.Open(b.Context(), config(b, ssh.Config{}))
			return err
		})
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		first.Time(b, func() error {
			one, err := ssh.Connect(b.Context(), target(b, s))
			if err != nil {
				return err
			}
			return one.Close()
		})
		others.Time(b, func() error { return n.run("true") })
	}
	report(b, ours, nil, nil, map[string]bench.Samples{"login": first, "ssh-true": others})
}
