package ssh

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// backend is the name of this package in env.Info and in errors.
const backend = "ssh"

// served hides the embedded field.
type served = remote.Environment

// Environment is an environment on a host. Host.Open and Host.Attach return it.
//
// It implements env.Environment, search.Searcher and env.MultiReader, and has the methods Kill,
// Leave and Session of remote.Environment. After a nil error of Close nothing of the environment is
// left on the host but the helper's file, and for a moment the helper, which is exiting. A silent
// host is an error after half a minute; its helper exits when Config.TTL has passed.
type Environment struct {
	*served
	helper *helperProcess
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

// Ticket identifies an environment for Attach. It is a secret: its holder has all
// rights of the owner in the environment. Its fields are for encoding only.
type Ticket struct {
	remote.Ticket
	Dir     string `json:"dir"`
	Program string `json:"program"`
}

// Ticket returns the ticket of the environment.
func (e *Environment) Ticket() Ticket {
	return Ticket{Ticket: e.served.Ticket(), Dir: e.helper.dir, Program: e.helper.file}
}

// Attach connects to an existing environment, which may have other clients. If it has ended, the
// error is env.ErrGone. Leave disconnects from it; Close ends it, for all of its clients.
func (h *Host) Attach(ctx context.Context, t Ticket) (_ *Environment, err error) {
	if !t.Valid() || !path.IsAbs(t.Dir) || !path.IsAbs(t.Program) {
		return nil, badConfig("session", "the ticket is invalid")
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
	p := &helperProcess{host: h, file: t.Program, dir: t.Dir, program: &remote.Program{Args: t.Args}}
	served, err := remote.Attach(ctx, p.connection(t.TTL), t.Ticket)
	if err != nil {
		return nil, fmt.Errorf("ssh: %s: %w", h, err)
	}
	return &Environment{served: served, helper: p}, nil
}

// connection returns the configuration of a client of the helper.
func (p *helperProcess) connection(ttl fmt.Stringer) remote.Config {
	return remote.Config{
		Backend: backend, Dial: p.dial, Args: p.program.Args, Left: p.host.release,
		Isolation: func(g env.Guarantee) env.Guarantee {
			if g.Strength == "" {
				return env.Guarantee{
					Strength: env.Absent, By: "commands have all the rights of " + p.host.String(),
				}
			}
			g.By = "on " + p.host.String() + ": " + g.By
			return g
		},
		Close: func(closeHelper func() error) error {
			err := closeHelper()
			p.host.release()
			switch {
			case errors.Is(err, env.ErrGone):
				return fmt.Errorf("ssh: %s: %w; its commands end by themselves within %s", p.host, err, ttl)
			case err != nil:
				return fmt.Errorf("ssh: %s: %w", p.host, err)
			}
			return nil
		},
	}
}
