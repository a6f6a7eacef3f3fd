package docker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// OpenWeaker opens an environment whose container differs from what its configuration promises.
func (e *Engine) OpenWeaker(ctx context.Context, c Config, weaken func(*container.Config, *container.HostConfig), vars ...string) (*Environment, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	c.Session = newSession()
	found, ref, err := e.image(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := e.program(c, found.Architecture)
	if err != nil {
		return nil, err
	}
	if err := e.ensureProgram(ctx, c, p, found.ID, false); err != nil {
		return nil, err
	}
	prepared, err := e.prepare(ctx, c, found)
	if err != nil {
		return nil, err
	}
	box := &box{engine: e, name: namePrefix + c.Session, image: ref, program: p, ttl: c.TTL}
	s := c.spec(prepared, c.command(p), helperMount(p))
	weaken(s.config, s.host)
	attached, err := e.launch(ctx, c, box, s)
	if err != nil {
		return nil, err
	}
	box.first = attached
	start, err := json.Marshal(helper.Start{Dir: c.WorkDir, Vars: append(c.vars(found), vars...), Inherit: env.VarsNone})
	if err != nil {
		return nil, errors.Join(err, box.discard(ctx))
	}
	client, err := wire.Open(ctx, wire.ClientConfig{Dial: box.dial, Token: newToken(), Start: start, Redial: c.TTL})
	if err != nil {
		return nil, errors.Join(box.unready(ctx, attached, err), box.discard(ctx))
	}
	return newEnvironment(box, client, c), nil
}
