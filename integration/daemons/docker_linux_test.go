package daemons

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// request sends the daemon a request and decodes its answer into out, if that is not nil.
func request(t *testing.T, d *Docker, method, path string, in, out any) {
	t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+path, &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s %v", method, path, resp.Status, text, err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatal(err)
		}
	}
}

// container starts a container and returns its first process.
func container(t *testing.T, d *Docker, config map[string]any) int {
	t.Helper()
	var made struct{ ID string }
	request(t, d, http.MethodPost, "/containers/create", config, &made)
	request(t, d, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil)
	var is struct{ State struct{ Pid int } }
	request(t, d, http.MethodGet, "/containers/"+made.ID+"/json", nil, &is)
	return is.State.Pid
}

// left lists the leftovers of a daemon.
func left(d *Docker) []string {
	var found []string
	name := filepath.Base(d.dir)
	if pids := members(name); len(pids) > 0 {
		found = append(found, fmt.Sprint("processes ", pids))
	}
	if _, err := os.Lstat(d.dir); err == nil {
		found = append(found, d.dir)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts,
		[]byte(name)) {
		found = append(found, "mounts")
	}
	// Another daemon may have the bridge's name by now.
	alias, err := os.ReadFile("/sys/class/net/" + d.bridge + "/ifalias")
	if err == nil && string(bytes.TrimSpace(alias)) == name {
		found = append(found, d.bridge)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	more, _ := filepath.Glob("/sys/fs/cgroup/" + name)
	return append(found, append(groups, more...)...)
}

func TestDockerLeavesNothing(t *testing.T) {
	d := NewDocker(t, DockerConfig{Bridge: true})
	second := NewDocker(t, DockerConfig{Bridge: true})
	if d.bridge == second.bridge {
		t.Fatalf("two daemons have the bridge %s", d.bridge)
	}
	if err := d.Load(t.Context(), Empty); err != nil {
		t.Fatal(err)
	}
	onBridge := container(t, d, map[string]any{"Image": Empty})
	alone := container(t, d, map[string]any{
		"Image":      Empty,
		"HostConfig": map[string]any{"NetworkMode": "none"},
	})
	if !alive(onBridge) || !alive(alone) {
		t.Fatal("the containers do not run")
	}
	if got := len(left(d)); got < 3 {
		t.Fatalf("of a daemon that runs, only %v is seen", left(d))
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if alive(onBridge) || alive(alone) {
		t.Error("containers live on")
	}
	if got := left(d); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
	if err := ping(t.Context(), second.client); err != nil {
		t.Errorf("the other daemon suffered: %v", err)
	}
}

// TestDockerOfKilledRun starts a daemon in a process that is killed; the next daemon removes its
// leftovers.
func TestDockerOfKilledRun(t *testing.T) {
	dir := os.Getenv("DAEMONS_TEST_DIR")
	if dir != "" {
		d, err := StartDocker(t.Context(), DockerConfig{Dir: dir, Bridge: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Load(t.Context(), Empty); err != nil {
			t.Fatal(err)
		}
		pid := container(t, d, map[string]any{"Image": Empty})
		fmt.Printf("\n%s %s %d\n", d.dir, d.bridge, pid)
		select {}
	}
	if err := Available(); err != nil {
		Missing(t, "docker", err.Error())
	}
	dir, err := os.MkdirTemp("", "killed-") //nolint:usetesting // a socket's name must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDockerOfKilledRun$")
	child.Env = append(os.Environ(), "DAEMONS_TEST_DIR="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var old Docker
	var number string
	if _, err := fmt.Fscan(out, &old.dir, &old.bridge, &number); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	if err := sweep(dir, dirPrefix); err != nil || !alive(pid) {
		t.Fatalf("the daemon of a run that lives was swept away: %v", err)
	}
	// Nobody waits for the killed process yet: a zombie does not count as its daemon's maker.
	_ = child.Process.Kill()
	t.Cleanup(func() { _ = child.Wait() })
	ended := func() bool { return !alive(child.Process.Pid) }
	if err := wait(t.Context(), stopTimeout, ended); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) || len(left(&old)) < 3 {
		t.Fatal("nothing is left that could be cleaned")
	}
	NewDocker(t, DockerConfig{Dir: dir})
	if got := left(&old); len(got) > 0 || alive(pid) {
		t.Errorf("left: %v", got)
	}
}

func TestStartFails(t *testing.T) {
	if err := Available(); err != nil {
		Missing(t, "docker", err.Error())
	}
	dir := t.TempDir()
	_, err := StartDocker(t.Context(), DockerConfig{
		Dir: dir, Bridge: true,
		Args: []string{"--no-such-flag"},
	})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("the error lacks that of the daemon: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func TestCacheIsFilledOnceAndWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	fills := 0
	get := func(text string, failure error) (string, error) {
		var out bytes.Buffer
		err := cached(dir, "key", &out, func(f *os.File) error {
			fills++
			_, err := f.WriteString(text)
			return errors.Join(err, failure)
		})
		return out.String(), err
	}
	broken := errors.New("broken")
	if _, err := get("half", broken); !errors.Is(err, broken) {
		t.Errorf("a failure is %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("a failure leaves %v %v", entries, err)
	}
	for range 2 {
		if got, err := get("whole", nil); got != "whole" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if fills != 2 {
		t.Errorf("filled %d times", fills)
	}
}
