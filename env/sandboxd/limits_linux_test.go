package sandboxd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// realHelper builds the program as it is shipped, once for all tests.
func realHelper(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "sandboxd")
	if _, err := os.Stat(name); err == nil {
		return name
	}
	const pkg = "github.com/sandboxagent/sandboxagent/cmd/sandboxd"
	if err := exec.CommandContext(t.Context(), "go", "list", pkg).Run(); err != nil {
		t.Skip("not in a checkout, or without a go command")
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		name, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

var building sync.Mutex

// field returns the number in a line of a file in /proc.
func field(t *testing.T, file, name string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var n int
		if _, err := fmt.Sscanf(line, name+": %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return 0
}

// TestFootprint checks that an idle helper uses little memory and no network sockets.
func TestFootprint(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	p := launch(t, []string{realHelper(t), "serve", "--socket", socket}, nil)
	e, err := open(t, p, client.Config{Token: token, Start: start(t, t.TempDir())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for range 50 {
		output(t, e, sh("echo something"))
	}
	proc := fmt.Sprintf("/proc/%d/", p.Process.Pid)
	const limit = 12 << 10 // KiB
	if rss := field(t, proc+"status", "VmRSS"); rss > limit {
		t.Errorf("it uses %d KiB, more than %d", rss, limit)
	}
	if os.Getuid() != 0 {
		return // the rest is hidden from its user
	}
	var listeners []string
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		data, err := os.ReadFile("/proc/self/net/" + table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			if fields := bytes.Fields(line); len(fields) > 9 {
				listeners = append(listeners, "socket:["+string(fields[9])+"]")
			}
		}
	}
	fds, err := filepath.Glob(proc + "fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatalf("%v, %v", fds, err)
	}
	for _, fd := range fds {
		is, err := os.Readlink(fd)
		for _, l := range listeners {
			if err == nil && is == l {
				t.Errorf("descriptor %s is a network socket", fd)
			}
		}
	}
}

// TestFullPidsLimit reaches the limit of the control group of the helper.
func TestFullPidsLimit(t *testing.T) {
	t.Parallel()
	const limit = 120
	group := pidsGroup(t, limit)
	script := `echo 0 >"$1/cgroup.procs" || exit; shift; exec "$@"`
	argv := []string{"/bin/sh", "-c", script, "sh", group, realHelper(t), "serve"}
	// As many threads would run at once on a machine with many processors.
	p := launch(t, argv, func(cmd *exec.Cmd) { cmd.Env = []string{"GOMAXPROCS=128"} })
	e, err := open(t, p, client.Config{Start: start(t, t.TempDir())}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	current := func() int {
		data, err := os.ReadFile(filepath.Join(group, "pids.current"))
		n, numErr := strconv.Atoi(strings.TrimSpace(string(data)))
		if err := errors.Join(err, numErr); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// Each shell ends when it cannot fork, and makes room for one process.
	var commands, files sync.WaitGroup
	for i := 0; current() < limit; i++ {
		if i == limit {
			t.Fatalf("%d processes, want %d", current(), limit)
		}
		_, _ = e.Exec(t.Context(), sh(`while :; do sleep 1000 & done 2>/dev/null`))
		commands.Go(func() { _, _ = e.Exec(t.Context(), env.Command{Argv: []string{"sleep", "1000"}}) })
		eventually(t, "the last process", func() bool { return current() >= limit-1 })
	}
	for i := range 100 {
		commands.Go(func() {
			_, err := e.Exec(t.Context(), sh("true"))
			var start *env.StartError
			if !errors.As(err, &start) || !strings.Contains(err.Error(), unix.EAGAIN.Error()) {
				t.Errorf("a command: %v", err)
			}
		})
		files.Go(func() {
			name, content := fmt.Sprintf("file%d", i), strings.Repeat("x", i)
			_, err := e.WriteFile(t.Context(), name, strings.NewReader(content), env.WriteOptions{})
			if err != nil {
				t.Errorf("a write: %v", err)
				return
			}
			if got, err := env.ReadFile(t.Context(), e, name, 1<<20); err != nil || string(got) != content {
				t.Errorf("a read: %d bytes, %v", len(got), err)
			}
		})
	}
	files.Wait()
	if n := current(); n != limit {
		t.Errorf("%d processes in the end, want %d", n, limit)
	}
	if err := e.Kill(); err != nil {
		t.Error(err)
	}
	commands.Wait()
	output(t, e, sh("true"))
}

// TestFloodExcludesNoClient has many commands connect as fast as they can, silently and with wrong
// tokens. Each of them holds as many connections as one process may have.
func TestFloodExcludesNoClient(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: 40 processes that keep the processors busy")
	}
	socket := socketPath(t)
	e, _ := serveSocket(t, socket, nil)
	var flood sync.WaitGroup
	flooding, ended := make(chan struct{}, 40), make(chan string, 40)
	for range cap(ended) {
		cmd := attack(t, "flood", socket)
		// They take all of the processors that nobody else wants, so that other tests go on.
		cmd.Argv = append([]string{"nice", "-n", "19"}, cmd.Argv...)
		flood.Go(func() {
			var out strings.Builder
			cmd.Stdout = writerFunc(func(p []byte) (int, error) {
				if out.Write(p); strings.HasPrefix(out.String(), "flooding\n") {
					flooding <- struct{}{}
				}
				return len(p), nil
			})
			r, err := e.Exec(t.Context(), cmd)
			ended <- fmt.Sprintf("%+v, %v, %s", r, err, out.String())
		})
	}
	for range cap(flooding) {
		select {
		case <-flooding:
		case result := <-ended:
			t.Fatalf("a command has ended: %s", result)
		}
	}
	for range 5 {
		p := bridge(t, socket)
		again, err := open(t, p, client.Config{Token: token}, nil)
		if err != nil {
			t.Fatal(err)
		}
		output(t, again, sh("true"))
		_ = p.Close()
	}
	if err := e.Kill(); err != nil {
		t.Error(err)
	}
	flood.Wait()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// pidsGroup creates a control group with a limit on processes.
func pidsGroup(t *testing.T, limit int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root creates control groups")
	}
	for _, parent := range []string{
		"/sys/fs/cgroup/pids", "/sys/fs/cgroup", "/sys/fs/cgroup/unified",
	} {
		dir := filepath.Join(parent, fmt.Sprintf("sandboxd-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(limit)), 0o600) != nil {
			_ = os.Remove(dir)
			continue
		}
		t.Cleanup(func() {
			eventually(t, "an empty control group", func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				for pid := range strings.FieldsSeq(string(data)) {
					if n, err := strconv.Atoi(pid); err == nil && n > 1 {
						_ = unix.Kill(n, unix.SIGKILL) // a failed helper leaves some
					}
				}
				return os.Remove(dir) == nil
			})
		})
		return dir
	}
	t.Skip("no control group can limit processes")
	return ""
}
