package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// helperFilters is how many system call filters a command has: Docker's and the helper's.
const helperFilters = 2

// Verify proves from the inside that the container keeps what its configuration promises, and that host, which may be the
// zero value, is not found in it. An error means that nothing is known. Where no helper runs in the container, the
// helper's program, which has the probe in it, is copied to /tmp and removed afterwards; if there is no such program, the
// container cannot be verified.
func (e *Environment) Verify(ctx context.Context, host verify.Host) (_ verify.Report, err error) {
	found, err := e.box.engine.api.ImageInspect(ctx, e.box.image)
	if err != nil {
		return verify.Report{}, fmt.Errorf("docker: verify: %w", e.box.engine.explain(err))
	}
	x := e.config.promises(found, e.box.program != nil)
	x.Host = host
	argv, remove, err := e.probe(ctx, found)
	if err != nil {
		return verify.Report{}, fmt.Errorf("docker: verify: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	r, err := verify.Run(ctx, e, argv, x)
	if err != nil {
		return verify.Report{}, fmt.Errorf("docker: verify: %w", err)
	}
	return r, nil
}

// probe returns what starts the probe. The caller calls remove in the end.
func (e *Environment) probe(ctx context.Context, found image.InspectResponse) (argv []string, remove func() error, err error) {
	if p := e.box.program; p != nil {
		return append([]string{programDir + "/" + programName}, p.args...), func() error { return nil }, nil
	}
	p, err := e.box.engine.program(e.config, cmp.Or(found.Architecture, "amd64"))
	if err != nil {
		return nil, nil, fmt.Errorf("without a helper there is no probe: %w", err)
	}
	r, err := p.open()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	name := path.Join(tempDir, ".probe-"+strings.ToLower(rand.Text()))
	remove = func() error {
		ctx, cancel := detached(ctx, callTime)
		defer cancel()
		return e.Remove(ctx, name, env.RemoveOptions{})
	}
	if _, err := e.WriteFile(ctx, name, r, env.WriteOptions{Mode: 0o700, MustNotExist: true}); err != nil {
		return nil, nil, err
	}
	return append([]string{name}, p.args...), remove, nil
}

// promises is what a container of this configuration promises.
func (c Config) promises(found image.InspectResponse, helper bool) verify.Expect {
	uid, gid := c.ids()
	x := verify.Expect{
		Unprivileged: true, Filters: 1, User: &verify.User{UID: uid, GID: gid},
		ReadOnly: []string{"/", "/usr", "/etc"}, Writable: []string{c.WorkDir, c.home(), tempDir}, Executable: []string{tempDir},
		Mounts:        []string{"/", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts", c.WorkDir, c.home(), tempDir},
		OwnNamespaces: true, NoNetwork: c.Network != NetworkFull, PIDs: c.PIDs, Memory: c.Memory, CPUs: c.CPUs,
		NoCoreFiles: true, NoCredentials: true,
	}
	if found.Config != nil {
		x.Mounts = slices.AppendSeq(x.Mounts, maps.Keys(found.Config.Volumes))
	}
	for _, m := range c.Mounts {
		x.Mounts = append(x.Mounts, m.Target)
	}
	for _, t := range c.Tmpfs {
		x.Mounts, x.Writable = append(x.Mounts, t.Target), append(x.Writable, t.Target)
	}
	for _, v := range c.vars(found) {
		name, _, _ := strings.Cut(v, "=")
		x.Vars = append(x.Vars, name)
	}
	if helper {
		x.Helper, x.Init, x.Filters = programDir+"/"+programName, "sandboxd", helperFilters
		x.Mounts = append(x.Mounts, programDir)
	} else {
		// Docker's own first process, and the variables of the daemon and the shell.
		x.Init = "docker-init"
		x.Mounts = append(x.Mounts, "/sbin/docker-init", "/usr/sbin/docker-init", "/bin/docker-init", "/usr/bin/docker-init")
		x.Vars = append(x.Vars, "HOSTNAME", "OLDPWD", "SHLVL", "_", "SANDBOXAGENT_SH_*")
	}
	return x
}
