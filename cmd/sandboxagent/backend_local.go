package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// localBackend runs commands on the host.
type localBackend struct {
	sandbox sandboxOptions
	// prepared is the helper, if it was read ahead; may be nil.
	prepared *local.Prepared
}

func (*localBackend) name() string { return "local" }

func (*localBackend) inPlace() bool { return true }

func (*localBackend) flags() []cli.Flag { return sandboxFlags() }

func (b *localBackend) parse(c *cli.Context) (err error) {
	if b.sandbox, err = parseSandboxFlags(c); err != nil {
		return err
	}
	for i, name := range b.sandbox.Write {
		if filepath.IsLocal(name) && workspace.IsControlFile(filepath.ToSlash(filepath.Clean(name))) {
			b.sandbox.Write[i] = filepath.Join(c.String("workdir"), name)
		}
	}
	if b.sandbox.Write, err = existingPaths("allow-write", b.sandbox.Write); err != nil {
		return err
	}
	if b.sandbox.Read, err = existingPaths("allow-read", b.sandbox.Read); err != nil {
		return err
	}
	if state, err := stateDir(); err == nil && state != "" {
		b.sandbox.Hide = append(b.sandbox.Hide, state)
	}
	return nil
}

// readAhead starts to read the helper of a local environment. The caller calls done after open.
func (s *environmentSettings) readAhead() (done func()) {
	b, ok := s.backend.(*localBackend)
	if !ok || s.existing != nil {
		return func() {}
	}
	b.prepared = local.Prepare(sandboxd.Self())
	return b.prepared.Close
}

// sandboxError separates mistakes of the user from limits of this machine.
func sandboxError(err error, o sandboxOptions) error {
	var unable *local.SandboxError
	switch {
	case errors.As(err, &unable):
		return err
	case errors.Is(err, fs.ErrInvalid):
		return invalidSandbox(err, o)
	}
	return workdirError(err)
}

// demo runs in a sandbox that may write to Go's caches.
func (b *localBackend) demo() demoSupport {
	return demoSupport{
		missingGo: "which is not in PATH; install Go from https://go.dev/dl",
		prepare: func(_ context.Context, cfg *openConfig, dir string) (func() error, error) {
			vars, writable, err := demoCaches(dir)
			cfg.vars = append(cfg.vars, vars...)
			b.sandbox = sandboxOptions{mode: sandboxAuto, Sandbox: env.Sandbox{Write: writable}}
			return nil, err
		},
	}
}

// existingPaths returns paths as absolute names, which must exist.
func existingPaths(flag string, paths []string) ([]string, error) {
	var all []string
	for _, name := range paths {
		abs, err := filepath.Abs(name)
		if err == nil {
			err = checkExists(abs)
		}
		if err != nil {
			return nil, usagef("--%s: %s; it must exist", flag, err)
		}
		all = append(all, abs)
	}
	return all, nil
}
