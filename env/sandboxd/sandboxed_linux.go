package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// boxed is a helper in a sandbox. The one outside has put that up, and tidies up in the end.
type boxed struct {
	process *sandbox.Process
	// inside is a stream to the helper, which ends when this process does.
	inside *os.File
	by     sandbox.Mechanism
	said   *earlyWords
	socket string
	// signals are those that came to this process, until stop is called.
	signals <-chan os.Signal
	stop    func()
}

// errReady ends the watch for signals that come before a sandbox is ready.
var errReady = errors.New("ready")

// readyTime bounds the start of a helper in a sandbox.
const readyTime = time.Minute

// box starts a helper in the sandbox that text describes, with the standard streams of this process and the socket. Where it
// returns none, this process serves in its place, in the surroundings.
func box(text string, s serving) (*boxed, surroundings, error) {
	want, err := helper.ParseBox(text)
	if err != nil {
		return nil, surroundings{}, fmt.Errorf("--sandbox: %w", err)
	}
	want = want.At(os.Getenv("HOME"))
	if !filepath.IsAbs(want.Dir) {
		return nil, surroundings{refusal: fmt.Errorf("the user has no home folder, and %q is no absolute name: %w", want.Dir, fs.ErrInvalid)}, nil
	}
	dir, err := filepath.EvalSymlinks(want.Dir)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) { // which is that of what is missing on the way there
			err = &fs.PathError{Op: "stat", Path: want.Dir, Err: path.Err}
		}
		return nil, surroundings{refusal: err}, nil
	}
	var socket *os.File
	if s.socket != "" {
		if socket, err = bindFor(s.socket); err != nil {
			return nil, surroundings{refusal: fmt.Errorf("socket %s: %w", s.socket, err)}, nil
		}
		defer func() { _ = socket.Close() }()
	}
	program, err := ownProgram(s.program)
	if err != nil {
		return nil, surroundings{refusal: err}, nil
	}
	defer program.Close()
	signals, stop := notify()
	ctx, cancel := context.WithCancelCause(context.Background())
	watched, caught := make(chan struct{}), os.Signal(nil)
	go func() {
		defer close(watched)
		select {
		case caught = <-signals:
			cancel(fmt.Errorf("%s before the sandbox was ready", caught))
		case <-ctx.Done():
		}
	}()
	var b *boxed
	none, err := sandbox.Choose(ctx, dir, want.Sandbox, s.own(), sandbox.Mechanisms(), func(plan sandbox.Plan) (env.Info, func() error, error) {
		var err error
		if b, err = s.start(ctx, &plan, program, socket); err != nil {
			err = errors.Join(err, plan.Tidy())
			return env.Info{}, nil, &sandbox.StartFailure{Text: err.Error(), Err: err}
		}
		return env.Info{Guarantees: plan.Guarantees()}, b.end, nil
	})
	cancel(errReady)
	<-watched
	ended := context.Cause(ctx)
	switch {
	case ended == errReady: //nolint:errorlint // it is this very one
	case err == nil && none == nil: // the one that wait waits for
		signals <- caught
	default:
		stop()
		return nil, surroundings{}, ended
	}
	switch {
	case err == nil && none == nil:
		b.said.late.Store(true)
		if err := leaveStdio(); err != nil {
			return nil, surroundings{}, errors.Join(err, b.end())
		}
		b.signals, b.stop = signals, stop
		return b, surroundings{}, nil
	case err == nil && (want.Require || len(want.Enforce) > 0):
		err = refusal(none)
	}
	stop()
	if s.socket != "" && !isAbstract(s.socket) {
		err = errors.Join(err, os.Remove(s.socket))
	}
	if err != nil {
		return nil, surroundings{refusal: err}, nil
	}
	return nil, surroundings{bare: none.Why()}, nil
}

// refusal is the error where there must be a sandbox.
func refusal(none *sandbox.Unavailable) error {
	if len(none.Missing) > 0 {
		var missing []string
		for _, p := range none.Missing {
			missing = append(missing, string(p))
		}
		return fmt.Errorf("no sandbox here enforces %s: %s", strings.Join(missing, ", "), none.Why())
	}
	return fmt.Errorf("no sandbox is to be had here: %s", none.Why())
}

// own returns what of this helper must stay as it is: who could change that would be started outside of the sandbox.
func (s serving) own() (names []string) {
	if s.folder != "" {
		names = append(names, s.folder)
	}
	if name, err := os.Executable(); err == nil {
		names = append(names, filepath.Dir(name))
	}
	return names
}

// bindFor makes a socket for another process.
func bindFor(path string) (*os.File, error) {
	l, err := bind(path)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// ownProgram returns this program, also when it has been removed, where the system has such names.
func ownProgram(args []string) (*sandbox.Program, error) {
	const self = "/proc/self/exe"
	name := self
	if _, err := os.Stat(self); err != nil {
		if name, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p, err := sandbox.ProgramAt(name, args)
	if err == nil {
		err = p.Open()
	}
	return p, err
}

// start starts a helper by a plan, and waits until it is ready.
func (s serving) start(ctx context.Context, plan *sandbox.Plan, program *sandbox.Program, socket *os.File) (_ *boxed, err error) {
	ours, theirs, err := sandbox.SocketPair()
	if err != nil {
		return nil, err
	}
	b := &boxed{by: plan.By, inside: ours, said: &earlyWords{}, socket: s.socket}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	args := []string{"serve", "--confined", "--inside", "--ttl", s.ttl.String()}
	if s.socket != "" {
		args = append(args, "--socket", s.socket)
	}
	b.process, err = sandbox.Start(plan, program, sandbox.Files{Parent: theirs, Socket: socket}, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, b.said, os.Environ()
	}, args...)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, err
	}
	if err = ours.SetReadDeadline(time.Now().Add(readyTime)); err != nil {
		return nil, errors.Join(err, b.end())
	}
	giveUp := context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Now()) })
	defer giveUp()
	_, err = io.ReadFull(ours, make([]byte, 1))
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errors.Join(fmt.Errorf("the helper is not ready within %s", readyTime), b.end())
	}
	<-b.process.Exited
	return nil, errors.Join(fmt.Errorf("the helper has ended: %s: %s", b.process.Cmd.ProcessState, b.said.String()), b.process.Tidy())
}

// arrive tells the helper outside that this one is in the sandbox, and takes the socket, if there is one.
func (in *surroundings) arrive(socket bool) error {
	if socket {
		f := sandbox.SocketFile()
		l, err := net.FileListener(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("the socket: %w", err)
		}
		var ok bool
		if in.listener, ok = l.(*net.UnixListener); !ok {
			return fmt.Errorf("the socket: %w", os.ErrInvalid)
		}
	}
	outside, err := sandbox.ParentFile()
	if err != nil {
		return err
	}
	if _, err := outside.Write([]byte{1}); err != nil {
		return errors.Join(err, outside.Close())
	}
	alone := make(chan struct{})
	go func() {
		defer close(alone)
		_, _ = outside.Read(make([]byte, 1)) // nothing comes but the end
	}()
	in.alone = alone
	return nil
}

// leaveStdio leaves the standard streams to another process.
func leaveStdio() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for fd := range 2 {
		if err := replace(int(null.Fd()), fd); err != nil {
			return err
		}
	}
	return null.Close()
}

// end ends the helper, with everything in its sandbox, and tidies up.
func (b *boxed) end() error {
	b.process.Kill()
	return errors.Join(b.process.Tidy(), b.inside.Close())
}

// wait waits for the end, and returns the exit code. It reports whether commands may still run: the helper was killed, and
// nothing else ends them.
func (b *boxed) wait() (code int, orphans bool) {
	signals := b.signals
	defer b.stop()
	for ended := false; !ended; {
		select {
		case <-b.process.Exited:
			ended = true
		case <-signals:
			// Bubblewrap takes its whole sandbox along. Whoever sends two does not want to wait.
			_ = b.process.Cmd.Process.Signal(unix.SIGTERM)
			go func() {
				<-signals
				_ = b.process.Cmd.Process.Kill()
			}()
		}
	}
	code = b.process.Cmd.ProcessState.ExitCode()
	if status, ok := b.process.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code, orphans = 128+int(status.Signal()), b.by != sandbox.Bubblewrap
	}
	err := errors.Join(b.process.Tidy(), b.inside.Close())
	if b.socket != "" && !isAbstract(b.socket) {
		if gone := os.Remove(b.socket); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		code = max(code, fail(err))
	}
	return code, orphans
}

// earlyWords keeps what a helper says before it is ready, and hands on what it says later.
type earlyWords struct {
	helper.StderrTail
	late atomic.Bool
}

// Write implements io.Writer.
func (w *earlyWords) Write(p []byte) (int, error) {
	if w.late.Load() {
		return os.Stderr.Write(p)
	}
	return w.StderrTail.Write(p)
}
