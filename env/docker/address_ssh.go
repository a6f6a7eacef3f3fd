package docker

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/docker/cli/cli/connhelper"
	"github.com/docker/docker/client"
)

// sshExitTime bounds the wait for the reason of the program ssh after a failed write to it.
const sshExitTime = 10 * time.Second

// sshOptions returns the options for a daemon behind the program ssh. In batch mode that never
// prompts, which would block a program without a terminal.
func sshOptions(host string) ([]client.Opt, error) {
	ssh, err := connhelper.GetConnectionHelperWithSSHOpts(host, []string{"-o", "BatchMode=yes"})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := ssh.Dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &sshConn{Conn: conn, ended: make(chan struct{})}, nil
	}
	return []client.Opt{
		// no proxy
		client.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: dial}}),
		client.WithHost(ssh.Host), client.WithDialContext(dial),
	}, nil
}

// sshConn is a connection over the program ssh. A failed write returns the error of the concurrent
// read, which has the exit status and stderr of the program: its own is only a broken pipe, and
// either may see the end of the program first.
type sshConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{} // closed when a read failed
	err   error         // of that read
}

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { c.err = err; close(c.ended) })
	}
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		select {
		case <-c.ended:
			err = c.err
		case <-time.After(sshExitTime):
		}
	}
	return n, err
}

// CloseWrite closes stdin of the program. The Docker client ends the input of a command with it.
func (c *sshConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}
