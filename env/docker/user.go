package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Exec implements env.Environment. A command with a User runs below a second helper, which the
// daemon starts in the container as that user: with the limits, the mounts and the system call
// filter of the container, and without capabilities, also as root. HOME is /root for root, and /tmp
// for others. Only the client that opened the environment can run such a command. Leave and Close
// end it, as does the loss of the connection to the daemon, which is env.ErrUnknownOutcome.
func (e *Environment) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	user, argv := cmd.User, cmd.Argv
	cmd.User = ""
	for try := 1; ; try++ {
		helper, err := e.helperOf(ctx, user)
		if err != nil {
			err = fmt.Errorf("commands as user %q: %w", user, err)
			return env.Result{}, &env.StartError{Argv: slices.Clone(argv), Err: err}
		}
		result, err := helper.Exec(ctx, cmd)
		if helper == e.served || !errors.Is(err, env.ErrGone) {
			return result, err
		}
		e.handle.users.forget(helper)
		// The container's own helper tells whether the container has ended as well.
		if _, gone := e.Stat(ctx, "/"); errors.Is(gone, env.ErrGone) || ctx.Err() != nil {
			return result, err
		}
		start := (*env.StartError)(nil)
		switch started := !errors.As(err, &start); {
		case started:
			return result, fmt.Errorf("%w: the helper of user %s has ended", env.ErrUnknownOutcome, user)
		case try > 1 || cmd.Stdin != nil: // some of which may have been read
			err = fmt.Errorf("the helper of user %s has ended", user)
			return result, &env.StartError{Argv: slices.Clone(argv), Err: err}
		}
	}
}

// Kill implements remote.Served. Processes of another user that have killed their helper live on,
// with an error, until Close.
func (e *Environment) Kill() error {
	return errors.Join(e.served.Kill(), e.handle.users.each((*remote.Environment).Kill))
}

// helperOf returns the environment that runs commands as a user; empty means the container's.
func (e *Environment) helperOf(ctx context.Context, user string) (*remote.Environment, error) {
	c := e.config
	if user == "" {
		return e.served, nil
	}
	if c.Image == "" {
		return nil, fmt.Errorf("only the client that opened the environment can run them: %w",
			errors.ErrUnsupported)
	}
	var err error
	if c.User, err = parseUser(user); err != nil {
		return nil, fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	}
	if c.User == e.config.User {
		return e.served, nil
	}
	return e.handle.users.open(ctx, c, func(ctx context.Context) (*remote.Environment, error) {
		if err := e.handle.running(ctx); err != nil {
			return nil, err
		}
		s, err := e.handle.exec(ctx, c.User, e.handle.program.Serve(programPath, "", 0))
		if err != nil {
			return nil, err
		}
		home := tempDir
		if uid, _ := c.ids(); uid == 0 {
			home = rootDir
		}
		served, err := remote.Open(ctx, remote.Config{
			Backend: backend, Session: c.Session, Stream: s, Dir: c.WorkDir,
			Vars: slices.Concat(e.vars, []string{"HOME=" + home}, c.Vars),
		})
		if tail := s.stderr.String(); err != nil && tail != "" {
			err = fmt.Errorf("%w; stderr of the helper: %q", err, tail)
		}
		return served, err
	})
}

// exec starts a process in the container, as the container's user or another one, and returns its
// stdin and stdout.
func (h *handle) exec(ctx context.Context, user string, argv []string) (s *stream, err error) {
	err = h.engine.call(ctx, func(ctx context.Context) error {
		made, err := h.engine.api.ContainerExecCreate(ctx, h.id, container.ExecOptions{
			User: user, AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: argv,
		})
		if err != nil {
			return err
		}
		attached, err := h.engine.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
		if err == nil {
			s = newStream(attached)
		}
		return err
	})
	return s, h.engine.explain(ctx, err)
}

// users are the helpers of a container that run commands as other users than its own.
type users struct {
	// starting has room for one helper that starts.
	starting chan struct{}
	ended    context.Context
	end      context.CancelFunc

	mu     sync.Mutex
	byUser map[string]*remote.Environment
}

func newUsers() *users {
	u := &users{starting: make(chan struct{}, 1), byUser: make(map[string]*remote.Environment)}
	u.ended, u.end = context.WithCancel(context.Background())
	return u
}

// open returns the helper of c.User. If none runs, start starts one within c.StartTimeout.
func (u *users) open(
	ctx context.Context, c Config, start func(context.Context) (*remote.Environment, error),
) (*remote.Environment, error) {
	if helper := u.get(c.User); helper != nil {
		return helper, nil
	}
	timeout := fmt.Errorf("the helper was not ready within %s", c.StartTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout, timeout)
	defer cancel()
	select {
	case u.starting <- struct{}{}:
	case <-u.ended.Done():
		return nil, fs.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-u.starting }()
	if helper := u.get(c.User); helper != nil {
		return helper, nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer context.AfterFunc(u.ended, func() { stop(fs.ErrClosed) })()
	helper, err := start(ctx)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended.Err() != nil {
		return nil, errors.Join(fs.ErrClosed, helper.Close())
	}
	u.byUser[c.User] = helper
	return helper, nil
}

func (u *users) get(user string) *remote.Environment {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byUser[user]
}

// forget removes a helper that has ended.
func (u *users) forget(helper *remote.Environment) {
	u.mu.Lock()
	maps.DeleteFunc(u.byUser, func(_ string, h *remote.Environment) bool { return h == helper })
	u.mu.Unlock()
	_ = helper.Close() // nothing of it is left
}

// each calls a function with each helper.
func (u *users) each(call func(*remote.Environment) error) error {
	u.mu.Lock()
	helpers := slices.Collect(maps.Values(u.byUser))
	u.mu.Unlock()
	var errs []error
	for _, helper := range helpers {
		if err := call(helper); !errors.Is(err, env.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// close ends all helpers by a function, and lets none start any more.
func (u *users) close(by func(*remote.Environment) error) error {
	u.end()
	return u.each(by)
}
