package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// Ticket identifies an environment for Attach. It is a secret: with it and the daemon anybody can
// use the environment. Its fields are for encoding; their meaning may change.
type Ticket struct {
	Session   string        `json:"session"`
	Container string        `json:"container"`
	Args      []string      `json:"args,omitempty"`
	Token     string        `json:"token"`
	TTL       time.Duration `json:"ttl"`
}

// Ticket returns the ticket for reattaching to the environment.
func (e *Environment) Ticket() Ticket {
	h := e.handle
	return Ticket{
		Session: e.config.Session, Container: h.id, Args: h.program.args, Token: e.token,
		TTL: h.ttl,
	}
}

// Attach reattaches to a running environment, which may have other clients. The error is
// env.ErrGone if it has ended. Close removes the container for all clients; Leave disconnects only
// this one.
func (e *Engine) Attach(ctx context.Context, t Ticket) (*Environment, error) {
	if !sessionPattern().MatchString(t.Session) || t.Container == "" || t.Token == "" || t.TTL <= 0 {
		return nil, &ConfigError{Field: "session", Reason: "the ticket is invalid"}
	}
	h := &handle{
		engine: e, id: t.Container, name: namePrefix + t.Session,
		program: &program{args: t.Args}, ttl: t.TTL,
	}
	e.watch.follow(h.id)
	client, err := client.Open(ctx, client.Config{Dial: h.dial, Token: t.Token, Redial: t.TTL})
	if err != nil {
		e.watch.forget(h.id)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("docker: attach to %s: %w", h.name, err)
	}
	// The isolation is not known: another process created the container.
	return &Environment{
		base: remote.New(client, backend, env.Guarantee{}), handle: h, config: Config{
			Session: t.Session,
			TTL:     t.TTL,
		}, token: t.Token,
	}, nil
}

// Leave disconnects and keeps the environment running; it ends Config.TTL after its last client
// disconnects. Calls in progress end as if the connection was lost.
func (e *Environment) Leave() error {
	e.closing.Do(func() {
		e.base.Leave()
		e.handle.engine.watch.forget(e.handle.id)
	})
	return nil
}
