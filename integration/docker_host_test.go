package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

const (
	// markLabel is on every container that the program makes in a test; its value differs between
	// runs.
	markLabel = "test-of-sandboxagent"
	// kindLabel is the product's own: the kind of a container or a volume.
	kindLabel = "sandboxagent.kind"
)

// dockerHost is a daemon in which the program makes containers.
type dockerHost struct {
	host string
	api  *client.Client
}

// sharedDocker is the daemon that tests share.
func sharedDocker(t testing.TB) *dockerHost {
	t.Helper()
	return newDockerHost(t, daemons.DockerHost(t))
}

// privateDocker is a daemon that only this test uses, with some images.
func privateDocker(t testing.TB, names ...string) *dockerHost {
	t.Helper()
	d := daemons.NewDocker(t, daemons.DockerConfig{})
	if err := d.Load(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	return newDockerHost(t, d.Host())
}

func newDockerHost(t testing.TB, host string) *dockerHost {
	t.Helper()
	api, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	// before parallel calls, for lists read the version without a lock
	api.NegotiateAPIVersion(t.Context())
	return &dockerHost{host, api}
}

// need ends the test if the daemon has no such image.
func (d *dockerHost) need(t *testing.T, image string) {
	t.Helper()
	if _, err := d.api.ImageInspect(t.Context(), image); err != nil {
		daemons.Missing(t, "docker", "the daemon has no "+image+": go run ./integration/withdaemons "+
			"--images makes one")
	}
}

// newMark returns a value for the label of one run.
func newMark() string { return fmt.Sprintf("9%09d", rand.IntN(1_000_000_000)) }

// command makes an execution of the program in dir. The first of args is the program's command,
// which gets the environment docker and, for its container, the mark.
func (d *dockerHost) command(t testing.TB, dir, mark string, args ...string) *exec.Cmd {
	t.Helper()
	flags := []string{"--env=docker"}
	if args[0] != "demo" {
		flags = append(flags, "--label="+markLabel+"="+mark)
	}
	cmd := exec.CommandContext(t.Context(), command(t), slices.Insert(slices.Clone(args), 1,
		flags...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir(), "DOCKER_HOST="+d.host)
	return cmd
}

// run executes the program to its end, and checks that it has left no container.
func (d *dockerHost) run(t testing.TB, dir string, vars []string, args ...string) ran {
	t.Helper()
	mark := newMark()
	cmd := d.command(t, dir, mark, args...)
	cmd.Env = append(cmd.Env, vars...)
	got := finish(t, cmd)
	d.checkNone(t, mark)
	return got
}

// A runner runs the program with args in dir, with more variables, in an environment that ends
// with it: dockerHost and kubeHost.
type runner interface {
	run(t testing.TB, dir string, vars []string, args ...string) ran
}

// finish runs cmd to its end.
func finish(t testing.TB, cmd *exec.Cmd) ran {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// containers lists those of a run, or all that the program has made if mark is empty. None is not
// nil.
func (d *dockerHost) containers(ctx context.Context, mark string) ([]string, error) {
	label := kindLabel
	if mark != "" {
		label = markLabel + "=" + mark
	}
	found, err := d.api.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", label)),
	})
	names := []string{}
	for _, c := range found {
		names = append(names, fmt.Sprintf("%s %s (%s, %s)", c.ID, strings.Join(c.Names, " "), c.State,
			c.Status))
	}
	return names, err
}

// volumes lists those that go with a container, of all runs.
func (d *dockerHost) volumes(ctx context.Context) ([]string, error) {
	ours := filters.NewArgs(filters.Arg("label", kindLabel+"=volume"))
	found, err := d.api.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, v := range found.Volumes {
		names = append(names, fmt.Sprintf("volume %s of %s", v.Name, v.CreatedAt))
	}
	return names, nil
}

// checkNone checks that no container of a run exists.
func (d *dockerHost) checkNone(t testing.TB, mark string) {
	t.Helper()
	left, err := d.containers(context.WithoutCancel(t.Context()), mark)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// records decodes the lines of a run with --output=stream-json and returns the last, which must be
// the only result.
func records(t testing.TB, stdout string) ([]event.Event, event.Result) {
	t.Helper()
	var all []event.Event
	results := 0
	for line := range strings.Lines(stdout) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if _, ok := e.Data.(event.Result); ok {
			results++
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		t.Fatal("nothing was printed")
	}
	res, ok := all[len(all)-1].Data.(event.Result)
	if !ok || results != 1 {
		t.Fatalf("%d results, and the last line is %+v", results, all[len(all)-1])
	}
	return all, res
}

// removeLeft removes the containers of a run that failed to do so itself.
func (d *dockerHost) removeLeft(t testing.TB, mark string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		left, err := d.containers(ctx, mark)
		for _, c := range left {
			id, _, _ := strings.Cut(c, " ")
			// it may be gone by now
			_ = d.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		}
		if err != nil {
			t.Error(err)
		}
	})
}
