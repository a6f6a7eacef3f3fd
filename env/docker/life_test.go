package docker_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestOutOfMemory lets a command exceed the memory limit. The next one runs.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	e := connect(t)
	box := open(t, e, docker.Config{Memory: 96 << 20})
	for range 3 {
		res, err := box.Exec(t.Context(), sh(`exec perl -e '$x = "x" x 1_000_000_000'`))
		if err != nil || !res.OutOfMemory || res.ExitCode != 137 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := box.Exec(t.Context(), command("/bin/true")); err != nil ||
			res.ExitCode != 0 || res.OutOfMemory {
			t.Errorf("the next one: %+v, %v", res, err)
		}
	}
	res, err := box.Exec(t.Context(), sh(`kill -9 $$`))
	if err != nil || res.OutOfMemory || res.Signal != "SIGKILL" {
		t.Errorf("killed by a signal: %+v, %v", res, err)
	}
}

// TestEmptyImage uses an image with one program and no directory.
func TestEmptyImage(t *testing.T) {
	t.Parallel()
	for _, user := range []string{docker.DefaultUser, "root"} {
		t.Run(user, func(t *testing.T) {
			box := open(t, connect(t), docker.Config{Image: daemons.Empty, User: user})
			if info := box.Info(); len(info.Shell) > 0 || info.NoShell == "" ||
				info.WorkDir != docker.DefaultWorkDir {
				t.Errorf("%+v", info)
			}
			args := command("/bin/probe", "args", "a", "b c")
			out, res, err := env.Output(t.Context(), box, args, env.OutputOptions{})
			if err != nil || res.ExitCode != 0 || len(out.Stdout.Bytes()) == 0 {
				t.Errorf("%q, %+v, %v", out.Stdout.Bytes(), res, err)
			}
			res, err = box.Exec(t.Context(), command("/bin/probe", "exit", "7"))
			if err != nil || res.ExitCode != 7 {
				t.Errorf("%+v, %v", res, err)
			}
			if _, err := box.Exec(t.Context(), sh("true")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without a shell: %v", err)
			}
			fileTrip(t, box, "a/b/c")
			fileTrip(t, box, "/tmp/d")
			entries, err := search.Glob(t.Context(), box, search.GlobOptions{Pattern: "**/c"})
			if err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
			sleep := command("/bin/probe", "sleep", "1000s")
			sleep.Timeout = 50 * time.Millisecond
			res, err = box.Exec(t.Context(), sleep)
			if err != nil || !res.TimedOut {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// fileTrip writes a file and reads it.
func fileTrip(t *testing.T, e env.Environment, name string) {
	t.Helper()
	if _, err := e.WriteFile(t.Context(), name, strings.NewReader("content"),
		env.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if data, err := env.ReadFile(t.Context(), e, name, 100); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestWrongArchitecture(t *testing.T) {
	t.Parallel()
	e := connect(t)
	_, err := e.Open(t.Context(), config(t, docker.Config{Image: daemons.Foreign}))
	var image *docker.ImageError
	if !errors.As(err, &image) || image.Problem != docker.ImagePlatform {
		t.Error(err)
	}
	var config *docker.ConfigError
	if box, err := e.Open(t.Context(), withHelper(docker.Config{
		Image: daemons.Foreign, Platform: "linux/arm64", Pull: docker.PullNever,
	})); err == nil {
		t.Error("a helper for another processor is used", box.Close())
	} else if !errors.As(err, &config) {
		t.Error(err)
	}
}

// withHelper returns a configuration with the helper of the tests.
func withHelper(c docker.Config) docker.Config {
	c.Helper.Binary = helperProgram
	return c
}

// TestCancelledOpen ends the context at random moments while a container is made.
func TestCancelledOpen(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{})
	e := connectTo(t, d.Host())
	started := time.Now()
	if err := open(t, e, docker.Config{Image: daemons.Busybox}).Close(); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(started)
	each := 2
	if isFull() {
		each = 6
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(whole))
				box, err := e.Open(ctx, config(t, docker.Config{Image: daemons.Busybox}))
				if err == nil {
					err = box.Close()
				} else if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	nothingLeft(t, d.Host())
}

// TestCloseAndExec closes an environment while commands start in it.
func TestCloseAndExec(t *testing.T) {
	t.Parallel()
	e := connect(t)
	box := open(t, e, docker.Config{Image: daemons.Busybox})
	var wg sync.WaitGroup
	done := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			for {
				_, err := box.Exec(t.Context(), command("/bin/sleep", "0.01"))
				select {
				case done <- struct{}{}:
				default:
				}
				if err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for range cap(done) {
		<-done
	}
	for range 3 {
		wg.Go(func() {
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestManyAtOnce opens environments on a daemon that has never seen one: they share the making of
// what they have in common.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	d := own(t, daemons.DockerConfig{})
	rounds := 2
	if isFull() {
		rounds = 4
	}
	for round := range rounds {
		if round > 0 {
			daemon(t, d.Host(), "volume", "rm", daemon(t, d.Host(), "volume", "ls", "-q", "--filter",
				"label=sandboxagent.kind=helper"))
		}
		manyAtOnce(t, d.Host(), 1+round, 6/(1+round))
	}
	emptyVolume(t, d.Host())
	nothingLeft(t, d.Host())
}

// manyAtOnce opens some environments in each of several programs.
func manyAtOnce(t *testing.T, host string, programs, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for range programs {
		e := connectTo(t, host)
		for range each {
			wg.Go(func() {
				box, err := e.Open(t.Context(), config(t, docker.Config{Image: daemons.Busybox}))
				if err != nil {
					t.Error(err)
					return
				}
				fileTrip(t, box, "f")
				if err := box.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

// emptyVolume starts a container whose helper's volume was created and never filled.
func emptyVolume(t *testing.T, host string) {
	t.Helper()
	volume := daemon(t, host, "volume", "ls", "-q", "--filter", "label=sandboxagent.kind=helper")
	daemon(t, host, "volume", "rm", volume)
	daemon(t, host, "volume", "create", volume)
	box := open(t, connectTo(t, host), docker.Config{Image: daemons.Busybox})
	fileTrip(t, box, "f")
	if err := box.Close(); err != nil {
		t.Error(err)
	}
}

// TestMountsThroughLinks mounts a symlink to a forbidden directory.
func TestMountsThroughLinks(t *testing.T) {
	t.Parallel()
	e := connect(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	mounts := []docker.Mount{{Source: link, Target: "/host", ReadOnly: true}}
	_, err := e.Open(t.Context(), config(t, docker.Config{Mounts: mounts}))
	var bad *docker.ConfigError
	if !errors.As(err, &bad) || bad.Field != "mount" {
		t.Error(err)
	}
}
