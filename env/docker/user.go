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
	user, given := cmd.User, cmd
	cmd.User = ""
	for try := 1; ; try++ {
		helper, err := e.helperOf(ctx, user)
		if err != nil {
			err = fmt.Errorf("commands as user %q: %w", user, err)
			return env.Result{}, &env.StartError{Argv: slices.Clone(given.Argv), Err: err}
		}
		result, err := helper.Exec(ctx, cmd)
		if helper == e.served || !errors.Is(err, env.ErrGone) {
			return result, err
		}
		e.handle.users.forget(helper)
		if start := (*env.StartError)(nil); try > 1 || !errors.As(err, &start) {
			return result, fmt.Errorf("%w: the helper of user %s has ended", env.ErrUnknownOutcome, user)
		}
	}
}

// Kill implements remote.Served. Processes of another user that have killed their helper live on,
// with an error, until Close.
func (e *Environment) Kill() error {
	return errors.Join(e.handle.users.end((*remote.Environment).Kill), e.served.Kill())
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
	return e.handle.users.open(c.User, func() (*remote.Environment, error) {
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

// users are the helpers of a container that run commands as other users than its own. The zero
// value has none.
type users struct {
	mu     sync.Mutex // held while a helper starts
	byUser map[string]*remote.Environment
	ended  bool
}

// open returns the helper of a user, which start starts if there is none.
func (u *users) open(
	user string, start func() (*remote.Environment, error),
) (*remote.Environment, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return nil, fs.ErrClosed
	}
	if helper := u.byUser[user]; helper != nil {
		return helper, nil
	}
	helper, err := start()
	if err != nil {
		return nil, err
	}
	if u.byUser == nil {
		u.byUser = make(map[string]*remote.Environment)
	}
	u.byUser[user] = helper
	return helper, nil
}

// forget removes a helper that has ended.
func (u *users) forget(helper *remote.Environment) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byUser, func(_ string, h *remote.Environment) bool { return h == helper })
	_ = helper.Close() // nothing of it is left
}

// end ends all helpers by a function, and lets none start any more.
func (u *users) end(by func(*remote.Environment) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	var errs []error
	for _, helper := range u.byUser {
		if err := by(helper); !errors.Is(err, env.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
