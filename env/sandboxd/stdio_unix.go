//go:build unix

package sandboxd

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// duplex is a stream of two files: the halves of a pair of pipes, or one socket.
type duplex struct {
	in, out *os.File
	undo    []int // copies of descriptors that have become non-blocking
	once    sync.Once
	ended   chan struct{} // closed by Close
	err     error
}

// takeStdio returns standard input and output as a stream, and puts the null device in their
// places, so that no other writer uses them.
func takeStdio() (*duplex, error) {
	d := &duplex{ended: make(chan struct{})}
	var err error
	if d.in, err = d.take(0, "stdin", unix.O_RDONLY); err != nil {
		return nil, err
	}
	if d.out, err = d.take(1, "stdout", unix.O_WRONLY); err != nil {
		return nil, errors.Join(err, d.in.Close())
	}
	return d, nil
}

// take moves a descriptor away, and makes it non-blocking if it can be polled. All descriptors of
// the same open file, such as that of a shell, become so; restore undoes it.
func (d *duplex) take(fd int, name string, mode int) (*os.File, error) {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	flags, err := unix.FcntlInt(uintptr(moved), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_NONBLOCK == 0 {
		if kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			d.undo = append(d.undo, kept)
		}
	}
	_ = unix.SetNonblock(moved, true) // or reads of it hold a thread each
	null, err := unix.Open(os.DevNull, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	if null != fd {
		if err := replace(null, fd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		_ = unix.Close(null)
	}
	return os.NewFile(uintptr(moved), name), nil
}

func (d *duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d *duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

// Close ends calls in progress.
func (d *duplex) Close() error {
	d.once.Do(func() {
		d.err = errors.Join(d.in.Close(), d.out.Close())
		d.restore()
		for _, fd := range d.undo {
			_ = unix.Close(fd)
		}
		close(d.ended)
	})
	return d.err
}

// restore makes files blocking again that were so before.
func (d *duplex) restore() {
	for _, fd := range d.undo {
		_ = unix.SetNonblock(fd, false)
	}
}

func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.in.SetDeadline(t), d.out.SetDeadline(t))
}
func (d *duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d *duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
