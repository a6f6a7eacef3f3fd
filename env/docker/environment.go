package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// backend is the name of this package in env.Info and in errors.
const backend = "docker"

// served hides the embedded field.
type served = remote.Environment

// Environment is an environment in a container. Engine.Open and Engine.Attach return it.
//
// It implements env.Environment, search.Searcher and env.MultiReader, and has the methods Kill,
// Leave and Session of remote.Environment. Close removes the container, for all of its clients; a
// missing one is not an error. If the daemon does not answer, Close returns an error after a
// minute, and the container ends by itself after Config.TTL.
type Environment struct {
	*served
	handle *handle
	config Config   // with its defaults; after Attach only Session and TTL
	vars   []string // of every command; nil after Attach
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

// Container returns the name of the container.
func (e *Environment) Container() string { return e.handle.name }

// Info implements env.Environment. With Config.Fill it has the guarantee env.ReadOnlyFiles.
func (e *Environment) Info() env.Info {
	info := e.served.Info()
	if e.config.workFrom != "" {
		info.Guarantees = append(info.Guarantees, env.Guarantee{
			Name: env.ReadOnlyFiles, Strength: env.Enforced,
			By: "Docker: read-only mounts of the working directory and of the host's files",
		})
	}
	return info
}

// Ticket identifies an environment for Attach. It is a secret: with it and the daemon anybody can
// use the environment. Its fields are for encoding; their meaning may change.
type Ticket struct {
	remote.Ticket
	Container string `json:"container"`
}

// Ticket returns the ticket for reattaching to the environment.
func (e *Environment) Ticket() Ticket {
	return Ticket{Ticket: e.served.Ticket(), Container: e.handle.id}
}

// Attach reattaches to a running environment, which may have other clients. The error is
// env.ErrGone if it has ended. Close removes the container for all clients; Leave disconnects only
// this one.
func (e *Engine) Attach(ctx context.Context, t Ticket) (*Environment, error) {
	if !t.Valid() || t.Container == "" {
		return nil, badConfig("session", "the ticket is invalid")
	}
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	h := &handle{
		engine: e, id: t.Container, name: namePrefix + t.Session,
		program: &remote.Program{Args: t.Args}, users: newUsers(),
	}
	e.watch.follow(h.id)
	cfg := h.connection()
	// Another process configured the container.
	cfg.Isolation = func(env.Guarantee) env.Guarantee { return env.Guarantee{} }
	served, err := remote.Attach(ctx, cfg, t.Ticket)
	if err != nil {
		e.watch.forget(h.id)
		return nil, fmt.Errorf("docker: %w", err)
	}
	c := Config{Options: remote.Options{Session: t.Session, TTL: t.TTL}}
	return &Environment{served: served, handle: h, config: c}, nil
}

// connection returns the configuration of a client of the container's helper.
func (h *handle) connection() remote.Config {
	return remote.Config{
		Backend: backend, Dial: h.dial, Args: h.program.Args, Close: h.close,
		Left: func() {
			_ = h.users.close((*remote.Environment).Leave) // which never fails
			h.engine.watch.forget(h.id)
		},
	}
}

// close removes the container after the helpers have ended their commands.
func (h *handle) close(closeHelper func() error) error {
	return remote.Remove(backend, func() error {
		err := h.users.close((*remote.Environment).Close)
		return errors.Join(closeHelper(), err)
	}, func() error { return h.discard(context.Background()) })
}

// isolation returns the guarantee of the container.
func (c Config) isolation(env.Guarantee) env.Guarantee {
	by := "the kernel's namespaces, no capabilities, no_new_privs and Docker's system call filter"
	if c.Runtime != "" {
		by = "the runtime " + c.Runtime + ", with " + by
	}
	if c.Network == NetworkFull {
		by += "; commands can use the network"
	}
	if c.WritableRoot {
		by += "; the root file system is writable"
	}
	if len(c.Mounts) > 0 {
		by += "; configured mounts show the host's files"
	}
	return env.Guarantee{Strength: env.Enforced, By: by}
}
