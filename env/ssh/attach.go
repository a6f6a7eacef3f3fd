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

// Ticket is what it takes to come back to an environment. Who has it can do in the environment what its owner can: it is
// a secret. Its fields are for encoding, and their meaning may change.
type Ticket struct {
	Session string        `json:"session"`
	Folder  string        `json:"folder"`
	Program string        `json:"program"`
	Args    []string      `json:"args,omitempty"`
	Token   string        `json:"token"`
	TTL     time.Duration `json:"ttl"`
}

// Ticket returns what it takes to come back to the environment. It reports false for one without a helper, which ends with
// its connection.
func (e *Environment) Ticket() (Ticket, bool) {
	if e.place == nil {
		return Ticket{}, false
	}
	return Ticket{
		Session: e.config.Session, Folder: e.place.folder, Program: e.place.program, Args: e.place.args, Token: e.token, TTL: e.config.TTL,
	}, true
}

// Attach returns an environment that there is on the host already, and which may have other clients. One that has ended
// is env.ErrGone. Its Leave ends the contact; its Close ends the environment, for all of its clients.
func (h *Host) Attach(ctx context.Context, t Ticket) (_ *Environment, err error) {
	if !sessionPattern().MatchString(t.Session) || !path.IsAbs(t.Folder) || !path.IsAbs(t.Program) || t.Token == "" || t.TTL <= 0 {
		return nil, &ConfigError{Field: "session", Reason: "the ticket is damaged"}
	}
	if err := h.hold(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, h.patience, fmt.Errorf("no answer within %s", h.patience))
	defer cancel()
	p := &place{host: h, ttl: t.TTL, program: t.Program, args: t.Args, folder: t.Folder}
	client, err := client.Open(ctx, client.Config{Dial: p.dial, Token: t.Token, Redial: t.TTL})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ssh: attach to %s on %s: %w", t.Session, h, context.Cause(ctx))
	case errors.Is(err, env.ErrGone):
		return nil, fmt.Errorf("ssh: %s on %s: %w", t.Session, h, err)
	case err != nil:
		return nil, &StartError{Host: h.String(), Err: fmt.Errorf("attach to %s: %w", t.Session, err)}
	}
	e := newEnvironment(h, client, Config{Session: t.Session, TTL: t.TTL})
	e.place, e.token = p, t.Token
	return e, nil
}

// Leave ends the contact and keeps the environment, which ends when it has had no client for Config.TTL. Calls in progress
// end as if the connection was lost. Without a helper it is Close.
func (e *Environment) Leave() error {
	if e.place == nil {
		return e.Close()
	}
	e.closing.Do(func() {
		e.inside.Leave()
		e.host.release()
	})
	return nil
}
