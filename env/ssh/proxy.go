package ssh

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// proxyExitTime bounds the wait for a ProxyCommand that closed its stdout to exit.
const proxyExitTime = time.Second

// proxyConn is a connection over stdin and stdout of a ProxyCommand. Close kills the command and
// its process group.
type proxyConn struct {
	stdin  io.Writer
	stdout io.Reader
	cmd    *exec.Cmd
	stderr *helper.StderrTail
	exited chan struct{}
	closed func() error
}

// dialProxy starts the ProxyCommand of h, with its tokens expanded.
func dialProxy(h *hop) (net.Conn, error) {
	cmd, err := shellCommand("exec " + h.proxyCommand)
	if err != nil {
		return nil, fmt.Errorf("ProxyCommand: %w", err)
	}
	c := &proxyConn{cmd: cmd, stderr: &helper.StderrTail{}, exited: make(chan struct{})}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, w := io.Pipe()
	c.stdin, c.stdout = stdin, stdout
	cmd.Stdout, cmd.Stderr = w, c.stderr
	cmd.WaitDelay = proxyExitTime // a descendant may keep its pipes
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start ProxyCommand: %w", err)
	}
	go func() {
		_ = cmd.Wait() // Read and Write report stderr, which explains more
		close(c.exited)
		_ = w.Close() // never fails
	}()
	c.closed = sync.OnceValue(func() error {
		_ = killTree(cmd.Process) // it may have exited
		_ = stdout.Close()
		_ = stdin.Close()
		<-c.exited
		return nil
	})
	return c, nil
}

// Read reads stdout of the command. Its end is an error with the stderr of the command.
func (c *proxyConn) Read(p []byte) (int, error) {
	n, err := c.stdout.Read(p)
	if err != nil {
		err = c.ended(err)
	}
	return n, err
}

// Write writes to stdin of the command. Its error is like that of Read: either may see the end of
// the command first.
func (c *proxyConn) Write(p []byte) (int, error) {
	n, err := c.stdin.Write(p)
	if err != nil {
		select {
		case <-c.exited: // stderr is complete
		case <-time.After(proxyExitTime):
		}
		err = c.ended(err)
	}
	return n, err
}

func (c *proxyConn) ended(err error) error {
	return fmt.Errorf("ProxyCommand ended: %q: %w", cleanText(c.stderr.String()), err)
}

func (c *proxyConn) Close() error                     { return c.closed() }
func (c *proxyConn) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (c *proxyConn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (c *proxyConn) SetDeadline(time.Time) error      { return nil }
func (c *proxyConn) SetReadDeadline(time.Time) error  { return nil }
func (c *proxyConn) SetWriteDeadline(time.Time) error { return nil }
