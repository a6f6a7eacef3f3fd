//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// openLocal opens this machine by way of a helper, which ends everything that was started also when this process is killed.
// The helper is the one that "make build" embeds; a program without it, and one that cannot store or start it, is its
// own helper.
func openLocal(ctx context.Context, o backendOptions) (opened, error) {
	cfg := local.Config{Dir: o.dir, Inherit: &o.inherit, Vars: o.vars}
	start := func(h local.Helper) (*local.SupervisedEnvironment, error) {
		if o.sandbox.wanted() {
			return local.Sandboxed(ctx, cfg, h, o.sandbox.Sandbox)
		}
		return local.Supervised(ctx, cfg, h)
	}
	e, err := start(local.Helper{})
	var helper *local.HelperError
	if errors.As(err, &helper) {
		self, selfErr := executable()
		if selfErr != nil {
			return opened{}, errors.Join(err, selfErr)
		}
		e, err = start(local.Helper{Path: self, Args: []string{helperArgument}})
	}
	if err != nil {
		return opened{}, sandboxError(err, o.sandbox)
	}
	if note := sandboxNote(e.Info()); note != "" && o.sandbox.wanted() {
		o.note(note)
	}
	return opened{Environment: e, kill: func() { _ = e.Kill() }, isolated: isolates(e.Info())}, nil
}
