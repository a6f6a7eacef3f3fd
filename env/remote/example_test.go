package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Example is a whole backend: it runs a helper in bubblewrap on a root file system.
func Example() {
	ctx := context.Background()
	e, err := openBubblewrap(ctx, "/", remote.Options{Vars: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close() //nolint:errcheck // the example ends here
	cmd := env.Command{Argv: []string{"id", "-un"}, Stdout: os.Stdout}
	if _, err := e.Exec(ctx, cmd); err != nil {
		fmt.Println(err)
	}
}

// openBubblewrap opens an environment on the root file system in a directory, which it mounts
// read-only. The working directory is an empty, writable one.
func openBubblewrap(
	ctx context.Context, root string, o remote.Options,
) (_ *remote.Environment, err error) {
	if o, err = o.Complete("bubblewrap"); err != nil {
		return nil, err
	}
	p, err := o.Helper.Resolve(ctx, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bubblewrap-")
	if err != nil {
		return nil, err
	}
	s := &sandbox{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := s.start(root, p); err != nil {
		return nil, err
	}
	return remote.Open(ctx, remote.Config{
		Backend: "bubblewrap", Session: o.Session, Stream: s, Dir: "/run/work", Vars: o.Vars,
		Isolation: func(env.Guarantee) env.Guarantee {
			return env.Guarantee{Strength: env.Enforced, By: "bubblewrap"}
		},
		Close: func(closeHelper func() error) error { return errors.Join(closeHelper(), s.remove()) },
	})
}

// sandbox is a bubblewrap process. It is the stream to the helper in it.
type sandbox struct {
	dir string // holds the helper's program and the working directory
	cmd *exec.Cmd
	io.Writer
	io.Reader
	close func() error
}

// start starts the helper as PID 1 of new namespaces. It needs no socket: when the stream ends, the
// helper kills what it started and exits.
func (s *sandbox) start(root string, p *remote.Program) error {
	content, err := p.Content()
	if err != nil {
		return err
	}
	program, work := filepath.Join(s.dir, "sandboxd"), filepath.Join(s.dir, "work")
	if err := errors.Join(os.WriteFile(program, content, 0o700), os.Mkdir(work, 0o700)); err != nil {
		return err
	}
	cmd := exec.Command("bwrap", "--unshare-all", "--as-pid-1", "--clearenv",
		"--ro-bind", root, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--tmpfs", "/run", "--ro-bind", program, "/run/sandboxd", "--bind", work, "/run/work", "--")
	cmd.Args = append(cmd.Args, p.Serve("/run/sandboxd", "", 0)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.cmd, s.Writer, s.Reader = cmd, in, out
	s.close = func() error { return errors.Join(in.Close(), out.Close()) }
	return cmd.Start()
}

// Close implements io.Closer. It ends calls of Read and Write.
func (s *sandbox) Close() error { return s.close() }

// remove waits until the helper has exited, and removes its directory.
func (s *sandbox) remove() error {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Wait() // its exit code is of no interest
	}
	return os.RemoveAll(s.dir)
}
