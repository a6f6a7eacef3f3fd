package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// remoteDaemon starts a daemon that is reached by TLS.
func remoteDaemon(t *testing.T) *daemons.Docker {
	t.Helper()
	return own(t, daemons.DockerConfig{TLS: true})
}

// farAway returns an engine that reaches a daemon by way of a proxy.
func farAway(t *testing.T, d *daemons.Docker) (*docker.Engine, *toxiproxy.Proxy) {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))
	proxy := toxiproxy.NewProxy(server, "daemon", "127.0.0.1:0", strings.TrimPrefix(d.TLSHost(),
		"tcp://"))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	e, err := docker.Connect(t.Context(), docker.Address{
		Host:         "tcp://" + proxy.Listen,
		Certificates: d.CertDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, proxy
}

// spoil puts a toxic on a proxy, in both directions.
func spoil(t *testing.T, p *toxiproxy.Proxy, kind, attributes string) (mend func()) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":"%s-%s","type":"%s","stream":"%s","toxicity":1,"attributes":%s}`,
			kind, stream, kind, stream, attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, stream := range []string{"upstream", "downstream"} {
			if err := p.Toxics.RemoveToxic(context.Background(), kind+"-"+stream); err != nil {
				t.Error(err)
			}
		}
	}
}

// partitionTime is how long nothing gets through.
const partitionTime = 30 * time.Second

// TestPartition cuts the way to the daemon for a time, before the first connection and in the
// middle of output. The command continues, and runs once.
func TestPartition(t *testing.T) {
	full(t, "partitions of 30 s")
	t.Parallel()
	d := remoteDaemon(t)
	t.Run("phases", func(t *testing.T) {
		for _, phase := range []string{"hello", "stream"} {
			t.Run(phase, func(t *testing.T) {
				t.Parallel()
				partition(t, d, phase)
			})
		}
		t.Run("close", func(t *testing.T) {
			t.Parallel()
			closeCutOff(t, d)
		})
	})
	nothingLeft(t, d.Host())
}

// closeCutOff closes an environment that cannot be reached any more: the error is about the
// daemon, and the container ends by itself.
func closeCutOff(t *testing.T, d *daemons.Docker) {
	e, proxy := farAway(t, d)
	box, err := e.Open(t.Context(), config(t, docker.Config{
		Image:   "busybox:latest",
		Options: remote.Options{TTL: 5 * time.Second},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer spoil(t, proxy, "timeout", `{"timeout":0}`)()
	err = box.Close()
	if unreachable := (*docker.DaemonError)(nil); !errors.As(err, &unreachable) {
		t.Errorf("close gives %v", err)
	}
}

func partition(t *testing.T, d *daemons.Docker, phase string) {
	e, proxy := farAway(t, d)
	over := make(chan struct{})
	var mended sync.WaitGroup
	cut := func() {
		mend := spoil(t, proxy, "timeout", `{"timeout":0}`)
		mended.Go(func() {
			time.Sleep(partitionTime)
			mend()
		})
	}
	defer func() { // nothing is closed before the way is free again
		close(over)
		mended.Wait()
	}()
	if phase == "hello" {
		// A request on a connection that is there is made again; a connection that is just being made is
		// not.
		if err := open(t, e, docker.Config{Image: "busybox:latest"}).Close(); err != nil {
			t.Error(err)
		}
		cut()
	}
	box := open(t, e, docker.Config{Image: "busybox:latest"})
	const script = `echo once >> count; i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo now; read x; echo $x; exit 7`
	seen := make(chan struct{}, 1)
	var out bytes.Buffer
	in, typed := io.Pipe()
	defer in.Close() //nolint:errcheck // a command that has ended reads nothing
	mended.Go(func() {
		select {
		case <-seen:
		case <-over:
			return
		}
		if phase == "stream" {
			cut()
			time.Sleep(time.Second) // a part of the partition
		}
		_, _ = io.WriteString(typed, "typed\n")
	})
	res, err := box.Exec(t.Context(), env.Command{
		Argv: []string{"/bin/sh", "-c", script}, Stdin: in, Stdout: io.MultiWriter(&out,
			&waitFor{text: "now\n", found: seen}),
	})
	if err != nil || res.ExitCode != 7 {
		t.Fatalf("%+v, %v", res, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3002 || lines[2999] != "line 2999" || lines[3001] != "typed" {
		t.Errorf("%d lines arrived, the last ones are %q", len(lines), lines[max(0, len(lines)-3):])
	}
	if data, err := env.ReadFile(t.Context(), box, "count", 100); err != nil ||
		string(data) != "once\n" {
		t.Errorf("it ran %q, %v", data, err)
	}
}

// waitFor signals when a text has been written.
type waitFor struct {
	text  string
	found chan<- struct{}
	seen  []byte
}

func (w *waitFor) Write(p []byte) (int, error) {
	if w.seen = append(w.seen, p...); bytes.Contains(w.seen, []byte(w.text)) {
		w.seen = nil
		select {
		case w.found <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

// restart starts a proxy that was stopped. A connection of another process may have its port for a
// while.
func restart(t *testing.T, proxy *toxiproxy.Proxy) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := proxy.Start()
		if err == nil || errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return
		}
		if time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

// TestCutInTheMiddle breaks the connection again and again while output flows.
func TestCutInTheMiddle(t *testing.T) {
	t.Parallel()
	d := remoteDaemon(t)
	e, proxy := farAway(t, d)
	box := open(t, e, docker.Config{Image: "busybox:latest"})
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for range 10 {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			proxy.Stop()
			restart(t, proxy)
		}
	})
	var out bytes.Buffer
	res, err := box.Exec(t.Context(), env.Command{
		Argv: []string{"/bin/sh", "-c", "echo once >> count; i=0; while [ $i -lt 200000 ]; do echo " +
			"$i; i=$((i+1)); done; exit 7"}, Stdout: &out,
	})
	close(stop)
	cutting.Wait()
	if err != nil || res.ExitCode != 7 {
		t.Fatalf("%+v, %v", res, err)
	}
	var want bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(want.Bytes(), out.Bytes()) {
		t.Errorf("%d bytes arrived, want %d", out.Len(), want.Len())
	}
	if data, err := env.ReadFile(t.Context(), box, "count", 100); err != nil ||
		string(data) != "once\n" {
		t.Errorf("it ran %q, %v", data, err)
	}
}
