package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

const (
	// maxNoise bounds what a login may print before anything is answered.
	maxNoise = 1 << 20
	// statusTime bounds the wait for the exit status behind the end of the output.
	statusTime = 2 * time.Second
	// exitGone is the exit code with which the helper says that nobody listens on a socket.
	exitGone = 3
)

// stream is a channel of a connection whose Close ends Read and Write at once, also where the other side is silent: a
// channel by itself waits for that.
type stream struct {
	in    *io.PipeWriter
	out   io.Reader
	close func() error
}

// newStream makes a stream of what goes to in and comes from out. End is called once, by Close, and ends Read.
func newStream(in io.WriteCloser, out io.Reader, end func() error) *stream {
	toR, toW := io.Pipe()
	go func() {
		_, err := io.Copy(in, toR)
		if err == nil { // Close
			err = in.Close()
		}
		_ = toR.CloseWithError(err)
	}()
	return &stream{in: toW, out: out, close: end}
}

// newOutput returns what comes from a channel. Its Close ends Read at once.
func newOutput(channel io.Reader) *io.PipeReader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, channel)
		_ = w.CloseWithError(err)
	}()
	return r
}

func (s *stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close implements io.Closer.
func (s *stream) Close() error {
	_ = s.in.Close()
	return s.close()
}

// process is a command on the host.
type process struct {
	session *session
	in      io.WriteCloser
	output  *io.PipeReader
	out     *bufio.Reader // of output
	said    *helper.Said
	// exited is closed when the command has ended and its status is known, or never will be.
	exited chan struct{}
	status error
}

// maxStarts is how often a command is started in sessions that end at once.
const maxStarts = 10

// again reports whether a start that has failed so many times is tried once more, after a pause.
func again(ctx context.Context, tries int) bool {
	timer := time.NewTimer(time.Duration(tries) * 10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return tries < maxStarts
	}
}

// start starts a command line in a session of its own. The user's login shell reads it, whichever that is. It may be
// started more than once, so it has to be one that does nothing before it is told something, or nothing twice.
func (h *Host) start(ctx context.Context, line string) (*process, error) {
	for tries := 1; ; tries++ {
		p, err := h.startOnce(ctx, line)
		// Dropbear closes a session now and then that takes the place of one that has just ended.
		if errors.Is(err, io.EOF) && again(ctx, tries) {
			continue
		}
		return p, err
	}
}

func (h *Host) startOnce(ctx context.Context, line string) (_ *process, err error) {
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	p := &process{session: s, said: &helper.Said{}, exited: make(chan struct{})}
	s.Stderr = p.said
	if p.in, err = s.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err = await(ctx, func() (struct{}, error) { return struct{}{}, s.Start(line) }, func(struct{}) {}); err != nil {
		return nil, fmt.Errorf("ssh: %s: start a command: %w", h, err)
	}
	p.output = newOutput(out)
	p.out = bufio.NewReaderSize(p.output, 32<<10)
	go func() {
		p.status = s.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Close ends the session, and calls that read its output. What the command does about it is up to it.
func (p *process) Close() error {
	_ = p.output.Close() // never fails
	return p.session.Close()
}

// stream makes a stream of the process, which is not read or written by other means from now on.
func (p *process) stream() *stream { return newStream(p.in, p, p.Close) }

// Read reads the output, and explains its end.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if errors.Is(err, io.EOF) {
		err = p.why(err)
	}
	return n, err
}

// why explains the end of the output.
func (p *process) why(err error) error {
	timer := time.NewTimer(statusTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		return err
	}
	var exit *gossh.ExitError
	if errors.As(p.status, &exit) && exit.ExitStatus() == exitGone {
		return fmt.Errorf("%w: its helper has ended: %s", env.ErrGone, cleanText(p.said.String()))
	}
	return err
}

// answers reads what a script says behind its mark, and drops all else.
type answers struct {
	p    *process
	mark string
	last string // the last line that was dropped
}

// next returns the words of the next answer.
func (a *answers) next() (string, error) {
	var line []byte
	for dropped := 0; dropped < maxNoise; {
		part, err := a.p.out.ReadSlice('\n')
		if len(line) < 8<<10 {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			dropped += len(part)
			continue
		case errors.Is(err, io.EOF):
			return "", a.ended(line)
		case err != nil:
			return "", err
		}
		if rest, ok := strings.CutPrefix(string(line), a.mark+" "); ok {
			rest, whole := strings.CutSuffix(rest, "\n")
			if !whole {
				return "", fmt.Errorf("%w: an answer of the host's shell has no end", env.ErrProtocol)
			}
			return rest, nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			a.last = text
		}
		dropped += len(part)
		line = line[:0]
	}
	return "", fmt.Errorf("the login on the host prints without end: a command over ssh should print nothing of its own")
}

// ended says why there are no more answers.
func (a *answers) ended(last []byte) error {
	timer := time.NewTimer(statusTime)
	defer timer.Stop()
	status := io.ErrUnexpectedEOF
	select {
	case <-a.p.exited:
		if a.p.status != nil {
			status = a.p.status
		}
	case <-timer.C:
	}
	var exit *gossh.ExitError
	switch said := cleanText(a.p.said.String() + " " + a.last + " " + string(last)); {
	case errors.As(status, &exit):
		status = fmt.Errorf("its shell ended with status %d, and said %q", exit.ExitStatus(), said)
	case said != "":
		status = fmt.Errorf("%w; it said %q", status, said)
	}
	return status
}
