package main

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// open needs no helper: all commands are in a job object, which the system ends with this process.
func (b *localBackend) open(ctx context.Context, o openConfig) (opened, error) {
	if b.sandbox.Require || len(b.sandbox.Enforce) > 0 {
		_, err := local.Sandboxed(ctx, local.Config{}, remote.Helper{}, b.sandbox.Sandbox)
		return opened{}, sandboxError(err, b.sandbox)
	}
	if b.sandbox.requested() {
		o.noteOnce("sandbox", "commands run without a sandbox: Windows has none")
	}
	e, err := local.New(local.Config{Dir: o.dir, Inherit: &o.inherit, Vars: o.vars})
	if err != nil {
		return opened{}, workdirError(err)
	}
	return opened{plain: e, kill: func() { _ = e.Kill() }}, nil
}
