package sandboxd_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// abstractSocket returns a name for a socket without a file.
func abstractSocket() string {
	return fmt.Sprintf("@sandboxd-test-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// TestAbstractSocket has a client reconnect by a socket without a file, whose name a command cannot
// take.
func TestAbstractSocket(t *testing.T) {
	t.Parallel()
	socket := abstractSocket()
	e, p := serveSocket(t, socket, nil)
	var out strings.Builder
	cmd := attack(t, "impostor", socket)
	cmd.Stdout, cmd.Stderr = &out, &out
	if r, err := e.Exec(t.Context(), cmd); err != nil || r.ExitCode != 1 ||
		!strings.Contains(out.String(), "address already in use") {
		t.Errorf("%+v, %v, %s", r, err, out.String())
	}
	b := launch(t, helperArgv(t, "dial", "--socket", socket, "--pid", strconv.Itoa(p.Process.Pid)),
		nil)
	again, err := open(t, b, client.Config{Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	output(t, again, sh("true"))
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gone := bridge(t, socket)
	if _, err := gone.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if code := gone.code(t); code != 3 {
		t.Errorf("exit code %d without a helper", code)
	}
}

// TestImpostorGetsNoToken has a command replace the socket of the helper.
func TestImpostorGetsNoToken(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	e, p := serveSocket(t, socket, nil)
	var running sync.WaitGroup
	r, w := io.Pipe()
	cmd := attack(t, "impostor", socket)
	cmd.Stdout = w
	running.Go(func() {
		_, _ = e.Exec(t.Context(), cmd)
		_ = w.Close()
	})
	received := make(chan string, 8)
	running.Go(func() {
		defer close(received)
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			if err != nil {
				return
			}
			received <- string(buf[:n])
		}
	})
	if got := <-received; got != "listening\n" {
		t.Fatalf("the impostor printed %q", got)
	}
	for _, tt := range []struct {
		name  string
		args  []string
		token bool // the impostor gets the token
	}{
		{"with the ID of the helper", []string{"--pid", strconv.Itoa(p.Process.Pid)}, false},
		{"without it", nil, true},
	} {
		b := launch(t, helperArgv(t, append([]string{"dial", "--socket", socket}, tt.args...)...), nil)
		if _, err := open(t, b, client.Config{Token: token}, nil); err == nil {
			t.Errorf("%s: the impostor passes for the helper", tt.name)
		}
		_ = b.Close()
		if got := <-received; strings.Contains(got, token) != tt.token {
			t.Errorf("%s: the impostor %s", tt.name, got)
		}
		code := b.code(t)
		if !tt.token && (code != 1 || !strings.Contains(b.stderrText.String(), "listens on the socket")) {
			t.Errorf("%s: exit code %d, %q", tt.name, code, b.stderrText)
		}
	}
	if err := e.Kill(); err != nil {
		t.Error(err)
	}
	running.Wait()
}

// entering returns the command line that runs argv in the namespaces of the helper that p has
// started, as the exec command of a container runtime does: as its user, and with a parent outside.
// The parent is a shell: nsenter would stop itself when its child is stopped for the kill, and then
// not reap it.
func entering(t *testing.T, p *process, argv ...string) []string {
	t.Helper()
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("nsenter is not installed")
	}
	pid := p.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	const script = `exec 3<&0; "$@" <&3 3<&- & exec <&- 3<&-; wait $!`
	return append([]string{
		"nsenter", "--target=" + strings.TrimSpace(string(children)), "--pid", "--no-fork",
		"--mount", "--setuid=65534", "--setgid=65534", "/bin/sh", "-c", script, "sh",
	}, argv...)
}

// TestEnteringProcessesAreSpared kills all commands in a pid namespace, and closes the environment,
// through a process that entered from outside.
func TestEnteringProcessesAreSpared(t *testing.T) {
	t.Parallel()
	socket := abstractSocket()
	e, p := first(t, namespaced{}, "--socket", socket)
	dial := helperArgv(t, "dial", "--socket", socket, "--pid", "1")
	argv := append([]string{sharedProgram(t)}, dial[1:]...)
	second, err := open(t, launch(t, entering(t, p, argv...), nil), client.Config{Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	neighbour, m := mark(t)+"-neighbour", mark(t)
	launch(t, entering(t, p, "/bin/sh", "-c", `while read -r line; do echo "$line"; done`, neighbour),
		nil)
	// nsenter has the argument as well
	eventually(t, "the neighbour", func() bool { return len(marked(neighbour)) == 2 })
	stay(t, e, m)
	if err := second.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	if left := marked(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if n := len(marked(neighbour)); n != 2 {
		t.Errorf("%d of 2 processes from outside are left", n)
	}
	output(t, second, sh("true"))
	stay(t, e, m)
	if err := second.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := append(marked(m), marked(neighbour)...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
