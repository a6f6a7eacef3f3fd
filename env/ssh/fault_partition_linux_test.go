package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// partitionTime is how long nothing gets through: in the full tests longer than the default
// keepalive takes. At the end the proxy closes the connections.
func partitionTime() time.Duration {
	if testing.Short() {
		return 3 * time.Second
	}
	return 30 * time.Second
}

// part lets nothing through for a time.
func part(t *testing.T, p *toxiproxy.Proxy) {
	spoilFor(t, partitionTime(), p, "timeout", `{"timeout":0}`)
}

// TestPartition lets nothing through for a time, before a command and in the middle of its output.
// The command continues, and runs once.
func TestPartition(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	_ = open(t, connect(t, target(t, s)), ssh.Config{}) // which delivers the helper
	t.Run("phases", func(t *testing.T) {
		for _, phase := range []string{"idle", "stream"} {
			t.Run(phase, func(t *testing.T) {
				if phase != "stream" {
					needFull(t, "a partition without a command")
				}
				t.Parallel()
				partition(t, s, phase)
			})
		}
	})
}

func partition(t *testing.T, s *daemons.SSHD, phase string) {
	proxy, to := behind(t, s)
	e := open(t, connect(t, to), ssh.Config{
		WorkDir: s.MakeDir(t), Options: remote.Options{TTL: 2 * time.Minute},
	})
	if phase == "idle" {
		part(t, proxy)
		time.Sleep(partitionTime() + time.Second)
	}
	in, typed := io.Pipe()
	var out bytes.Buffer
	turn := func() {
		if phase == "stream" {
			part(t, proxy)
		}
		_, _ = io.WriteString(typed, "typed\n")
	}
	want := lines(t, 3000)
	res, err := e.Exec(t.Context(), env.Command{
		Argv: []string{"/bin/sh", "-c", "echo once >> count; seq 1 3000; read x; echo $x; seq 1 " +
			"900000; exit 7"},
		Stdin: in, Stdout: &halfway{Writer: &out, bytes: len(want), turn: turn},
	})
	want = append(append(want, "typed\n"...), lines(t, 900_000)...)
	if err != nil || res.ExitCode != 7 || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%+v, %v, %d of %d bytes", res, err, out.Len(), len(want))
	}
	once(t, e, "count")
}

// TestPartitionWhileOpening lets nothing through for a time, which begins in each phase of a start.
func TestPartitionWhileOpening(t *testing.T) {
	needFull(t, "partitions in all phases of a start")
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	work := s.MakeDir(t)
	started := time.Now()
	_ = open(t, connect(t, target(t, s)), ssh.Config{})
	whole := time.Since(started)
	_ = os.RemoveAll(filepath.Join(s.Home(), ".cache"))
	const steps = 8
	for i := range steps + 1 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			proxy, to := behind(t, s)
			session := fmt.Sprintf("parted-%d", i)
			if i == 0 {
				part(t, proxy)
			} else {
				timer := time.AfterFunc(time.Duration(i)*whole/steps, func() { part(t, proxy) })
				defer timer.Stop()
			}
			ctx, cancel := context.WithTimeout(t.Context(), partitionTime()+20*time.Second)
			defer cancel()
			_ = openOnce(ctx, t, to, work, session, partitionTime()+5*time.Second)
			nothingLeft(t, s, session) // the proxy has closed the connections for good
		})
	}
}

// TestPartitionForGood makes an environment unreachable while a command runs. It ends by itself.
func TestPartitionForGood(t *testing.T) {
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	proxy, to := behind(t, s)
	e := start(t, connect(t, to), ssh.Config{Options: remote.Options{TTL: 2 * time.Second}})
	running := background(t.Context(), e, command("/bin/sleep", "1000"))
	eventually(t, "the command runs", func() bool { return len(left(t, s, e.Session())) > 2 })
	proxy.Stop() // later connections are refused
	if o := <-running; !errors.Is(o.err, env.ErrGone) || !errors.Is(o.err, env.ErrUnknownOutcome) {
		t.Errorf("the command: %v", o.err)
	}
	wantGone(t, e)
	nothingLeft(t, s, e.Session())
}

// TestPartitionWhileClosing closes an environment when nothing gets through any more.
func TestPartitionWhileClosing(t *testing.T) {
	needFull(t, "a silent host delays Close by half a minute")
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	proxy, to := behind(t, s)
	e := start(t, connect(t, to), ssh.Config{Options: remote.Options{TTL: 2 * time.Second}})
	mend := spoil(t, proxy, "timeout", `{"timeout":0}`)
	if err := e.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
	mend()
	nothingLeft(t, s, e.Session())
}

// TestSlowLinks works over links that are slow in every way, which must not count as lost.
func TestSlowLinks(t *testing.T) {
	needFull(t, "links of about a thousand bytes per second")
	t.Parallel()
	s := server(t, daemons.SSHDConfig{Account: account()})
	t.Run("links", func(t *testing.T) {
		for _, tt := range []struct {
			kind, attributes string
			size             int
		}{
			{"slicer", `{"average_size":16,"size_variation":8,"delay":15000}`, 1000},
			{"latency", `{"latency":500,"jitter":0}`, 64 << 10},
			{"bandwidth", `{"rate":10}`, 64 << 10},
		} {
			t.Run(tt.kind, func(t *testing.T) {
				t.Parallel()
				proxy, to := behind(t, s)
				to.Timeout = time.Minute // a new login takes thousands of bytes
				e := open(t, connect(t, to), ssh.Config{WorkDir: s.MakeDir(t)})
				spoil(t, proxy, tt.kind, tt.attributes)
				slow(t, e, tt.size)
				if n := len(s.Sessions()); n > 3 {
					t.Errorf("%d connections", n)
				}
			})
		}
	})
}

// slow writes a file, and reads it in all ways.
func slow(t *testing.T, e env.Environment, size int) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789"), size/10)
	if _, err := e.WriteFile(t.Context(), "f", bytes.NewReader(content),
		env.WriteOptions{}); err != nil {
		t.Error(err)
		return
	}
	if got, err := env.ReadFile(t.Context(), e, "f", 1<<20); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if out := does(t, e, "echo once >> count; cat f"); out != string(content) {
		t.Errorf("%d of %d bytes", len(out), len(content))
	}
	once(t, e, "count")
}
