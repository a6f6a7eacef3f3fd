package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/bench"
)

const (
	// settleTime lets the daemon finish its work after an answer, which would slow us down.
	settleTime = 50 * time.Millisecond
	// burst is how often ours is timed in a row for each slower call of the API.
	burst = 20
)

// native uses the Engine API as other programs do.
type native struct {
	api *client.Client
	id  string // of a plain container
}

// newNative starts a container that sleeps, with directories of this machine.
func newNative(b *testing.B, image string, binds ...string) *native {
	b.Helper()
	api, err := client.NewClientWithOpts(client.WithHost(daemons.DockerHost(b)),
		client.WithAPIVersionNegotiation())
	if err != nil {
		b.Fatal(err)
	}
	n := &native{api: api}
	n.id = n.create(b, image, binds...)
	if err := api.ContainerStart(b.Context(), n.id, container.StartOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		n.remove(b, n.id)
		_ = api.Close()
	})
	return n
}

func (n *native) create(b *testing.B, image string, binds ...string) string {
	b.Helper()
	made, err := n.api.ContainerCreate(b.Context(),
		&container.Config{Image: image, Cmd: []string{"sleep", "100000"}},
		&container.HostConfig{NetworkMode: "none", Binds: binds}, nil, nil, "")
	if err != nil {
		b.Fatal(err)
	}
	return made.ID
}

func (n *native) remove(b *testing.B, id string) {
	b.Helper()
	o := container.RemoveOptions{Force: true, RemoveVolumes: true}
	if err := n.api.ContainerRemove(context.Background(), id, o); err != nil {
		b.Error(err)
	}
}

// run runs a command through the exec call.
func (n *native) run(ctx context.Context, argv ...string) error {
	made, err := n.api.ContainerExecCreate(ctx, n.id, container.ExecOptions{
		AttachStdout: true, AttachStderr: true, Cmd: argv,
	})
	if err != nil {
		return err
	}
	attached, err := n.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := io.Copy(io.Discard, attached.Reader); err != nil {
		return err
	}
	got, err := n.api.ContainerExecInspect(ctx, made.ID)
	if err == nil && got.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", got.ExitCode)
	}
	return err
}

// write writes a file through the archive call.
func (n *native) write(ctx context.Context, dir, name string, content []byte) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return n.api.CopyToContainer(ctx, n.id, dir, &archive, container.CopyToContainerOptions{})
}

// read reads a file through the archive call.
func (n *native) read(ctx context.Context, name string) error {
	r, _, err := n.api.CopyFromContainer(ctx, n.id, name)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	t := tar.NewReader(r)
	if _, err := t.Next(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, t)
	return err
}

func run(ctx context.Context, e env.Runner, argv ...string) error {
	res, err := e.Exec(ctx, command(argv...))
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", res.ExitCode)
	}
	return err
}

// benchConfig returns the default container of the default image.
func benchConfig(b *testing.B, e *docker.Engine) docker.Config {
	b.Helper()
	c := config(b, docker.Config{Image: images.DefaultReference})
	if _, err := e.FindImage(b.Context(), c.Image); err != nil {
		b.Skip(err)
	}
	c.Warn = nil
	return c
}

// BenchmarkExec compares a command with the Engine API's exec call and the docker command.
func BenchmarkExec(b *testing.B) {
	e := connect(b)
	c := benchConfig(b, e)
	box, n := open(b, e, c), newNative(b, c.Image)
	var ours, api, command bench.Samples
	for b.Loop() {
		time.Sleep(settleTime)
		for range burst {
			ours.Time(b, func() error { return run(b.Context(), box, "/bin/true") })
		}
		api.Time(b, func() error { return n.run(b.Context(), "/bin/true") })
		command.Time(b, func() error {
			return exec.Command("docker", "-H", daemons.DockerHost(b), "exec", n.id, "/bin/true").Run()
		})
	}
	bench.Compare(b, ours, map[string]bench.Samples{"api": api, "docker": command})
}

// BenchmarkFiles compares reading and writing with the Engine API's archive calls.
func BenchmarkFiles(b *testing.B) {
	e := connect(b)
	c := benchConfig(b, e)
	box, n := open(b, e, c), newNative(b, c.Image)
	for _, size := range []int{1 << 10, 1 << 20, 100 << 20} {
		content, times := bytes.Repeat([]byte("x"), size), burst
		if size > 1<<20 {
			times = 1
		}
		compareFile := func(name string, ours, api func() error) {
			b.Run(fmt.Sprintf("%s-%dKiB", name, size>>10), func(b *testing.B) {
				var mine, others bench.Samples
				for b.Loop() {
					time.Sleep(settleTime)
					for range times {
						mine.Time(b, ours)
					}
					others.Time(b, api)
				}
				bench.Compare(b, mine, map[string]bench.Samples{"api": others})
			})
		}
		compareFile("write", func() error {
			_, err := box.WriteFile(b.Context(), "/workspace/f", bytes.NewReader(content),
				env.WriteOptions{})
			return err
		}, func() error { return n.write(b.Context(), "/workspace", "f", content) })
		compareFile("read", func() error {
			f, err := box.Open(b.Context(), "/workspace/f")
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // it was only read
			_, err = io.Copy(io.Discard, f)
			return err
		}, func() error { return n.read(b.Context(), "/workspace/f") })
	}
	b.Run("read-100-files", func(b *testing.B) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("/workspace/f%d", i))
			if _, err := box.WriteFile(b.Context(), names[i], strings.NewReader("content"),
				env.WriteOptions{}); err != nil {
				b.Fatal(err)
			}
			if err := n.write(b.Context(), "/workspace", fmt.Sprintf("f%d", i),
				[]byte("content")); err != nil {
				b.Fatal(err)
			}
		}
		var ours, api bench.Samples
		for b.Loop() {
			ours.Time(b, func() error {
				_, err := env.ReadFiles(b.Context(), box, names, 1<<20)
				return err
			})
			api.Time(b, func() error {
				for _, name := range names[:10] { // ten times as many take ten times as long
					if err := n.read(b.Context(), name); err != nil {
						return err
					}
				}
				return nil
			})
			api[len(api)-1] *= 10
		}
		bench.Compare(b, ours, map[string]bench.Samples{"api": api})
	})
}

// BenchmarkGrep searches Go's sources, which are mounted, against ripgrep through the exec call.
func BenchmarkGrep(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("needs go in PATH: ", err)
	}
	source, where := strings.TrimSpace(string(goroot))+"/src", "/usr/src/go"
	e := connect(b)
	c := benchConfig(b, e)
	c.Mounts = []docker.Mount{{Source: source, Target: where, ReadOnly: true}}
	box, n := open(b, e, c), newNative(b, c.Image, source+":"+where+":ro")
	for _, tt := range []struct {
		name, pattern string
		ignoreCase    bool
	}{
		{"literal", `ErrUnexpectedEOF`, false},
		{"inner", `func \w+Error\(`, false},
		{"case", `unexpectedeof`, true},
	} {
		b.Run(tt.name, func(b *testing.B) {
			argv := []string{"rg", "--no-config", "--hidden", "-n", "--no-heading", tt.pattern, where}
			if tt.ignoreCase {
				argv = slices.Insert(argv, 1, "-i")
			}
			opts := search.GrepOptions{
				Path: where, Pattern: tt.pattern, IgnoreCase: tt.ignoreCase, MaxMatches: -1,
			}
			var ours, api bench.Samples
			for b.Loop() {
				ours.Time(b, func() error {
					_, err := search.Grep(b.Context(), box, opts, func(search.GrepMatch) error { return nil })
					return err
				})
				api.Time(b, func() error { return n.run(b.Context(), argv...) })
			}
			bench.Compare(b, ours, map[string]bench.Samples{"exec-rg": api})
		})
	}
	// how long a search of seconds continues after it was cancelled
	b.Run("cancel", func(b *testing.B) {
		var all bench.Samples
		for b.Loop() {
			ctx, cancel := context.WithCancel(b.Context())
			var at time.Time
			timer := time.AfterFunc(300*time.Millisecond, func() { at = time.Now(); cancel() })
			opts := search.GrepOptions{
				Path: where, Pattern: `(?:[a-z]{1,30}){1,30}[0-9]{9}`, MaxMatches: -1, MaxTime: -1,
			}
			_, err := search.Grep(ctx, box, opts, func(search.GrepMatch) error { return nil })
			if !errors.Is(err, context.Canceled) {
				b.Fatal("a cancelled search: ", err)
			}
			all = append(all, time.Since(at))
			timer.Stop()
		}
		bench.Compare(b, all, nil)
	})
}

// BenchmarkReady measures the time until a new sandbox has answered, against the creation and the
// start of a plain container.
func BenchmarkReady(b *testing.B) {
	e := connect(b)
	c := benchConfig(b, e)
	n := newNative(b, c.Image)
	if err := open(b, e, c).Close(); err != nil { // what is made once
		b.Fatal(err)
	}
	var ours, plain bench.Samples
	for b.Loop() {
		var box *docker.Environment
		ours.Time(b, func() (err error) {
			if box, err = e.Open(b.Context(), c); err == nil {
				_, err = box.Stat(b.Context(), ".")
			}
			return err
		})
		if err := box.Close(); err != nil {
			b.Fatal(err)
		}
		var id string
		plain.Time(b, func() error {
			id = n.create(b, c.Image)
			return n.api.ContainerStart(b.Context(), id, container.StartOptions{})
		})
		n.remove(b, id)
	}
	b.ReportMetric(bench.Ratio(ours, plain), "x-of-plain")
	bench.Compare(b, ours, map[string]bench.Samples{"plain": plain})
}

// BenchmarkManySandboxes runs commands in 64 sandboxes at once, against the exec call from as many
// callers.
func BenchmarkManySandboxes(b *testing.B) {
	const sandboxes, each = 64, 20
	e := connect(b)
	c := benchConfig(b, e)
	n := newNative(b, c.Image)
	boxes := make([]*docker.Environment, sandboxes)
	var opening sync.WaitGroup
	for i := range boxes {
		opening.Go(func() { boxes[i] = open(b, e, c) })
	}
	opening.Wait()
	all := func(count int, one func(i int) error) float64 {
		started := time.Now()
		var wg sync.WaitGroup
		for i := range sandboxes {
			wg.Go(func() {
				for range count {
					if err := one(i); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return float64(sandboxes*count) / time.Since(started).Seconds()
	}
	var ours, api float64
	rounds := 0.0
	for b.Loop() {
		ours += all(each, func(i int) error { return run(b.Context(), boxes[i], "/bin/true") })
		api += all(1, func(int) error { return n.run(b.Context(), "/bin/true") })
		rounds++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours/rounds, "ours-exec/s")
	b.ReportMetric(api/rounds, "api-exec/s")
	b.ReportMetric(ours/api, "x")
}
