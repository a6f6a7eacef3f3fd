package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

const (
	// portableShells is how many shells an environment without a helper has at most. They are started when they are needed,
	// and take more than one connection then.
	portableShells = 3 * maxSessions
	// endTime is how long a shell whose output has ended may take to say how it ended.
	endTime = 2 * time.Second
)

// loginLine has the login shell, whatever its kind, start a shell that sees of the variables of a login only those that say
// who and where the user is. There is no exclamation mark in it, and no doubled backslash, which some of them would change.
const loginLine = `exec /bin/sh -c 'set --; for v in HOME PATH USER SHELL LANG TERM TMPDIR GOPATH CARGO_HOME NVM_DIR ` +
	`LC_ALL LC_CTYPE LC_COLLATE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME LC_ADDRESS LC_IDENTIFICATION LC_MEASUREMENT LC_NAME ` +
	`LC_PAPER LC_TELEPHONE; do eval "if [ \"\${$v+x}\" ]; then set -- \"\$@\" \"$v=\$$v\"; fi"; done; exec env -i "$@" /bin/sh'`

// openPortable opens an environment that has no helper. It ends with the first of its connections that is lost.
func (h *Host) openPortable(ctx context.Context, c Config) (*Environment, error) {
	s := &shells{host: h, open: make(map[*session]struct{}), lost: make(chan struct{})}
	f := newFiles(s, c.note)
	dir := c.WorkDir
	if dir == "~" {
		dir = ""
	}
	inner, err := portable.New(ctx, portable.Config{
		Start: s.start, Dir: strings.TrimPrefix(dir, "~/"), Vars: append([]string{SessionVar + "=" + c.Session}, c.Vars...), Backend: backend, MaxShells: portableShells, TTL: c.TTL,
		Files: f, Gone: s.gone,
	})
	if err != nil {
		f.close()
		return nil, &StartError{Host: h.String(), Err: err}
	}
	return newEnvironment(h, &portableEnvironment{Environment: inner, files: f, shells: s}, c), nil
}

// portableEnvironment is an environment without a helper.
type portableEnvironment struct {
	*portable.Environment
	files  *files
	shells *shells
}

// Close implements env.Environment.
func (e *portableEnvironment) Close() error {
	err := e.Environment.Close()
	e.files.close()
	if err == nil && e.shells.isLost() { // nobody has seen the end of what ran there
		err = fmt.Errorf("%w: %w", env.ErrGone, errLost)
	}
	return err
}

// shells starts shells on a host.
type shells struct {
	host *Host

	mu   sync.Mutex
	open map[*session]struct{}
	lost chan struct{} // closed when a connection was lost
}

func (s *shells) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// gone says why contact with a shell was lost.
func (s *shells) gone(_ context.Context, err error) error {
	if s.isLost() && !errors.Is(err, env.ErrGone) {
		return fmt.Errorf("%w: %w", env.ErrGone, errLost)
	}
	return err
}

// lose ends all shells: what they started ends, and nobody may take another host, or the same after a restart, for this one.
func (s *shells) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost() {
		return
	}
	close(s.lost)
	for one := range s.open {
		go func() { _ = one.Close() }() // whatever it says
	}
}

// start starts a shell.
func (s *shells) start(ctx context.Context) (portable.Shell, error) {
	for tries := 1; ; tries++ {
		if s.isLost() {
			return portable.Shell{}, fmt.Errorf("%w: %w", env.ErrGone, errLost)
		}
		one, err := s.host.session(ctx)
		if err != nil {
			return portable.Shell{}, err
		}
		shell, err := s.run(ctx, one)
		if err == nil {
			return shell, nil
		}
		_ = one.Close() // the error is known
		// Some servers, such as dropbear, now and then end a session that they have just let in. A shell may be started twice:
		// one that nobody talks to ends.
		if !errors.Is(err, io.EOF) || !again(ctx, tries) {
			return portable.Shell{}, fmt.Errorf("ssh: %s: %w", s.host, err)
		}
	}
}

// run starts a shell in a session.
func (s *shells) run(ctx context.Context, one *session) (portable.Shell, error) {
	stdin, err := one.StdinPipe()
	var stdout, stderr io.Reader
	if err == nil {
		stdout, err = one.StdoutPipe()
	}
	if err == nil {
		stderr, err = one.StderrPipe()
	}
	if err == nil {
		_, err = await(ctx, func() (struct{}, error) { return struct{}{}, one.Start(loginLine) }, func(struct{}) {})
	}
	if err != nil {
		return portable.Shell{}, err
	}
	s.mu.Lock()
	s.open[one] = struct{}{}
	over := s.isLost()
	s.mu.Unlock()
	if over {
		return portable.Shell{}, fmt.Errorf("%w: %w", env.ErrGone, errLost)
	}
	ended, closed := make(chan struct{}), make(chan struct{})
	out, said := newOutput(stdout), newOutput(stderr)
	go func() {
		err := one.Wait()
		var missing *gossh.ExitMissingError
		select {
		case <-closed: // and so its end says nothing
		default:
			// Dropbear ends a session without a word now and then, while the connection stays.
			if errors.As(err, &missing) && one.lost(endTime, closed) {
				s.lose()
			}
		}
		close(ended)
	}()
	return portable.Shell{
		Stdin: stdin, Stdout: &output{out, ended, s}, Stderr: &output{said, ended, s}, Noisy: true,
		Close: func() error {
			close(closed)
			s.mu.Lock()
			delete(s.open, one)
			s.mu.Unlock()
			// What has come is still read; a host may be silent for ever.
			time.AfterFunc(endTime, func() { _, _ = out.Close(), said.Close() })
			return one.Close()
		},
	}, nil
}

// output is an output of a shell that knows whether its end is that of the shell or of the connection.
type output struct {
	r     io.Reader
	ended <-chan struct{}
	s     *shells
}

// Read implements io.Reader.
func (o *output) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	if errors.Is(err, io.EOF) {
		select {
		case <-o.ended:
		case <-time.After(endTime):
		}
		if o.s.isLost() {
			err = errLost
		}
	}
	return n, err
}
