package portable

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// library is what every shell learns when it starts.
//
//go:embed portable.sh
var library string

const (
	// maxText bounds what is kept of the messages of an operation.
	maxText = 4 << 10
	// maxNoise bounds what comes before a shell says hello, and noiseTime how long that takes.
	maxNoise, noiseTime = 1 << 20, time.Minute
)

// errSlow means that a shell has not said hello in time.
var errSlow = fmt.Errorf("nothing for %v", noiseTime)

// A Shell is one running /bin/sh in the place, without a terminal, that reads commands from its standard input.
type Shell struct {
	// Stdin is the shell's standard input. Its Close ends it and nothing else. What is on its way then may be lost.
	Stdin io.WriteCloser
	// Stdout and Stderr are its outputs, which are separate. They are read from one goroutine each, and both are read
	// while anything is expected, so that one connection may carry them.
	Stdout, Stderr io.Reader
	// Noisy says that something else may print on both outputs before the shell reads its first command: what a login runs.
	Noisy bool
	// Close ends the contact with the shell: calls of the others that block return, and so do later ones. It ends the
	// shell's standard input as well, and should kill the shell where that is possible. It is called once.
	Close func() error
}

// shell is a Shell that has learnt the library.
type shell struct {
	raw            Shell
	pid            int
	dir            string // the folder of its pipes
	stdout, stderr *scanner
	abandon        func() // ends the contact
	// once says that the shell takes no operation after the one it has.
	once bool
}

// newShell teaches a Shell the library. It ends the contact if that fails.
func newShell(ctx context.Context, raw Shell, dir, prologue string) (*shell, error) {
	s := &shell{
		raw: raw, dir: dir, stdout: newScanner(raw.Stdout), stderr: newScanner(raw.Stderr),
		abandon: sync.OnceFunc(func() { _ = raw.Close() }), // the contact is over whatever it says
	}
	o := operation{before: strip(library) + "cd /\nsa_d=" + quote(dir) + "\n" + prologue, body: "echo $$"}
	if raw.Noisy {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, noiseTime, errSlow)
		defer cancel()
		o.hello = newMark()
		// The word is in two parts, so that it is not found in the script by what prints that.
		half := len(o.hello) / 2
		say := "printf '%s%s g 0 0\\n' " + o.hello[:half] + " " + o.hello[half:]
		o.before = say + "\n" + say + " >&2\n" + o.before
	}
	// Nothing may stand before the first record, or between it and the hello, so that what a shell of another kind says is
	// not taken for an answer.
	var out limited
	o.out = out.add
	code, text, err := s.run(ctx, o)
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: a shell ends its start with %d: %s", env.ErrProtocol, code, text)
	}
	if err == nil {
		pid, perr := strconv.Atoi(strings.TrimSpace(out.String()))
		if s.pid = pid; perr != nil || pid < 2 {
			err = fmt.Errorf("%w: the process number of a shell is %.40q", env.ErrProtocol, out.String())
		}
	}
	if err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// strip returns a script without its comments and its indentation.
func strip(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		if line = strings.TrimLeft(line, " "); !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// An operation is something that a shell does.
type operation struct {
	// hello, if set, is a mark that before says on both streams. What comes before it is dropped.
	hello string
	// before stands in front, for the shell to read command by command.
	before string
	// body is a list of commands, the last of which answers with a code.
	body string
	// input is standard input of exactly the number of bytes that body takes; nil is none. If body fails, the shell ends,
	// so that it does not take for commands what is left.
	input io.Reader
	// last says that input is of any length, for body to read from "$sa_d/i". The shell ends with it, and run does not
	// wait for a Read of input.
	last bool
	// out gets what body prints; nil discards it. Its error ends the operation.
	out func([]byte) error
	// mark is the mark of the operation; empty means a new one.
	mark string
}

// script returns what the shell is told.
func (o operation) script() string {
	begin, input, end := "", " </dev/null", ""
	if o.input != nil {
		begin, input, end = "sa_say g 0 0\n", "", "[ $sa_r -eq 0 ] || sa_stay\n"
	}
	if o.last {
		begin, input, end = "sa_feed\nsa_say g 0 0\n", ` <"$sa_d/i"`, "sa_leave\n"
	}
	return o.before + "{ sa_m=" + o.mark + "\n" + begin + "{ " + o.body + "\n}" + input + "\nsa_r=$?\nsa_done $sa_r\n" + end + "}\n"
}

// run runs an operation and returns its code and its messages. After an error the shell is of no use any more. The end
// of ctx ends the contact.
func (s *shell) run(ctx context.Context, o operation) (code int, text string, err error) {
	if o.mark == "" {
		o.mark = newMark()
	}
	stop := context.AfterFunc(ctx, s.abandon)
	defer func() {
		if !stop() {
			s.once = true // ctx ended when all had been said
		}
	}()
	begun, over := make(chan struct{}), make(chan struct{})
	sent := make(chan error, 1)
	go func() { sent <- s.send(o, begun, over) }()
	var messages limited
	failed := make(chan error, 1)
	go func() {
		err := s.stderr.skip(o.hello)
		if err == nil {
			_, err = s.stderr.until(o.mark, messages.add, nil)
		}
		if err != nil {
			s.abandon()
		}
		failed <- err
	}()
	if err = s.stdout.skip(o.hello); err == nil {
		code, err = s.stdout.until(o.mark, o.out, sync.OnceFunc(func() { close(begun) }))
	}
	close(over)
	if err != nil {
		s.abandon()
	}
	err = errors.Join(err, <-failed)
	if o.last || o.input != nil && code != codeOK {
		s.abandon() // nobody reads what may still be sent
	} else if werr := <-sent; err == nil {
		err = werr
	}
	switch {
	case err == nil || ctx.Err() == nil:
	case errors.Is(err, errNoShell):
		err = fmt.Errorf("%w: %w", ended(ctx), err)
	default:
		err = ended(ctx)
	}
	return code, messages.String(), err
}

// send sends the script and, when the shell has read all of it and says so, what follows: a shell reads ahead.
func (s *shell) send(o operation, begun, over <-chan struct{}) error {
	if _, err := io.WriteString(s.raw.Stdin, o.script()); err != nil || o.input == nil {
		return err
	}
	select {
	case <-begun:
	case <-over:
		return nil
	}
	if o.last {
		return sendParts(s.raw.Stdin, o.input, func(error) {}) // whoever gives the input knows
	}
	_, err := io.Copy(s.raw.Stdin, o.input)
	return err
}

// errInput means that standard input did not come as it was sent.
var errInput = fmt.Errorf("standard input was lost: %w", io.ErrUnexpectedEOF)

// until gives what comes before the end of an operation to out, and returns the operation's code. When the
// shell is ready for input, it calls begun.
func (s *scanner) until(mark string, out func([]byte) error, begun func()) (int, error) {
	for {
		data, rec, err := s.next(mark)
		switch {
		case err != nil:
			return 0, err
		case rec.kind == 'e':
			return rec.a, nil
		case rec.kind == 'g' && begun != nil:
			begun()
			continue
		case rec.kind == 'i':
			return 0, errInput
		case rec.kind != 0:
			return 0, fmt.Errorf("%w: unexpected record %q", env.ErrProtocol, rec.kind)
		}
		if out != nil {
			if err := out(data); err != nil {
				return 0, err
			}
		}
	}
}

// skip drops what comes before the record with this mark; an empty mark is none.
func (s *scanner) skip(mark string) error {
	if mark == "" {
		return nil
	}
	var said limited
	for n := 0; ; {
		data, rec, err := s.next(mark)
		switch {
		case err != nil:
			if text := strings.TrimSpace(said.String()); text != "" {
				return fmt.Errorf("%w: it says %.300q: %w", errNoShell, strings.ToValidUTF8(text, ""), err)
			}
			return fmt.Errorf("%w: %w", errNoShell, err)
		case rec.kind == 'g':
			return nil
		case rec.kind != 0:
			return fmt.Errorf("%w: unexpected record %q", env.ErrProtocol, rec.kind)
		}
		if n += len(data); n > maxNoise {
			return fmt.Errorf("%w: more than %d bytes before it", errNoShell, maxNoise)
		}
		_ = said.add(data) // never fails
	}
}

// errNoShell means that something has been started, and that it is no shell.
var errNoShell = fmt.Errorf("no shell answers: %w", errors.ErrUnsupported)

// limited keeps the first maxText bytes of what it gets.
type limited struct{ bytes.Buffer }

func (l *limited) add(data []byte) error {
	l.Write(data[:min(len(data), maxText-l.Len())])
	return nil
}

// collect keeps what it gets, up to max bytes.
type collect struct {
	data []byte
	max  int
}

func (c *collect) add(data []byte) error {
	if len(c.data)+len(data) > c.max {
		return fmt.Errorf("%w: more than %d bytes", env.ErrTooLarge, c.max)
	}
	c.data = append(c.data, data...)
	return nil
}

// cut returns err, and if ctx has ended, an error that wraps why. What err says is kept then if it says that it was cut off,
// as one does that has read what a login prints.
func cut(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case !errors.Is(err, ctx.Err()):
		return ended(ctx)
	case !errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	default:
		return err
	}
}

// ended is the error for a call that ended because ctx did. It wraps both ctx.Err and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
