//go:build unix

package local_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

func TestHelperDies(t *testing.T) {
	needProc(t)
	e, err := local.Supervised(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	pid, mark := helperOf(t, e), newMark(t)
	running := make(chan error, 1)
	go func() {
		_, err := e.Exec(t.Context(), withMark(sh(sleeper), mark))
		running <- err
	}()
	eventually(t, "the command", func() bool { return len(marked(t, mark)) == 1 })
	session, err := unix.Getsid(marked(t, mark)[0])
	if err != nil {
		t.Fatal(err)
	}
	// nobody else kills the processes that the helper started
	t.Cleanup(func() { _ = unix.Kill(-session, unix.SIGKILL) })
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-running; !errors.Is(err, env.ErrUnknownOutcome) || !errors.Is(err, env.ErrGone) {
		t.Errorf("a command that ran: %v", err)
	}
	var start *env.StartError
	_, err = e.Exec(t.Context(), sh("true"))
	if !errors.As(err, &start) || !errors.Is(err, env.ErrGone) {
		t.Errorf("a command afterwards: %v", err)
	}
	var path *fs.PathError
	if _, err := e.Stat(t.Context(), "."); !errors.As(err, &path) || !errors.Is(err, env.ErrGone) {
		t.Errorf("a file afterwards: %v", err)
	}
	const text = "killed; processes that it started may still run"
	if err := e.Close(); !errors.Is(err, env.ErrGone) || !strings.Contains(err.Error(), text) {
		t.Errorf("close: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
}

// TestHelperTerminated has another process terminate the helper, which differs from Close.
func TestHelperTerminated(t *testing.T) {
	needProc(t)
	e, err := local.Supervised(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	pid, mark := helperOf(t, e), newMark(t)
	var result env.Result
	running := make(chan error, 1)
	go func() {
		var err error
		result, err = e.Exec(t.Context(), withMark(sh(sleeper), mark))
		running <- err
	}()
	eventually(t, "the command", func() bool { return len(marked(t, mark)) == 1 })
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// The helper may still send the result.
	err = <-running
	killed := err == nil && result.Signal == "SIGKILL"
	unknown := errors.Is(err, env.ErrUnknownOutcome) && errors.Is(err, env.ErrGone) &&
		!errors.Is(err, fs.ErrClosed)
	if !killed && !unknown {
		t.Errorf("a command that ran: %+v, %v", result, err)
	}
	if err := e.Close(); !errors.Is(err, env.ErrGone) {
		t.Errorf("close: %v", err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
