package main

import (
	"context"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// openLocal opens this machine. No helper is needed: all commands are in a job object, which the system ends with this
// process.
func openLocal(ctx context.Context, o backendOptions) (opened, error) {
	if o.sandbox.Require || len(o.sandbox.Enforce) > 0 {
		_, err := local.Sandboxed(ctx, local.Config{}, local.Helper{}, o.sandbox.Sandbox)
		return opened{}, sandboxError(err, o.sandbox)
	}
	if o.sandbox.wanted() {
		o.note("commands run without a sandbox: there is none for Windows")
	}
	e, err := local.New(local.Config{Dir: o.dir, Inherit: &o.inherit, Vars: o.vars})
	if err != nil {
		return opened{}, workdirError(err)
	}
	return opened{Environment: e, kill: func() { _ = e.Kill() }}, nil
}
