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
	// maxPending is how many connections may be there that have not been let in or turned away.
	maxPending = 256
	// maxPendingPerPeer is how many of them one process may have.
	maxPendingPerPeer = 8
	// maxFailures is how many processes are remembered that came without being let in.
	maxFailures = 4096
	// maxSocketPath is the longest name that a socket can have on all systems.
	maxSocketPath = 103
	// acceptPause is the pause after an accept that failed, such as for want of descriptors.
	acceptPause = 50 * time.Millisecond
	// lockTime is how long to wait for others that make a socket in the same folder, and lockPause the pause between looks.
	lockTime  = 5 * time.Second
	lockPause = 10 * time.Millisecond
)

// door is the socket by which clients come back.
type door struct {
	listener *net.UnixListener
	server   *server.Server
	stop     context.CancelFunc

	mu       sync.Mutex
	pending  []*visitor
	places   map[int]int // how many of them each process has
	failures map[int]int // how often a process was not let in
}

// visitor is a connection. It is pending until the server has answered its Hello.
type visitor struct {
	*net.UnixConn
	peer     int // the number of its process; 0 if that is outside of this pid namespace
	leave    func(*visitor)
	answered atomic.Bool
}

// Write notes the answer to the Hello, which is the first that is written.
func (v *visitor) Write(p []byte) (int, error) {
	if !v.answered.Swap(true) {
		v.leave(v)
	}
	return v.UnixConn.Write(p)
}

// listen opens the door.
func listen(path string, server *server.Server) (*door, error) {
	l, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return openDoor(l, server), nil
}

// openDoor lets visitors of a socket in.
func openDoor(l *net.UnixListener, server *server.Server) *door {
	ctx, stop := context.WithCancel(context.Background())
	d := &door{listener: l, server: server, stop: stop, places: make(map[int]int), failures: make(map[int]int)}
	go d.accept(ctx)
	return d
}

// bind makes the socket. Nobody but this user can reach it at any time, since the folder is closed to others. A socket
// without a file is open to all of its network namespace; who they are is checked when they come.
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
	if err := checkFolder(dir); err != nil {
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

// checkFolder refuses a folder in which others could put something.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder: %w", dir, fs.ErrPermission)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user: %w", dir, fs.ErrPermission)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %#o, want 0700): %w", dir, info.Mode().Perm(), fs.ErrPermission)
	}
	return nil
}

// lock keeps other helpers from making a socket in the folder meanwhile.
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

// removeStale removes a socket at which nobody answers any more.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("there is another file: %w", fs.ErrExist)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("a helper listens there: %w", fs.ErrExist), c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// close closes the door. Who is inside stays.
func (d *door) close() {
	d.stop()
	_ = d.listener.Close()
}

// accept lets visitors in until the door is closed.
func (d *door) accept(ctx context.Context) {
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
		if err != nil || uid != 0 && uid != os.Geteuid() {
			_ = c.Close()
			continue
		}
		v := &visitor{UnixConn: c, peer: pid, leave: d.forget}
		if !d.admit(v) {
			_ = c.Close()
			continue
		}
		go func() {
			defer d.forget(v)
			if err := d.server.Serve(ctx, v); err != nil {
				d.failed(v)
			}
		}()
	}
}

// admit makes v pending. If there are too many, the one goes whose process has failed most often, and of those the one
// whose process has the most that are pending. Who comes for the first time and alone is replaced only by others like it,
// and says the token before so many processes can be made. It reports false if v itself is the one.
func (d *door) admit(v *visitor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.peer != 0 && d.places[v.peer] >= maxPendingPerPeer {
		d.fail(v)
		return false
	}
	if len(d.pending) < maxPending {
		d.pending = append(d.pending, v)
		d.places[v.peer]++
		return true
	}
	worse := func(a, b *visitor) int {
		return cmp.Or(cmp.Compare(d.failures[a.peer], d.failures[b.peer]), cmp.Compare(d.places[a.peer], d.places[b.peer]))
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
	d.leave(worst)
	d.pending = append(d.pending, v)
	d.places[v.peer]++
	return true
}

// failed notes that v was not let in.
func (d *door) failed(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail(v)
}

func (d *door) fail(v *visitor) {
	if len(d.failures) >= maxFailures {
		clear(d.failures) // numbers of processes are used again anyway
	}
	if v.peer != 0 {
		d.failures[v.peer]++
	}
}

// forget takes v out of those that are pending.
func (d *door) forget(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.pending, v); i >= 0 {
		d.leave(i)
	}
}

// leave frees a place.
func (d *door) leave(i int) {
	v, last := d.pending[i], len(d.pending)-1
	d.pending[i] = d.pending[last]
	d.pending = d.pending[:last]
	if d.places[v.peer]--; d.places[v.peer] == 0 {
		delete(d.places, v.peer)
	}
}

var _ io.ReadWriteCloser = (*visitor)(nil)
