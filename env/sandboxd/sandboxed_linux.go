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

// sandboxedHelper is a helper in a sandbox. This process, its parent, stays outside and calls
// Plan.Tidy.
type sandboxedHelper struct {
	process *sandbox.Process
	// stream leads to the helper, and ends when this process does.
	stream *os.File
	by     sandbox.Mechanism
	stderr *earlyStderr
	socket string
	// signals are the signals of this process, until stop is called.
	signals <-chan os.Signal
	stop    func()
}

// errReady ends the watch for signals during the start.
var errReady = errors.New("ready")

// readyTime bounds the start of a helper in a sandbox.
const readyTime = time.Minute

// startSandboxed starts a helper in the sandbox that text describes, with the standard streams of
// this process and the socket. If it returns no helper, this process serves itself, as setup
// describes.
func startSandboxed(text string, s serveConfig) (*sandboxedHelper, setup, error) {
	config, err := helper.ParseSandbox(text)
	if err != nil {
		return nil, setup{}, fmt.Errorf("--sandbox: %w", err)
	}
	config = config.At(os.Getenv("HOME"))
	dir, err := resolveDir(config.Dir)
	if err != nil {
		return nil, setup{refusal: err}, nil
	}
	var socket *os.File
	if s.socket != "" {
		if socket, err = bindFor(s.socket); err != nil {
			return nil, setup{refusal: fmt.Errorf("socket %s: %w", s.socket, err)}, nil
		}
		defer func() { _ = socket.Close() }()
	}
	program, err := ownProgram(s.program)
	if err != nil {
		return nil, setup{refusal: err}, nil
	}
	defer program.Close()
	signals, stop := notify()
	ctx, cancel := context.WithCancelCause(context.Background())
	watched, caught := make(chan struct{}), os.Signal(nil)
	go func() {
		defer close(watched)
		select {
		case caught = <-signals:
			cancel(&signalError{caught})
		case <-ctx.Done():
		}
	}()
	var b *sandboxedHelper
	none, err := sandbox.Choose(
		ctx,
		dir,
		config.Sandbox,
		s.protectedPaths(),
		sandbox.ThisMachine(),
		func(plan sandbox.Plan) (env.Info, func() error, error) {
			var err error
			if b, err = s.start(ctx, &plan, program, socket); err != nil {
				err = errors.Join(err, plan.Tidy())
				return env.Info{}, nil, &sandbox.StartFailure{Text: err.Error(), Err: err}
			}
			return env.Info{Guarantees: plan.Guarantees()}, b.end, nil
		},
	)
	cancel(errReady)
	<-watched
	ended := context.Cause(ctx)
	switch {
	case ended == errReady: //nolint:errorlint // it is this very one
	case err == nil && none == nil: // the one that wait waits for
		signals <- caught
	default:
		stop()
		return nil, setup{}, ended
	}
	switch {
	case err == nil && none == nil:
		b.stderr.late.Store(true)
		if err := releaseStdio(); err != nil {
			return nil, setup{}, errors.Join(err, b.end())
		}
		b.signals, b.stop = signals, stop
		return b, setup{}, nil
	case err == nil && (config.Require || len(config.Enforce) > 0):
		err = refusal(none)
	}
	stop()
	if s.socket != "" && !isAbstract(s.socket) {
		err = errors.Join(err, os.Remove(s.socket))
	}
	if err != nil {
		return nil, setup{refusal: err}, nil
	}
	return nil, setup{noSandbox: none.Reason()}, nil
}

// resolveDir returns the working directory without symlinks.
func resolveDir(name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", fmt.Errorf(
			"%q is not absolute, and the user has no home directory: %w", name, fs.ErrInvalid)
	}
	dir, err := filepath.EvalSymlinks(name)
	var path *fs.PathError
	if errors.As(err, &path) { // its path is that of the missing parent
		err = &fs.PathError{Op: "stat", Path: name, Err: path.Err}
	}
	return dir, err
}

// refusal returns the error where a sandbox is required.
func refusal(none *sandbox.Unavailable) error {
	if len(none.Missing) > 0 {
		var missing []string
		for _, p := range none.Missing {
			missing = append(missing, string(p))
		}
		return fmt.Errorf(
			"no sandbox of this machine enforces %s: %s", strings.Join(missing, ", "), none.Reason(),
		)
	}
	return fmt.Errorf("no sandbox works on this machine: %s", none.Reason())
}

// protectedPaths returns the files of this helper that sandboxed commands must not modify: this
// process, outside of the sandbox, executes them.
func (s serveConfig) protectedPaths() (names []string) {
	if s.dir != "" {
		names = append(names, s.dir)
	}
	if name, err := os.Executable(); err == nil {
		names = append(names, filepath.Dir(name))
	}
	return names
}

// bindFor creates a socket for another process.
func bindFor(path string) (*os.File, error) {
	l, err := bind(path)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// ownProgram returns this program, on Linux also after its file was removed.
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

// start starts a helper by a plan and waits until it is ready.
func (s serveConfig) start(
	ctx context.Context,
	plan *sandbox.Plan,
	program *sandbox.Program,
	socket *os.File,
) (_ *sandboxedHelper, err error) {
	stream, helperStream, err := sandbox.SocketPair()
	if err != nil {
		return nil, err
	}
	b := &sandboxedHelper{by: plan.By, stream: stream, stderr: &earlyStderr{}, socket: s.socket}
	defer func() {
		if err != nil {
			_ = stream.Close()
		}
	}()
	args := []string{"serve", "--confined", "--nested", "--ttl", s.ttl.String()}
	if s.socket != "" {
		args = append(args, "--socket", s.socket)
	}
	b.process, err = sandbox.Start(
		plan,
		program,
		sandbox.Files{Parent: helperStream, Socket: socket},
		func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, b.stderr, os.Environ()
		},
		args...)
	if err = errors.Join(err, helperStream.Close()); err != nil {
		return nil, err
	}
	if err = stream.SetReadDeadline(time.Now().Add(readyTime)); err != nil {
		return nil, errors.Join(err, b.end())
	}
	giveUp := context.AfterFunc(ctx, func() { _ = stream.SetReadDeadline(time.Now()) })
	defer giveUp()
	_, err = io.ReadFull(stream, make([]byte, 1))
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errors.Join(fmt.Errorf("the helper is not ready within %s", readyTime), b.end())
	}
	<-b.process.Exited
	return nil, errors.Join(
		fmt.Errorf("the helper has ended: %s: %s", b.process.Cmd.ProcessState, b.stderr.String()),
		b.process.Tidy(),
	)
}

// joinParent reports to the helper outside that this one is in the sandbox, and receives the socket
// if it has one.
func (in *setup) joinParent(socket bool) error {
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
	parentDone := make(chan struct{})
	go func() {
		defer close(parentDone)
		_, _ = outside.Read(make([]byte, 1)) // nothing comes but the end
	}()
	in.parentDone = parentDone
	return nil
}

// releaseStdio leaves the standard streams to another process.
func releaseStdio() error {
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

// end kills the helper with everything in its sandbox, and tidies up.
func (b *sandboxedHelper) end() error {
	b.process.Kill()
	return errors.Join(b.process.Tidy(), b.stream.Close())
}

// wait waits for the end of the helper and returns the exit code. orphans is true if commands may
// still run: the helper was killed, and its mechanism ends no processes.
func (b *sandboxedHelper) wait() (code int, orphans bool) {
	signals := b.signals
	defer b.stop()
	for ended := false; !ended; {
		select {
		case <-b.process.Exited:
			ended = true
		case <-signals:
			// The end of bubblewrap ends its whole sandbox. A second signal skips the orderly end.
			_ = b.process.Cmd.Process.Signal(unix.SIGTERM)
			go func() {
				<-signals
				_ = b.process.Cmd.Process.Kill()
			}()
		}
	}
	code = b.process.Cmd.ProcessState.ExitCode()
	if status, ok := b.process.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok &&
		status.Signaled() {
		code, orphans = 128+int(status.Signal()), b.by != sandbox.Bubblewrap
	}
	err := errors.Join(b.process.Tidy(), b.stream.Close())
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

// earlyStderr keeps the stderr of a helper that is not ready, and forwards it from then on.
type earlyStderr struct {
	helper.StderrTail
	late atomic.Bool
}

// Write implements io.Writer.
func (w *earlyStderr) Write(p []byte) (int, error) {
	if w.late.Load() {
		return os.Stderr.Write(p)
	}
	return w.StderrTail.Write(p)
}
