package docker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// shellPath is the shell of a container without a helper.
const shellPath = "/bin/sh"

// waitScript runs as long as its input is open, which is as long as the client is there.
const waitScript = `while read -r line; do :; done`

// openPortable makes the container without a helper. Its first process is Docker's own, which sees to orphans, and
// starts a shell that ends when the stream from here does; that ends everything else.
func (e *Engine) openPortable(ctx context.Context, c Config, ref string, found image.InspectResponse) (*Environment, error) {
	prepared, err := e.prepare(ctx, c, found)
	if err != nil {
		return nil, &StartError{Image: ref, Err: err}
	}
	box := &box{engine: e, name: namePrefix + c.Session, image: ref, ttl: c.TTL}
	s := c.spec(prepared, []string{shellPath, "-c", waitScript})
	first := true
	s.host.Init = &first
	attached, err := e.launch(ctx, c, box, s)
	if err != nil {
		return nil, err
	}
	box.first = attached
	go func() { _, _ = io.Copy(io.Discard, attached) }() // it says nothing
	inner, err := portable.New(ctx, portable.Config{
		Start: box.shell, Dir: c.WorkDir, Vars: c.vars(found), Backend: backend,
		Guarantees: []env.Guarantee{{
			Promise: env.CleanCrash, Strength: env.Enforced,
			By: "the first process ends with the stream to its client, and the kernel ends a pid namespace with its first process",
		}},
		Gone: box.lostShell,
	})
	if err != nil {
		return nil, errors.Join(box.unready(ctx, attached, err), attached.Close(), box.discard(ctx))
	}
	return newEnvironment(box, inner, c), nil
}

// shell starts a shell in the container.
func (b *box) shell(ctx context.Context) (portable.Shell, error) {
	hijacked, err := b.exec(ctx, []string{shellPath})
	if err != nil {
		return portable.Shell{}, err
	}
	out, toOut := io.Pipe()
	errs, toErr := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(toOut, toErr, hijacked.Reader)
		toOut.CloseWithError(err)
		toErr.CloseWithError(err)
	}()
	return portable.Shell{
		Stdin: &shellInput{hijacked.Conn, hijacked.CloseWrite}, Stdout: out, Stderr: errs,
		Close: func() error {
			hijacked.Close()
			return errors.Join(out.Close(), errs.Close())
		},
	}, nil
}

// shellInput is the standard input of a shell.
type shellInput struct {
	io.Writer
	close func() error
}

func (s *shellInput) Close() error { return s.close() }

// lostShell says why contact with a shell was lost.
func (b *box) lostShell(ctx context.Context, err error) error {
	state, ierr := b.inspect(ctx)
	if gone := b.gone(ctx, state, ierr); gone != nil {
		return gone
	}
	if ierr != nil {
		// Without a helper nothing waits for a client to come back.
		return fmt.Errorf("%w: %w", env.ErrGone, b.engine.explain(ierr))
	}
	return err
}
