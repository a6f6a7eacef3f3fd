package docker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"github.com/sandboxagent/sandboxagent/env/verify"
)

// Guarantees returns the guarantees of a container with an image for the processor arch that
// declares volumes.
func Guarantees(
	c Config, arch string, mounted []container.MountPoint, volumes ...string,
) (verify.Expect, error) {
	declared := make(map[string]struct{})
	for _, name := range volumes {
		declared[name] = struct{}{}
	}
	encoded, err := json.Marshal(map[string]any{
		"Architecture": arch,
		"Config":       map[string]any{"Volumes": declared},
	})
	var found image.InspectResponse
	err = errors.Join(err, json.Unmarshal(encoded, &found))
	c, cerr := c.check()
	return c.expect(found, mounted), errors.Join(err, cerr)
}

// CheckSecurity checks the security options of a daemon.
func CheckSecurity(ctx context.Context, c Config, options ...string) error {
	e := &Engine{}
	e.known.Store(&system.Info{SecurityOptions: options})
	return e.checkSecurity(ctx, c)
}

// OpenWeaker opens an environment whose container differs from what its configuration promises.
func (e *Engine) OpenWeaker(
	ctx context.Context, c Config, weaken func(*container.Config, *container.HostConfig),
	vars ...string,
) (*Environment, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	found, ref, err := e.image(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := c.Helper.Resolve(ctx, "linux", found.Architecture)
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
	h := &handle{
		engine: e, name: namePrefix + c.Session, image: ref, program: p, users: newUsers(),
	}
	s := c.spec(prepared, p.Serve(programPath, socketName, c.TTL), helperMount(p))
	weaken(s.config, s.host)
	return e.openSpec(ctx, c, h, s, append(c.vars(found), vars...))
}
