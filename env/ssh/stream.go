package ssh

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

const (
	// maxNoise bounds the output of a login before the first answer.
	maxNoise = 1 << 20
	// exitTime bounds the wait for the exit code after the end of stdout.
	exitTime = 2 * time.Second
)

// stream is a channel of a connection whose Close ends Read and Write at once. The channel's own
// Close waits for the server.
type stream struct {
	in    *io.PipeWriter
	out   io.Reader
	close func() error
}

// newStream returns a stream that writes to in and reads from out. Close calls end, which ends
// Read.
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

// newOutput returns the output of a channel. Its Close ends Read at once.
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
	session *gossh.Session
	in      io.WriteCloser
	output  *io.PipeReader
	out     *bufio.Reader // of output
	stderr  *helper.StderrTail
	// exited is closed when the command or its session has ended; exitErr is set before.
	exited  chan struct{}
	exitErr error
}

// maxStarts is how often a command is started in sessions that end at once.
const maxStarts = 10

// retry reports, after a pause, whether a start that failed so many times is repeated.
func retry(ctx context.Context, tries int) bool {
	timer := time.NewTimer(time.Duration(tries) * 10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return tries < maxStarts
	}
}

// start starts a command line in a new session, with the user's login shell. It may start it
// more than once, so the command must have no effect before it reads stdin, or be idempotent.
func (h *Host) start(ctx context.Context, line string) (*process, error) {
	for tries := 1; ; tries++ {
		p, err := h.startOnce(ctx, line)
		// Dropbear sometimes closes a session that follows another one closely.
		if errors.Is(err, io.EOF) && retry(ctx, tries) {
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
	p := &process{session: s, stderr: &helper.StderrTail{}, exited: make(chan struct{})}
	s.Stderr = p.stderr
	if p.in, err = s.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err = await(ctx, nil, func() (struct{}, error) { return struct{}{}, s.Start(line) },
		func(struct{}) {}); err != nil {
		return nil, fmt.Errorf("ssh: %s: start a command: %w", h, err)
	}
	p.output = newOutput(out)
	p.out = bufio.NewReaderSize(p.output, 32<<10)
	go func() {
		p.exitErr = s.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Close ends the session and pending reads. The command gets SIGHUP, or the end of its stdin.
func (p *process) Close() error {
	_ = p.output.Close() // never fails
	return p.session.Close()
}

// stream returns a stream over stdin and stdout of the process.
func (p *process) stream() *stream { return newStream(p.in, p, p.Close) }

// Read reads stdout.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if errors.Is(err, io.EOF) {
		err = p.explainEnd(err)
	}
	return n, err
}

// explainEnd returns the error for the end of stdout.
func (p *process) explainEnd(err error) error {
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		return err
	}
	var exit *gossh.ExitError
	if errors.As(p.exitErr, &exit) && exit.ExitStatus() == remote.ExitGone {
		return fmt.Errorf("%w: its helper has ended: %s", env.ErrGone, cleanText(p.stderr.String()))
	}
	return err
}

// shellLine starts a shell that reads a script from stdin. Every login shell accepts it.
const shellLine = "exec /bin/sh"

// runScript sends a script to a shell of the host, after its variables, and passes the answers to a
// function until it returns true or an error. The caller closes the process, whose stdin then
// belongs to the program that the script started.
func (h *Host) runScript(
	ctx context.Context, vars [][2]string, script string, answer func(line string) (bool, error),
) (_ *process, err error) {
	p, err := h.start(ctx, shellLine)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = p.Close()
		}
	}()
	// The mark is in no other output by chance.
	lines := answers{p: p, mark: "SANDBOXAGENT-" + rand.Text()}
	var text strings.Builder
	for _, v := range append(vars, [2]string{"m", lines.mark}) {
		text.WriteString(v[0] + "=" + quote(v[1]) + "\n")
	}
	go func() { _, _ = io.WriteString(p.in, text.String()+script) }() // a failure ends the answers
	for {
		line, err := lines.next()
		if err != nil {
			return nil, err
		}
		if done, err := answer(line); done || err != nil {
			return p, err
		}
	}
}

// quote returns text as one word of a POSIX shell, and of other shells if text has no backslash or
// exclamation mark.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

// answers reads the lines of a script that start with its mark, and drops all others.
type answers struct {
	p    *process
	mark string
	last string // the last line that was dropped
}

// next returns the next line without its mark.
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
				return "", fmt.Errorf("%w: the last line of the host's shell has no end", env.ErrProtocol)
			}
			return rest, nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			a.last = text
		}
		dropped += len(part)
		line = line[:0]
	}
	return "", fmt.Errorf("the login on the host prints more than %d bytes: one for a command "+
		"should print nothing", maxNoise)
}

// ended returns the error for the end of the answers.
func (a *answers) ended(last []byte) error {
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	err := io.ErrUnexpectedEOF
	select {
	case <-a.p.exited:
		if a.p.exitErr != nil {
			err = a.p.exitErr
		}
	case <-timer.C:
	}
	var exit *gossh.ExitError
	switch printed := cleanText(a.p.stderr.String() + " " + a.last + " " + string(last)); {
	case errors.As(err, &exit):
		err = fmt.Errorf("its shell exited with code %d and printed %q", exit.ExitStatus(), printed)
	case printed != "":
		err = fmt.Errorf("%w; it printed %q", err, printed)
	}
	return err
}
