package daemons

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// HostVar names the variable that holds the address of the daemon that tests share.
const HostVar = "SANDBOXAGENT_TEST_DOCKER"

// RequireVar names the variable that lists, separated by commas, the services whose absence fails a
// test instead of skipping it.
const RequireVar = "SANDBOXAGENT_REQUIRE"

// startTimeout bounds how long a daemon may take until it answers; stopTimeout how long each step
// of its end may.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = time.Minute
)

// DockerConfig configures a daemon. The zero value is a daemon on a unix socket whose
// containers have either no network or the host's.
type DockerConfig struct {
	// Dir is the parent of the daemon's directory; default os.TempDir(). The name of a unix
	// socket must be short, so a deep directory does not work.
	Dir string
	// Bridge gives the daemon a bridge network. Nothing forwards packets from it to other networks.
	Bridge bool
	// TLS makes the daemon listen on a TCP port of 127.0.0.1 as well, where it requires a client's
	// certificate.
	TLS bool
	// Args are additional arguments of dockerd.
	Args []string
	// Cache is the directory that keeps images between runs; default is sandboxagent-build/images in
	// the user's cache directory.
	Cache string
}

// DockerHost returns the address of the daemon that tests share, in the form that DOCKER_HOST has.
// Without one the test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds docker.
// Tests remove the objects that they make in it.
func DockerHost(t testing.TB) string {
	t.Helper()
	host := os.Getenv(HostVar)
	if host == "" {
		Missing(t, "docker", HostVar+" is not set: run the tests by go run ./integration/withdaemons")
	}
	return host
}

// NewDocker starts a daemon for one test and stops it afterwards. Where none can be started the
// test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds docker.
func NewDocker(t testing.TB, config DockerConfig) *Docker {
	t.Helper()
	if err := Available(); err != nil {
		Missing(t, "docker", err.Error())
	}
	d, err := StartDocker(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the end of the daemon's log:\n" + d.logTail())
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Missing skips a test that lacks a service, such as docker, or a part of it, such as an image. The
// test fails instead if the variable SANDBOXAGENT_REQUIRE holds the service.
func Missing(t testing.TB, service, reason string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(RequireVar), ","), service) {
		t.Fatalf("%s demands %s: %s", RequireVar, service, reason)
	}
	t.Skip(reason)
}

// wait calls done until it returns true, ctx ends, or limit has passed.
func wait(ctx context.Context, limit time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no success within %v", limit))
	defer cancel()
	for {
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
