//go:build unix

package sandboxd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFirstLine bounds the first line of a client.
	maxFirstLine = 8 << 20
	// crowdTime bounds the wait while the queue of the socket is full.
	crowdTime = 20 * time.Second
	// answerTime bounds the wait for an answer after a failed write.
	answerTime = 2 * time.Second
	// waitPause is the pause between tries while no process listens.
	waitPause = 10 * time.Millisecond
)

// dial connects the standard streams to the socket until either ends. It reads the client's first
// line before, so that the server need not wait for it. If pid is not 0, nothing is sent to a
// listener of another number. It waits for a listener as long as wait.
func dial(socket string, pid int, wait time.Duration) error {
	signals, stop := notify() // before takeStdio, whose changes a signal has to undo
	defer stop()
	stream, err := takeStdio()
	if err != nil {
		return err
	}
	go exitOnSignal(signals, stream)
	err = join(socket, pid, wait, stream)
	return errors.Join(err, stream.Close())
}

// exitOnSignal ends the process as a signal would, after restoring the standard streams.
func exitOnSignal(signals <-chan os.Signal, stream *duplex) {
	code := exitError
	if number, ok := (<-signals).(syscall.Signal); ok {
		code = 128 + int(number)
	}
	stream.restore()
	os.Exit(code)
}

func join(socket string, pid int, wait time.Duration, stream io.ReadWriter) error {
	in := bufio.NewReader(stream)
	line, err := readLine(in)
	if err != nil {
		return fmt.Errorf("the client's first line: %w", err)
	}
	c, err := connect(socket, pid)
	for end := time.Now().Add(wait); isGone(err) && time.Now().Before(end); {
		time.Sleep(waitPause)
		c, err = connect(socket, pid)
	}
	if err != nil {
		return err
	}
	forth, back := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Write(line)
		if err == nil {
			_, err = io.Copy(c, in)
		}
		forth <- err
	}()
	go func() {
		_, err := io.Copy(stream, c)
		back <- err
	}()
	select {
	case err = <-back:
	case err = <-forth:
		if err != nil {
			// The server may have written a reason before it closed.
			_ = c.SetReadDeadline(time.Now().Add(answerTime))
			err = errors.Join(fmt.Errorf("socket %s: %w", socket, err), <-back)
		}
	}
	return errors.Join(err, c.Close())
}

// readLine reads a line with its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); err == nil {
			return line, nil
		}
		if len(line) > maxFirstLine {
			return nil, fmt.Errorf("longer than %d bytes", maxFirstLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// connect connects to the socket and checks the listener. It waits while the queue of the socket is
// full.
func connect(socket string, pid int) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, fmt.Errorf("socket %s: connect: %w",
			socket, err)
	}
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fail(err)
	}
	timeout := unix.NsecToTimeval(crowdTime.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	for err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err == nil {
			break
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err == nil {
		err = checkListener(fd, pid, isAbstract(socket))
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fail(err)
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// isGone reports whether a connection failed because no process listens.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}
