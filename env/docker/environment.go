package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// backend is the name of this package in env.Info.
const backend = "docker"

// base hides the embedded field.
type base = remote.Place

// Environment is an environment in a container. It is made by Engine.Open.
//
// It implements env.Environment, search.Searcher and env.MultiReader. Kill sends SIGKILL to all
// processes that it started and returns when they are dead, for a program that has to end at once;
// Close remains to be called.
type Environment struct {
	base
	handle  *handle
	config  Config // with its defaults
	token   string
	closing sync.Once
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

func newEnvironment(h *handle, in remote.Inside, c Config) *Environment {
	return &Environment{base: remote.New(in, backend, c.isolation()), handle: h, config: c}
}

// isolation returns the guarantee of the container.
func (c Config) isolation() env.Guarantee {
	by := "the kernel's namespaces, no capabilities, no_new_privs and Docker's system call filter"
	if c.Runtime != "" {
		by = "the runtime " + c.Runtime + ", with " + by
	}
	if c.Network == NetworkFull {
		by += "; commands can use the network"
	}
	if len(c.Mounts) > 0 {
		by += "; configured mounts show the host's files"
	}
	return env.Guarantee{Strength: env.Enforced, By: by}
}

// Container returns the name of the container.
func (e *Environment) Container() string { return e.handle.name }

// closeTimeout bounds the time that the helper has to end its commands before its container is
// removed.
const closeTimeout = 10 * time.Second

// Close implements env.Environment. It removes the container; one that is gone already is no error.
// If the daemon does not answer, Close returns an error after a minute, and the container ends by
// itself after Config.TTL.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() {
		closed := make(chan error, 1)
		go func() { closed <- e.base.Close() }()
		var cerr error
		select {
		case cerr = <-closed:
			closed = nil
		case <-time.After(closeTimeout):
		}
		err = e.handle.discard(context.Background())
		if closed != nil {
			cerr = <-closed // without a container it ends
		}
		if cerr != nil && !errors.Is(cerr, env.ErrGone) {
			err = errors.Join(fmt.Errorf("docker: %w", cerr), err)
		}
		if e.handle.first != nil {
			err = errors.Join(err, e.handle.first.Close())
		}
	})
	return err
}
