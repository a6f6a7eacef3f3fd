//go:build linux

package docker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// smallDisk is a daemon with a disk of its own.
type smallDisk struct {
	*daemons.Docker
	root string // where the disk is, seen by the daemon
}

// newSmallDisk starts a daemon whose images, containers and volumes have so many bytes.
func newSmallDisk(t *testing.T, size int64) *smallDisk {
	t.Helper()
	if err := daemons.Available(); err != nil {
		daemons.Missing(t, "docker", err.Error())
	}
	root := t.TempDir()
	var d *daemons.Docker
	started := make(chan error, 1)
	go onThread(func() {
		// Only this thread and its children see the disk, so that nothing is left of it when they
		// have ended.
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("small", root, "tmpfs", 0, fmt.Sprintf("size=%d", size))
		}
		if err == nil {
			d, err = daemons.StartDocker(t.Context(), daemons.DockerConfig{Args: []string{
				"--data-root",
				root,
			}})
		}
		started <- err
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts,
			[]byte(root)) {
			t.Errorf("the disk is mounted: %v", err)
		}
	})
	if err := d.Load(t.Context(), daemons.Busybox); err != nil {
		t.Fatal(err)
	}
	return &smallDisk{Docker: d, root: fmt.Sprintf("/proc/%d/root%s", d.Pid(), root)}
}

// onThread does something on a thread of its own, which ends with it. The first thread of a process
// never ends, and is what others see of it.
func onThread(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			onThread(do)
		}()
		<-done
		return
	}
	do() // and the thread is not unlocked
}

// fill leaves so many bytes.
func (d *smallDisk) fill(t *testing.T, leave int64) (free func()) {
	t.Helper()
	var now unix.Statfs_t
	if err := unix.Statfs(d.root, &now); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(d.root, "filler")
	f, err := os.Create(name)
	if err == nil {
		_, err = io.CopyN(f, zeros{}, max(0, int64(now.Bfree)*now.Bsize-leave))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestFullWorkspace fills the disk in every way, and continues after a file was removed.
func TestFullWorkspace(t *testing.T) {
	const size = 64 << 20
	d := newSmallDisk(t, size)
	e := connectTo(t, d.Host())
	box := open(t, e, docker.Config{Image: daemons.Busybox})
	_, err := box.WriteFile(t.Context(), "big", io.LimitReader(zeros{}, 2*size), env.WriteOptions{})
	if !errors.Is(err, env.ErrNoSpace) {
		t.Errorf("a file that is too big: %v", err)
	}
	if left, err := box.ReadDir(t.Context(), "."); err != nil || len(left) > 0 {
		t.Errorf("a part of it is left: %v, %v", left, err)
	}
	var stderr bytes.Buffer
	res, err := box.Exec(t.Context(), env.Command{
		Argv:   []string{"sh", "-c", "dd if=/dev/zero of=fill bs=1M; echo; df . | tail -1"},
		Stderr: &stderr,
	})
	if err != nil || res.ExitCode != 0 || !strings.Contains(stderr.String(),
		"No space left on device") {
		t.Errorf("a command that fills the disk: %+v, %v, %s", res, err, &stderr)
	}
	_, err = box.WriteFile(t.Context(), "small", io.LimitReader(zeros{}, 1<<20), env.WriteOptions{})
	if !errors.Is(err, env.ErrNoSpace) {
		t.Errorf("a file on a full disk: %v", err)
	}
	if err := box.Remove(t.Context(), "fill", env.RemoveOptions{}); err != nil {
		t.Error(err)
	}
	fileTrip(t, box, "f")
	if err := box.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, d.Host())
}

// TestFullDaemon has a daemon whose disk is full, or becomes so at each step of a start.
func TestFullDaemon(t *testing.T) {
	d := newSmallDisk(t, 96<<20)
	e := connectTo(t, d.Host())
	// Each step fails somewhere between these: images of two directories, the helper's volume,
	// containers.
	var refused, worked int
	for _, leave := range []int64{
		0, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20,
		32 << 20,
	} {
		free := d.fill(t, leave)
		box, err := e.Open(t.Context(), config(t, docker.Config{Image: daemons.Busybox}))
		free()
		if err == nil {
			worked++
			fileTrip(t, box, "f")
			if err := box.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		refused++
		wantFull(t, err)
		nothingLeft(t, d.Host())
	}
	if refused < 3 || worked == 0 {
		t.Errorf("%d starts failed, %d worked", refused, worked)
	}
	// Nothing of what failed stands in the way of the next one.
	fileTrip(t, open(t, e, docker.Config{Image: daemons.Busybox}), "f")
}

// wantFull checks that an error reports the daemon's full disk.
func wantFull(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, env.ErrNoSpace) || !strings.Contains(err.Error(), "daemon's disk") ||
		!strings.HasPrefix(err.Error(), "docker: ") {
		t.Errorf("got %v, want env.ErrNoSpace", err)
	}
	t.Log(err)
}

// TestFullPull pulls an image onto a full disk, and again when it has space.
func TestFullPull(t *testing.T) {
	d := newSmallDisk(t, 64<<20)
	t.Setenv(daemons.HostVar, d.Host())
	p := newPuller(t, "{}")
	id := p.add(t, "tool:1", "")
	image := docker.Config{Image: p.Host() + "/tool:1"}
	for _, leave := range []int64{0, 16 << 10, 512 << 10} {
		before := p.tries()
		free := d.fill(t, leave)
		started := time.Now()
		_, err := p.open(t, t.Context(), image)
		free()
		wantFull(t, err)
		if p.tries() != before+1 {
			t.Errorf("with %d bytes left: %d tries in %s", leave, p.tries()-before, time.Since(started))
		}
	}
	if got, err := p.open(t, t.Context(), image); err != nil || got != id {
		t.Errorf("then the image is %s, %v; want %s", got, err, id)
	}
}
