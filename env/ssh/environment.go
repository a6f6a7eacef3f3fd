package ssh

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// backend is what env.Info calls environments of this package.
const backend = "ssh"

// inside is an environment on a host, however it is reached.
type inside = remote.Place

// Environment is an environment on a host. It is made by Host.Open.
//
// It implements env.Environment, search.Searcher and env.MultiReader. Its Kill kills everything that it started,
// without any grace, and returns when that is dead. It is for a program that has to end at once: commands in progress end
// with SIGKILL, and Close remains to be called.
type Environment struct {
	inside
	host    *Host
	config  Config
	place   *place // nil without a helper
	token   string
	closing sync.Once
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

func newEnvironment(h *Host, in remote.Inside, c Config) *Environment {
	isolation := env.Guarantee{Strength: env.Absent, By: "nobody: commands have all the rights of " + h.String()}
	if c.Sandbox != nil {
		isolation.By += "; there is no sandbox without a helper"
	}
	for _, g := range in.Info().Guarantees {
		if g.Promise == env.Isolation {
			isolation = g
			isolation.By = "on " + h.String() + ": " + g.By
		}
	}
	return &Environment{inside: remote.New(in, backend, isolation), host: h, config: c}
}

// Session returns the name of the environment on its host.
func (e *Environment) Session() string { return e.config.Session }

// Close implements env.Environment. When it returns without an error, nothing of the environment is left on the host but
// the helper's file, and for a moment the helper, which is ending, and what it has put beside a sandbox. A host that does not
// answer is an error, after half a minute; what runs there ends by itself when Config.TTL has passed.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() {
		err = e.inside.Close()
		e.host.release()
		if errors.Is(err, env.ErrGone) {
			err = fmt.Errorf("ssh: %s: %w; what runs there ends by itself within %s", e.host, err, e.config.TTL)
		} else if err != nil {
			err = fmt.Errorf("ssh: %s: %w", e.host, err)
		}
	})
	return err
}
