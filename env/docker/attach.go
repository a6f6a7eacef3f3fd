package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// Ticket is what it takes to come back to an environment. Who has it, and may use the daemon, can do in the environment
// what its owner can: it is a secret. Its fields are for encoding, and their meaning may change.
type Ticket struct {
	Session   string        `json:"session"`
	Container string        `json:"container"`
	Args      []string      `json:"args,omitempty"`
	Token     string        `json:"token"`
	TTL       time.Duration `json:"ttl"`
}

// Ticket returns what it takes to come back to the environment. It reports false for one without a helper, which ends with
// its connection.
func (e *Environment) Ticket() (Ticket, bool) {
	if e.token == "" {
		return Ticket{}, false
	}
	return Ticket{Session: e.config.Session, Container: e.box.id, Args: e.box.program.args, Token: e.token, TTL: e.box.ttl}, true
}

// Attach returns an environment that there is already, and which may have other clients. One that has ended is
// env.ErrGone. Its Leave ends the contact; its Close removes the container, for all of its clients.
func (e *Engine) Attach(ctx context.Context, t Ticket) (*Environment, error) {
	if !sessionPattern().MatchString(t.Session) || t.Container == "" || t.Token == "" || t.TTL <= 0 {
		return nil, &ConfigError{Field: "session", Reason: "the ticket is damaged"}
	}
	b := &box{engine: e, id: t.Container, name: namePrefix + t.Session, program: &program{args: t.Args}, ttl: t.TTL}
	e.watch.follow(b.id)
	client, err := client.Open(ctx, client.Config{Dial: b.dial, Token: t.Token, Redial: t.TTL})
	if err != nil {
		e.watch.forget(b.id)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("docker: attach to %s: %w", b.name, err)
	}
	// Nothing is said of the container's isolation, since it was made by somebody else.
	return &Environment{
		inside: remote.New(client, backend, env.Guarantee{}), box: b, config: Config{Session: t.Session, TTL: t.TTL}, token: t.Token,
	}, nil
}

// Leave ends the contact and keeps the environment, which ends when it has had no client for Config.TTL. Calls in progress
// end as if the connection was lost. Without a helper it is Close.
func (e *Environment) Leave() error {
	if e.token == "" {
		return e.Close()
	}
	e.closing.Do(func() {
		e.inside.Leave()
		e.box.engine.watch.forget(e.box.id)
	})
	return nil
}
