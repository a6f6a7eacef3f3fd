package ssh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

// backend is what env.Info calls environments of this package.
const backend = "ssh"

// remote is an environment on a host, however it is reached.
type remote interface {
	env.Environment
	env.MultiReader
	Kill() error
}

// Environment is an environment on a host. It is made by Host.Open.
//
// It implements env.Environment, env.Walker, env.Searcher and env.MultiReader. Its Kill kills everything that it started,
// without any grace, and returns when that is dead. It is for a program that has to end at once: commands in progress end
// with SIGKILL, and Close remains to be called.
type Environment struct {
	remote
	host    *Host
	info    env.Info
	config  Config
	place   *place // nil without a helper
	token   string
	closing sync.Once
}

var (
	_ env.Environment = (*Environment)(nil)
	_ env.Walker      = (*Environment)(nil)
	_ env.Searcher    = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

// Walk implements env.Walker.
func (e *Environment) Walk(ctx context.Context, root string, opts env.WalkOptions, fn func(env.Entry) error) error {
	return env.Walk(ctx, e.remote, root, opts, fn)
}

// Glob implements env.Searcher.
func (e *Environment) Glob(ctx context.Context, opts env.GlobOptions) ([]env.Entry, error) {
	return env.Glob(ctx, e.remote, opts)
}

// Grep implements env.Searcher.
func (e *Environment) Grep(ctx context.Context, opts env.GrepOptions, fn func(env.GrepMatch) error) (env.GrepStats, error) {
	return env.Grep(ctx, e.remote, opts, fn)
}

// Info implements env.Environment.
func (e *Environment) Info() env.Info {
	info := e.info
	info.Shell = append([]string(nil), info.Shell...)
	info.Guarantees = append([]env.Guarantee(nil), info.Guarantees...)
	return info
}

func newEnvironment(h *Host, inner remote, c Config) *Environment {
	return &Environment{remote: inner, host: h, config: c, info: describe(inner.Info(), h)}
}

// describe adds to what the inside knows what there is to be said of the host.
func describe(info env.Info, h *Host) env.Info {
	info.Backend = backend
	info.Guarantees = slices.DeleteFunc(info.Guarantees, func(g env.Guarantee) bool { return g.Promise == env.Isolation })
	info.Guarantees = append(info.Guarantees, env.Guarantee{
		Promise: env.Isolation, Strength: env.Absent, By: "nobody: commands have all the rights of " + h.String(),
	})
	return info
}

// Session returns the name of the environment on its host.
func (e *Environment) Session() string { return e.config.Session }

// Close implements env.Environment. When it returns without an error, nothing of the environment is left on the host but
// the helper's file, and for a moment the helper, which is ending. A host that does not answer is an error, after half a
// minute; what runs there ends by itself when Config.TTL has passed.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() {
		err = e.remote.Close()
		e.host.release()
		if errors.Is(err, env.ErrGone) {
			err = fmt.Errorf("ssh: %s: %w; what runs there ends by itself within %s", e.host, err, e.config.TTL)
		} else if err != nil {
			err = fmt.Errorf("ssh: %s: %w", e.host, err)
		}
	})
	return err
}
