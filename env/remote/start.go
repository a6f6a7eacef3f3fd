package remote

import (
	"cmp"
	"io"
	"os/exec"
	"sync"
	"time"
)

// exitTimeout is how long a command of Start has for its exit after its stream was closed. The
// helper needs a part of it to kill the processes that it started.
const exitTimeout = 10 * time.Second

// Start starts a command, such as one that runs Program.Serve in a sandbox, and returns its stdin
// and stdout as a stream for Open. Close closes both and waits for the exit of the command, which
// is killed after 10 seconds. A zero cmd.WaitDelay becomes 10 seconds too, so that no process that
// holds its stderr delays Close any longer.
func Start(cmd *exec.Cmd) (io.ReadWriteCloser, error) {
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, exitTimeout)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &commandStream{Reader: out, Writer: in, end: sync.OnceFunc(func() {
		_, _ = in.Close(), out.Close() // which never fail
		kill := time.AfterFunc(exitTimeout, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // the client reports the end
		kill.Stop()
	})}, nil
}

// commandStream is stdin and stdout of a command.
type commandStream struct {
	io.Reader
	io.Writer
	end func()
}

// Close implements io.Closer.
func (s *commandStream) Close() error {
	s.end()
	return nil
}
