// Package remote has what environments share that are somewhere else: searches that run there, and
// what is said of the place.
package remote

import (
	"context"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Inside is an environment as it is reached: over the wire, or through a shell.
type Inside interface {
	env.Environment
	env.MultiReader
	// Kill kills everything that the environment started, without any grace, and returns when that is
	// dead.
	Kill() error
}

// inside keeps the field out of sight of those who use what a Place is embedded in.
type inside = Inside

// Place is an Inside that is said to be somewhere. Backends embed it. Calls may be concurrent, as
// those of Inside.
type Place struct {
	inside
	info env.Info
}

// New returns a Place. What is said of its isolation takes the place of what the inside says of its
// own, which sees only itself; with a guarantee of no strength, nothing is said.
func New(in Inside, backend string, isolation env.Guarantee) Place {
	info := in.Info()
	info.Backend = backend
	info.Guarantees = slices.DeleteFunc(slices.Clone(info.Guarantees),
		func(g env.Guarantee) bool { return g.Promise == env.Isolation })
	if isolation.Strength != "" {
		isolation.Promise = env.Isolation
		info.Guarantees = append(info.Guarantees, isolation)
	}
	return Place{inside: in, info: info}
}

// Walk implements search.Searcher.
func (p *Place) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, p.inside, root, opts, fn)
}

// Glob implements search.Searcher.
func (p *Place) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, p.inside, opts)
}

// Grep implements search.Searcher.
func (p *Place) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, p.inside, opts, fn)
}

// Info implements env.Environment.
func (p *Place) Info() env.Info {
	return p.info.Clone()
}

// Leave ends the contact with an inside that goes on without it. It is only for one that is reached
// over the wire.
func (p *Place) Leave() {
	if leaver, ok := p.inside.(interface{ Leave() }); ok {
		leaver.Leave()
	}
}
