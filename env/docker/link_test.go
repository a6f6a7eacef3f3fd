package docker_test

import (
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

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// farAway returns an engine that reaches a daemon through a proxy.
func farAway(t *testing.T, d *daemons.Docker) (*docker.Engine, *toxiproxy.Proxy) {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))
	proxy := toxiproxy.NewProxy(server, "daemon", "127.0.0.1:0",
		strings.TrimPrefix(d.TLSHost(), "tcp://"))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	address := docker.Address{Host: "tcp://" + proxy.Listen, Certificates: d.CertDir()}
	e, err := docker.Connect(t.Context(), address)
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
// middle of output.
func TestPartition(t *testing.T) {
	full(t, "partitions of 30 s")
	t.Parallel()
	d := own(t, daemons.DockerConfig{TLS: true})
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

// closeCutOff closes an unreachable environment: the error is about the daemon, and the container
// ends by itself.
func closeCutOff(t *testing.T, d *daemons.Docker) {
	e, proxy := farAway(t, d)
	box := start(t, e, docker.Config{
		Image: daemons.Busybox, Options: remote.Options{TTL: 5 * time.Second},
	})
	defer spoil(t, proxy, "timeout", `{"timeout":0}`)()
	err := box.Close()
	if unreachable := (*docker.DaemonError)(nil); !errors.As(err, &unreachable) {
		t.Errorf("close: %v", err)
	}
}

func partition(t *testing.T, d *daemons.Docker, phase string) {
	e, proxy := farAway(t, d)
	var mended sync.WaitGroup
	defer mended.Wait() // before the environment is closed
	cut := func() {
		mend := spoil(t, proxy, "timeout", `{"timeout":0}`)
		mended.Go(func() {
			time.Sleep(partitionTime)
			mend()
		})
	}
	if phase == "hello" {
		// A request on an existing connection is made again; one whose connection is being made is not.
		if err := start(t, e, docker.Config{Image: daemons.Busybox}).Close(); err != nil {
			t.Error(err)
		}
		cut()
	}
	envtest.Survives(t, open(t, e, docker.Config{Image: daemons.Busybox}), 1, func() {
		if phase == "stream" {
			cut()
			time.Sleep(time.Second) // a part of the partition
		}
	})
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
	e, proxy := farAway(t, own(t, daemons.DockerConfig{TLS: true}))
	var cutting sync.WaitGroup
	defer cutting.Wait()
	envtest.Survives(t, open(t, e, docker.Config{Image: daemons.Busybox}), 1, func() {
		cutting.Go(func() {
			for range 10 {
				proxy.Stop()
				restart(t, proxy)
				time.Sleep(50 * time.Millisecond) // of output
			}
		})
	})
}
