package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
)

// backend is what env.Info calls environments of this package.
const backend = "docker"

// inside is an environment in a container, however it is reached.
type inside = remote.Place

// Environment is an environment in a container. It is made by Engine.Open.
//
// It implements env.Environment, env.Walker, env.Searcher and env.MultiReader. Its Kill kills everything that it started,
// without any grace, and returns when that is dead. It is for a program that has to end at once: commands in progress end
// with SIGKILL, and Close remains to be called.
type Environment struct {
	inside
	box     *box
	config  Config // with its defaults
	token   string
	closing sync.Once
}

var (
	_ env.Environment = (*Environment)(nil)
	_ env.Walker      = (*Environment)(nil)
	_ env.Searcher    = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

func newEnvironment(b *box, in remote.Inside, c Config) *Environment {
	return &Environment{inside: remote.New(in, backend, c.isolation()), box: b, config: c}
}

// isolation is what the container promises.
func (c Config) isolation() env.Guarantee {
	by := "the kernel's namespaces, no capabilities, no_new_privs and Docker's system call filter"
	if c.Runtime != "" {
		by = "the runtime " + c.Runtime + ", with " + by
	}
	if c.Network == NetworkFull {
		by += "; what the network reaches is not kept from commands"
	}
	if len(c.Mounts) > 0 {
		by += "; what was mounted by hand is the host's own"
	}
	return env.Guarantee{Strength: env.Enforced, By: by}
}

// Container returns the name of the container.
func (e *Environment) Container() string { return e.box.name }

// farewellTime bounds how long the inside may take to end its commands before its container is removed.
const farewellTime = 10 * time.Second

// Close implements env.Environment. When it returns without an error, there is no container any more. A container that was
// gone before is no error. A daemon that does not answer is one, after a minute; the container then ends by itself when
// Config.TTL has passed.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() {
		inside := make(chan error, 1)
		go func() { inside <- e.inside.Close() }()
		var said error
		select {
		case said = <-inside:
			inside = nil
		case <-time.After(farewellTime):
		}
		err = e.box.discard(context.Background())
		if inside != nil {
			said = <-inside // there is nobody any more whom it could wait for
		}
		if said != nil && !errors.Is(said, env.ErrGone) {
			err = errors.Join(fmt.Errorf("docker: %w", said), err)
		}
		if e.box.first != nil {
			err = errors.Join(err, e.box.first.Close())
		}
	})
	return err
}
