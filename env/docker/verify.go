package docker

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// helperFilters is the number of system call filters of a command: Docker's and the helper's.
const helperFilters = 2

// volumeData matches the path of an anonymous volume in its file system.
var volumeData = lazyregexp.New(`/volumes/[0-9a-f]{64}/_data$`)

// Verify checks from inside the guarantees of the container's configuration, and that host,
// which may be the zero value, is not found in it. An error means that nothing is proved.
func (e *Environment) Verify(ctx context.Context, host verify.Host) (_ verify.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("docker: verify: %w", err)
		}
	}()
	state, err := e.handle.inspect(ctx)
	if err != nil {
		return verify.Report{}, e.handle.engine.explain(ctx, err)
	}
	found, err := e.handle.engine.findImage(ctx, state.Image)
	if err != nil {
		return verify.Report{}, e.handle.engine.explain(ctx, err)
	}
	x := e.config.expect(found, state.Mounts)
	x.Host = host
	return verify.Run(ctx, e, append([]string{programPath}, e.handle.program.Args...), x)
}

// expect returns the guarantees of a container of this configuration. Mounted are its mounts
// according to the daemon.
func (c Config) expect(found image.InspectResponse, mounted []container.MountPoint) verify.Expect {
	uid, gid := c.ids()
	x := verify.Expect{
		Unprivileged: true, Filters: 1, User: &verify.User{UID: uid, GID: gid},
		Writable: []string{c.WorkDir, c.home(), tempDir}, OwnNamespaces: true,
		NoNetwork: c.Network != NetworkFull, PIDs: c.PIDs, Memory: c.Memory, CPUs: c.CPUs,
		NoCredentials: true, Mounts: c.expectedMounts(found),
	}
	for _, t := range c.Tmpfs {
		x.Writable = append(x.Writable, t.Target)
	}
	if c.workFrom != "" {
		x.Writable = x.Writable[1:]
	}
	if c.WritableRoot && uid == 0 {
		x.Writable = append(x.Writable, "/")
	}
	x.Executable = x.Writable
	if !c.WritableRoot {
		x.ReadOnly = slices.DeleteFunc([]string{"/", "/usr", "/etc"},
			func(dir string) bool { return c.isWritable(dir, found) })
	}
	if c.workFrom != "" {
		x.ReadOnly = append(x.ReadOnly, c.WorkDir)
	}
	x.Helper = programPath
	// elsewhere the helper has no filter
	if slices.Contains([]string{"amd64", "arm64", ""}, found.Architecture) {
		x.Filters = helperFilters
	}
	for _, v := range c.vars(found) {
		name, _, _ := strings.Cut(v, "=")
		x.Vars = append(x.Vars, name)
	}
	// A mount of the host that is not configured is unexpected, even where another mount is expected.
	for _, m := range mounted {
		at := path.Clean(m.Destination)
		configured := slices.ContainsFunc(c.Mounts, func(a Mount) bool { return a.Target == at })
		if m.Type == mount.TypeBind && !configured {
			x.Mounts = slices.DeleteFunc(x.Mounts, func(w verify.Mount) bool { return w.Point == at })
		}
	}
	return x
}

// isWritable reports whether the configuration or the image makes a directory writable.
func (c Config) isWritable(dir string, found image.InspectResponse) bool {
	writable := []string{c.WorkDir, c.home()}
	for _, t := range c.Tmpfs {
		writable = append(writable, t.Target)
	}
	for _, m := range c.Mounts {
		if !m.ReadOnly {
			writable = append(writable, m.Target)
		}
	}
	if found.Config != nil {
		writable = slices.AppendSeq(writable, maps.Keys(found.Config.Volumes))
	}
	return slices.ContainsFunc(writable, func(a string) bool { return within(dir, a) })
}

// expectedMounts returns the mounts of a container.
func (c Config) expectedMounts(found image.InspectResponse) []verify.Mount {
	var all []verify.Mount
	for _, name := range []string{"resolv.conf", "hostname", "hosts"} {
		all = append(all, verify.Mount{Point: "/etc/" + name})
	}
	all = append(all, verify.Mount{Point: "/"}, verify.Mount{Point: tempDir, Memory: true})
	volumes := []string{c.WorkDir, c.home()}
	if found.Config != nil {
		volumes = slices.AppendSeq(volumes, maps.Keys(found.Config.Volumes))
	}
	for _, v := range volumes {
		all = append(all, verify.Mount{Point: path.Clean(v), Root: volumeData()})
	}
	for _, t := range c.Tmpfs {
		all = append(all, verify.Mount{Point: t.Target, Memory: true})
	}
	for _, m := range c.Mounts {
		all = append(all, verify.Mount{Point: m.Target})
	}
	return append(all, verify.Mount{Point: programDir})
}
