package ssh

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// backend is the name of this package in env.Info.
const backend = "ssh"

// served is an environment behind a helper.
type served = remote.Place

// Environment is an environment on a host. Host.Open and Host.Attach return it.
//
// It implements env.Environment, search.Searcher and env.MultiReader. Kill kills
// everything that it started, without grace, and returns when that is dead: commands in progress
// end with SIGKILL. It is for a program that must end at once; Close remains to be called.
type Environment struct {
	served
	host    *Host
	config  Config
	helper  *helperProcess
	token   string
	closing sync.Once
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

func newEnvironment(
	h *Host, client remote.Inside, c Config, p *helperProcess, token string,
) *Environment {
	isolation := env.Guarantee{Strength: env.Absent, By: "nobody: commands have all the rights of " +
		h.String()}
	for _, g := range client.Info().Guarantees {
		if g.Promise == env.Isolation {
			isolation = g
			isolation.By = "on " + h.String() + ": " + g.By
		}
	}
	return &Environment{
		served: remote.New(client, backend, isolation), host: h, config: c, helper: p, token: token,
	}
}

// Session returns the name of the environment on its host.
func (e *Environment) Session() string { return e.config.Session }

// Close implements env.Environment. After a nil error nothing of the environment is left on the
// host but the helper's file, and for a moment the helper, which is exiting. A silent host is an
// error after half a minute; its helper exits when Config.TTL has passed.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() {
		err = e.served.Close()
		e.host.release()
		if errors.Is(err, env.ErrGone) {
			err = fmt.Errorf("ssh: %s: %w; what runs there ends by itself within %s", e.host, err,
				e.config.TTL)
		} else if err != nil {
			err = fmt.Errorf("ssh: %s: %w", e.host, err)
		}
	})
	return err
}
