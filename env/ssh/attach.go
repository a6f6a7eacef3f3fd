package ssh

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// Ticket identifies an environment for Attach. It is a secret: its holder can do in the
// environment what its owner can. Its fields are for encoding only.
type Ticket struct {
	Session string        `json:"session"`
	Dir     string        `json:"folder"`
	Program string        `json:"program"`
	Args    []string      `json:"args,omitempty"`
	Token   string        `json:"token"`
	TTL     time.Duration `json:"ttl"`
}

// Ticket returns the ticket of the environment.
func (e *Environment) Ticket() Ticket {
	return Ticket{
		Session: e.config.Session, Dir: e.helper.dir, Program: e.helper.program, Args: e.helper.args,
		Token: e.token, TTL: e.config.TTL,
	}
}

// Attach connects to an existing environment, which may have other clients. If it has ended, the
// error is env.ErrGone. Leave disconnects from it; Close ends it, for all of its clients.
func (h *Host) Attach(ctx context.Context, t Ticket) (_ *Environment, err error) {
	if !sessionPattern().MatchString(t.Session) || !path.IsAbs(t.Dir) || !path.IsAbs(t.Program) ||
		t.Token == "" || t.TTL <= 0 {
		return nil, badConfig("session", "the ticket is damaged")
	}
	if err := h.hold(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	ctx, cancel := h.boundScript(ctx)
	defer cancel()
	p := &helperProcess{host: h, ttl: t.TTL, program: t.Program, args: t.Args, dir: t.Dir}
	client, err := client.Open(ctx, client.Config{Dial: p.dial, Token: t.Token, Redial: t.TTL})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ssh: attach to %s on %s: %w", t.Session, h, context.Cause(ctx))
	case errors.Is(err, env.ErrGone):
		return nil, fmt.Errorf("ssh: %s on %s: %w", t.Session, h, err)
	case err != nil:
		return nil, &StartError{Host: h.String(), Err: fmt.Errorf("attach to %s: %w", t.Session, err)}
	}
	return newEnvironment(h, client, Config{Session: t.Session, TTL: t.TTL}, p, t.Token), nil
}

// Leave disconnects from the environment, which ends after Config.TTL without a client. Calls in
// progress end as if the connection was lost.
func (e *Environment) Leave() error {
	e.closing.Do(func() {
		e.served.Leave()
		e.host.release()
	})
	return nil
}
