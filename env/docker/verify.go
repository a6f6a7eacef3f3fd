package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/verify"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// helperFilters is how many system call filters a command has: Docker's and the helper's.
const helperFilters = 2

// volumeData matches the name, in its file system, of a volume that was made for a container.
var volumeData = lazyregexp.New(`/volumes/[0-9a-f]{64}/_data$`)

// Verify proves from the inside that the container keeps what its configuration promises, and that host, which may be the
// zero value, is not found in it. An error means that nothing is known. Where no helper runs in the container, the
// helper's program, which has the probe in it, is copied to the home folder and removed afterwards; if there is no such
// program, the container cannot be verified.
func (e *Environment) Verify(ctx context.Context, host verify.Host) (_ verify.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("docker: verify: %w", err)
		}
	}()
	state, err := e.box.inspect(ctx)
	if err != nil {
		return verify.Report{}, e.box.engine.explain(err)
	}
	found, err := e.box.engine.findImage(ctx, state.Image)
	if err != nil {
		return verify.Report{}, e.box.engine.explain(err)
	}
	x := e.config.promises(found, state.Mounts, e.box.program != nil)
	x.Host = host
	if p := e.box.program; p != nil {
		return verify.Run(ctx, e, append([]string{programDir + "/" + programName}, p.args...), x)
	}
	argv, err := e.copyProbe(ctx, found)
	if err != nil {
		return verify.Report{}, err
	}
	defer func() {
		ctx, cancel := detached(ctx, callTime)
		defer cancel()
		err = errors.Join(err, e.Remove(ctx, argv[0], env.RemoveOptions{}))
	}()
	return verify.Run(ctx, byDaemon{e.box}, argv, x)
}

// copyProbe copies the helper's program into the container and returns what starts it. The daemon does that, so that no
// program of the image has a part in it.
func (e *Environment) copyProbe(ctx context.Context, found image.InspectResponse) (argv []string, err error) {
	p, err := e.box.engine.program(e.config, cmp.Or(found.Architecture, "amd64"))
	if err != nil {
		return nil, fmt.Errorf("without a helper there is no probe: %w", err)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxProgram))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	name := ".probe-" + strings.ToLower(rand.Text())
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	uid, gid := e.config.ids()
	err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o500, Uid: uid, Gid: gid, Size: int64(len(data)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(data)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	api := e.box.engine.api
	if err := api.CopyToContainer(ctx, e.box.id, e.config.home(), &b, container.CopyToContainerOptions{}); err != nil {
		return nil, e.box.engine.explain(err)
	}
	return append([]string{path.Join(e.config.home(), name)}, p.args...), nil
}

// byDaemon has the daemon start processes, without a shell in between. Of a command only the arguments and the streams
// count.
type byDaemon struct{ box *box }

// Exec implements env.Runner.
func (r byDaemon) Exec(ctx context.Context, cmd env.Command) (res env.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	api := r.box.engine.api
	made, err := api.ContainerExecCreate(ctx, r.box.id, container.ExecOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: cmd.Argv,
	})
	if err != nil {
		return res, r.box.engine.explain(err)
	}
	attached, err := api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return res, r.box.engine.explain(err)
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	if _, err = io.Copy(attached.Conn, cmd.Stdin); err == nil {
		err = attached.CloseWrite()
	}
	if err == nil {
		_, err = stdcopy.StdCopy(cmd.Stdout, cmd.Stderr, attached.Reader)
	}
	if err := cmp.Or(context.Cause(ctx), err); err != nil {
		return res, err
	}
	state, err := api.ContainerExecInspect(ctx, made.ID)
	res.ExitCode = state.ExitCode
	return res, err
}

// promises is what a container of this configuration promises. Mounted is what the daemon says of it.
func (c Config) promises(found image.InspectResponse, mounted []container.MountPoint, helper bool) verify.Expect {
	uid, gid := c.ids()
	x := verify.Expect{
		Unprivileged: true, Filters: 1, User: &verify.User{UID: uid, GID: gid}, Writable: []string{c.WorkDir, c.home(), tempDir},
		OwnNamespaces: true, NoNetwork: c.Network != NetworkFull, PIDs: c.PIDs, Memory: c.Memory, CPUs: c.CPUs,
		NoCoreFiles: true, NoCredentials: true, Mounts: c.promisedMounts(found, helper),
	}
	for _, t := range c.Tmpfs {
		x.Writable = append(x.Writable, t.Target)
	}
	x.Executable = x.Writable
	x.ReadOnly = slices.DeleteFunc([]string{"/", "/usr", "/etc"}, func(dir string) bool { return c.isWritable(dir, found) })
	if helper {
		x.Helper, x.Init = programDir+"/"+programName, "sandboxd"
		if slices.Contains([]string{"amd64", "arm64", ""}, found.Architecture) { // on others the helper has no filter
			x.Filters = helperFilters
		}
		for _, v := range c.vars(found) {
			name, _, _ := strings.Cut(v, "=")
			x.Vars = append(x.Vars, name)
		}
	} else {
		x.Init = "docker-init" // Docker's own; the variables are those that the image's shell gives
	}
	// What of the host was not asked for is unknown wherever it is, although it may look like what has to be there.
	for _, m := range mounted {
		asked := slices.ContainsFunc(c.Mounts, func(a Mount) bool { return a.Target == path.Clean(m.Destination) })
		if m.Type == mount.TypeBind && !asked {
			x.Mounts = slices.DeleteFunc(x.Mounts, func(w verify.Mount) bool { return w.Point == path.Clean(m.Destination) })
		}
	}
	return x
}

// isWritable reports whether it was asked for, by the configuration or the image, that a folder can be written.
func (c Config) isWritable(dir string, found image.InspectResponse) bool {
	asked := []string{c.WorkDir, c.home()}
	for _, t := range c.Tmpfs {
		asked = append(asked, t.Target)
	}
	for _, m := range c.Mounts {
		if !m.ReadOnly {
			asked = append(asked, m.Target)
		}
	}
	if found.Config != nil {
		asked = slices.AppendSeq(asked, maps.Keys(found.Config.Volumes))
	}
	return slices.ContainsFunc(asked, func(a string) bool { return within(dir, a) })
}

// promisedMounts are the mounts of a container.
func (c Config) promisedMounts(found image.InspectResponse, helper bool) []verify.Mount {
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
	if helper {
		return append(all, verify.Mount{Point: programDir})
	}
	for _, dir := range []string{"/sbin", "/usr/sbin", "/bin", "/usr/bin"} {
		all = append(all, verify.Mount{Point: dir + "/docker-init"})
	}
	return all
}
