//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

// open starts a helper on the host, which kills everything that was started also when this process
// is killed. The helper is the embedded one; a program that has none, or cannot store or start
// it, runs itself as the helper.
func (b *localBackend) open(ctx context.Context, o openConfig) (opened, error) {
	cfg := local.Config{Dir: o.dir, Inherit: &o.inherit, Vars: o.vars, Prepared: b.prepared}
	start := func(h remote.Helper) (*local.SupervisedEnvironment, error) {
		if b.sandbox.requested() {
			return local.Sandboxed(ctx, cfg, h, b.sandbox.Sandbox)
		}
		return local.Supervised(ctx, cfg, h)
	}
	self := sandboxd.Self()
	e, err := start(self)
	var helper *local.HelperError
	if errors.As(err, &helper) { // the cache directory may refuse to execute
		e, err = start(remote.Helper{Binary: self.Program, Args: self.Args})
	}
	if err != nil {
		return opened{}, sandboxError(err, b.sandbox)
	}
	b.sandbox.report(e.Info(), "sandbox", o)
	return opened{
		plain: e, kill: func() { _ = e.Kill() }, isolated: isolates(e.Info()),
	}, nil
}
