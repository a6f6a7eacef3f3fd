//go:build unix

package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
)

const (
	// maxPending bounds the connections that are not authorized yet.
	maxPending = 256
	// maxPendingPerPeer bounds those of one process.
	maxPendingPerPeer = 8
	// maxFailures bounds the processes whose failures are counted.
	maxFailures = 4096
	// maxSocketPath is the longest path of a socket on all systems.
	maxSocketPath = 103
	// acceptPause is the pause after a failed accept, for example for lack of descriptors.
	acceptPause = 50 * time.Millisecond
	// lockTime bounds the wait for helpers that create a socket in the same directory. lockPause is
	// the pause between tries.
	lockTime  = 5 * time.Second
	lockPause = 10 * time.Millisecond
)

// socketServer accepts the clients that reconnect by the socket.
type socketServer struct {
	listener *net.UnixListener
	server   *server.Server
	stop     context.CancelFunc
	// inside rejects processes of other pid namespaces.
	inside bool

	mu        sync.Mutex
	pending   []*pendingConn
	pendingBy map[int]int // the number of pending connections of each process
	failures  map[int]int // by process
}

// pendingConn is a connection. It is pending until the server has answered its Hello.
type pendingConn struct {
	*net.UnixConn
	peer     int // the process ID; 0 outside of this pid namespace
	settle   func(*pendingConn)
	answered atomic.Bool
}

// Write ends the pending state: the first write is the answer to the Hello.
func (v *pendingConn) Write(p []byte) (int, error) {
	if !v.answered.Swap(true) {
		v.settle(v)
	}
	return v.UnixConn.Write(p)
}

// listen creates the socket and serves it.
func listen(path string, server *server.Server) (*socketServer, error) {
	l, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return newSocketServer(l, server, false), nil
}

// newSocketServer serves a socket, with inside only to processes of this pid namespace.
func newSocketServer(l *net.UnixListener, server *server.Server, inside bool) *socketServer {
	ctx, stop := context.WithCancel(context.Background())
	d := &socketServer{
		listener:  l,
		server:    server,
		stop:      stop,
		inside:    inside,
		pendingBy: make(map[int]int),
		failures:  make(map[int]int),
	}
	go d.accept(ctx)
	return d
}

// bind creates the socket. The mode of its directory keeps other users from it at all times. A
// socket without a file is open to its network namespace; its peers are checked on connect.
func bind(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the name is longer than %d bytes: %w", maxSocketPath, fs.ErrInvalid)
	}
	if isAbstract(path) {
		return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkDir rejects a directory in which other users could create files.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: %w", dir, fs.ErrPermission)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user: %w", dir, fs.ErrPermission)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf(
			"%s is open to other users (mode %#o, want 0700): %w", dir, info.Mode().Perm(), fs.ErrPermission,
		)
	}
	return nil
}

// lock keeps other helpers from creating a socket in the directory.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTime); ; time.Sleep(lockPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline):
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: dir, Err: err}, f.Close())
		}
	}
}

// removeStale removes a socket that no process listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("another file exists: %w", fs.ErrExist)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("a helper listens on it: %w", fs.ErrExist), c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// close stops accepting clients. Accepted ones stay connected.
func (d *socketServer) close() {
	d.stop()
	_ = d.listener.Close()
}

// accept accepts connections until ctx ends.
func (d *socketServer) accept(ctx context.Context) {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		uid, pid, err := peerOf(c)
		if err != nil || uid != 0 && uid != os.Geteuid() || d.inside && pid == 0 {
			_ = c.Close()
			continue
		}
		v := &pendingConn{UnixConn: c, peer: pid, settle: d.settle}
		if !d.admit(v) {
			_ = c.Close()
			continue
		}
		go func() {
			defer d.settle(v)
			if err := d.server.Serve(ctx, v); err != nil {
				d.failed(v)
			}
		}()
	}
}

// admit makes c pending. Above the limit it closes a connection of the process with the most
// failures, and among those of the one with the most pending connections. A first single connection
// is replaced only by others like it, and sends its token before so many processes can start. It
// returns false if c itself is rejected.
func (d *socketServer) admit(v *pendingConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.peer != 0 && d.pendingBy[v.peer] >= maxPendingPerPeer {
		d.fail(v)
		return false
	}
	if len(d.pending) < maxPending {
		d.pending = append(d.pending, v)
		d.pendingBy[v.peer]++
		return true
	}
	worse := func(a, b *pendingConn) int {
		return cmp.Or(cmp.Compare(d.failures[a.peer], d.failures[b.peer]),
			cmp.Compare(d.pendingBy[a.peer], d.pendingBy[b.peer]))
	}
	worst := rand.IntN(maxPending)
	for i, p := range d.pending {
		if worse(p, d.pending[worst]) > 0 {
			worst = i
		}
	}
	if d.failures[v.peer] > 0 && worse(v, d.pending[worst]) >= 0 {
		d.fail(v)
		return false
	}
	_ = d.pending[worst].Close() // Serve ends
	d.removePending(worst)
	d.pending = append(d.pending, v)
	d.pendingBy[v.peer]++
	return true
}

// failed counts a failure of c's process.
func (d *socketServer) failed(v *pendingConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail(v)
}

func (d *socketServer) fail(v *pendingConn) {
	if len(d.failures) >= maxFailures {
		clear(d.failures) // process IDs are reused anyway
	}
	if v.peer != 0 {
		d.failures[v.peer]++
	}
}

// settle ends the pending state of c.
func (d *socketServer) settle(v *pendingConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.pending, v); i >= 0 {
		d.removePending(i)
	}
}

// removePending removes the pending connection i.
func (d *socketServer) removePending(i int) {
	v, last := d.pending[i], len(d.pending)-1
	d.pending[i] = d.pending[last]
	d.pending = d.pending[:last]
	if d.pendingBy[v.peer]--; d.pendingBy[v.peer] == 0 {
		delete(d.pendingBy, v.peer)
	}
}

var _ io.ReadWriteCloser = (*pendingConn)(nil)
