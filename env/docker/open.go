package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Open creates a container and returns the environment in it when it is ready. Errors are
// *ConfigError, also for a missing helper, *ImageError, *OpenError, *DaemonError, env.ErrNoSpace,
// fs.ErrClosed, or the cause of ctx; no container is left then. The caller closes the environment
// before the engine.
func (e *Engine) Open(ctx context.Context, c Config) (*Environment, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	if c.Mounts, err = e.resolve(c.Mounts); err != nil {
		return nil, err
	}
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	if c.Fill == nil {
		return e.open(ctx, c)
	}
	return e.openFilled(ctx, c)
}

// fillSuffix ends the session of the environment that Config.Fill gets.
const fillSuffix = "-fill"

// openFilled opens an environment that shares the working directory with one that is closed again.
// The volume has no name, so that the daemon removes it with the last of the two containers.
func (e *Engine) openFilled(ctx context.Context, c Config) (_ *Environment, err error) {
	first := c
	first.Session += fillSuffix
	first.Network, first.Mounts = NetworkNone, nil
	filled, err := e.open(ctx, first)
	if err != nil {
		return nil, err
	}
	if err := c.Fill(ctx, filled); err != nil {
		return nil, errors.Join(err, filled.Close())
	}
	c.workFrom = filled.Container()
	opened, err := e.open(ctx, c)
	if cerr := filled.Close(); cerr != nil {
		if err == nil {
			cerr = errors.Join(cerr, opened.Close())
		}
		return nil, errors.Join(err, cerr)
	}
	return opened, err
}

// open creates a container and returns the environment in it.
func (e *Engine) open(ctx context.Context, c Config) (*Environment, error) {
	early := ctx
	e.work.Go(func() { _, _ = e.info(early) }) // checkSecurity finds the result
	found, ref, err := e.image(ctx, c)
	if err != nil {
		return nil, err
	}
	c.Image = ref
	if err := e.checkSecurity(ctx, c); err != nil {
		return nil, err
	}
	timeout := fmt.Errorf("the container was not ready within %s", c.StartTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout, timeout)
	defer cancel()
	p, err := c.Helper.Resolve(ctx, "linux", cmp.Or(found.Architecture, "amd64"))
	if err != nil {
		return nil, &ConfigError{Backend: backend, Field: "helper", Reason: err.Error(), Err: err}
	}
	for try := 1; ; try++ {
		if err := e.ensureProgram(ctx, c, p, found.ID, try > 1); err != nil {
			return nil, fmt.Errorf("docker: %w", err)
		}
		opened, err := e.openWith(ctx, c, ref, found, p)
		if err == nil || try > 1 || !isProgramMissing(err) {
			return opened, err
		}
	}
}

// resolve follows symlinks in the sources of mounts on this machine, and checks their targets.
func (e *Engine) resolve(mounts []Mount) ([]Mount, error) {
	mounts = slices.Clone(mounts)
	if !strings.HasPrefix(e.address, "unix://") {
		return mounts, nil
	}
	for i, m := range mounts {
		resolved, err := filepath.EvalSymlinks(filepath.FromSlash(m.Source))
		if err != nil {
			continue // the daemon reports it, or has another file system
		}
		if mounts[i].Source = filepath.ToSlash(resolved); mounts[i].Source != m.Source {
			if err := checkSource(mounts[i].Source); err != nil {
				return nil, err
			}
		}
		if info, err := os.Stat(resolved); err == nil && info.Mode().Type() == fs.ModeSocket {
			return nil, badConfig("mount", "%q is a socket, which could lead out of the sandbox", m.Source)
		}
	}
	return mounts, nil
}

// isProgramMissing reports whether a container could not start because its volume lacks the helper:
// a client that created the volume died before it filled it.
func isProgramMissing(err error) bool {
	var start *OpenError
	text := fmt.Sprint(err)
	return errors.As(err, &start) && strings.Contains(text, programPath) &&
		strings.Contains(text, "no such file")
}

// openWith creates the container with a helper.
func (e *Engine) openWith(
	ctx context.Context, c Config, ref string, found image.InspectResponse, p *remote.Program,
) (_ *Environment, err error) {
	prepared, err := e.prepare(ctx, c, found)
	if err != nil {
		return nil, openError(ref, err)
	}
	h := &handle{
		engine: e, name: namePrefix + c.Session, image: ref, program: p, users: newUsers(),
	}
	s := c.spec(prepared, p.Serve(programPath, socketName, c.TTL), helperMount(p))
	return e.openSpec(ctx, c, h, s, c.vars(found))
}

// openSpec creates the container of a spec and opens the environment in it.
func (e *Engine) openSpec(
	ctx context.Context, c Config, h *handle, s spec, vars []string,
) (*Environment, error) {
	attached, err := e.launch(ctx, c, h, s)
	if err != nil {
		return nil, err
	}
	cfg := h.connection()
	cfg.Session, cfg.TTL, cfg.Stream = c.Session, c.TTL, attached
	cfg.Dir, cfg.Vars, cfg.Isolation = c.WorkDir, vars, c.isolation
	served, err := remote.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(h.startFailure(ctx, attached, err), h.discard(ctx))
	}
	return &Environment{served: served, handle: h, config: c, vars: vars}, nil
}

// launch creates and starts a container and returns the stream to PID 1.
func (e *Engine) launch(ctx context.Context, c Config, h *handle, s spec) (_ *stream, rerr error) {
	if err := e.creates.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer e.creates.Release(1)
	platform, err := c.platform()
	if err != nil {
		return nil, err
	}
	defer func() {
		if rerr != nil && !errdefs.IsConflict(rerr) { // the name is another container's
			rerr = errors.Join(rerr, h.discard(ctx))
		}
	}()
	// The daemon finishes what it has started, and the result has to be removed.
	cctx, cancel := detached(ctx, c.StartTimeout)
	defer cancel()
	created, err := e.api.ContainerCreate(cctx, s.config, s.host, s.net, platform, h.name)
	if err != nil && strings.Contains(err.Error(), "ange of CPUs") { // with a capital letter or not
		var info *system.Info
		switch info, err = e.info(cctx); {
		case err != nil:
		case !c.atMost:
			return nil, badConfig("cpus", "%v is more than the %d processors of the daemon's machine",
				c.CPUs, info.NCPU)
		default:
			s.host.NanoCPUs = int64(info.NCPU) * 1e9
			created, err = e.api.ContainerCreate(cctx, s.config, s.host, s.net, platform, h.name)
		}
	}
	if err != nil {
		return nil, e.createError(ctx, h, err)
	}
	h.id = created.ID
	for _, w := range created.Warnings {
		// a limit is not enforced
		if strings.Contains(w, "discarded") || strings.Contains(w, "without swap") {
			err := fmt.Errorf("the daemon cannot enforce a limit: %s", strings.TrimSpace(w))
			return nil, openError(h.image, err)
		}
		c.Warn("docker: " + w)
	}
	e.watch.follow(h.id)
	hijacked, err := e.api.ContainerAttach(ctx, h.id, container.AttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return nil, e.createError(ctx, h, err)
	}
	attached := newStream(hijacked)
	if err := e.api.ContainerStart(cctx, h.id, container.StartOptions{}); err != nil {
		_ = attached.Close() // err explains more
		return nil, e.createError(ctx, h, err)
	}
	return attached, nil
}

// openError returns the *OpenError of a container.
func openError(image string, err error) error {
	return &OpenError{Backend: backend, Object: "a container of " + image, Err: err}
}

// createError returns the error for a container that the daemon did not create or start.
func (e *Engine) createError(ctx context.Context, h *handle, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("docker: start a container of %s: %w", h.image, context.Cause(ctx))
	}
	explained := e.explain(ctx, err)
	var daemon *DaemonError
	if errors.As(explained, &daemon) {
		return explained
	}
	if strings.Contains(err.Error(), "exec format error") {
		return &ImageError{
			Reference: h.image, Problem: ImagePlatform, Err: err,
			Hint: "the daemon's machine lacks emulation for its programs",
		}
	}
	return openError(h.image, explained)
}

// handle is the container of an environment.
type handle struct {
	engine   *Engine
	id, name string
	image    string
	program  *remote.Program
	users    *users

	mu          sync.Mutex
	unreachable time.Time // first failed call; zero while the daemon answers
}

// dial returns a stream to the helper over an exec of its own.
func (h *handle) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	if err := h.running(ctx); err != nil {
		return nil, err
	}
	return h.exec(ctx, "", h.program.Dial(programPath, socketName, "--pid", "1"))
}

// running returns a *GoneError if the container has ended.
func (h *handle) running(ctx context.Context) error {
	state, err := h.inspect(ctx)
	if gone := h.gone(ctx, state, err); gone != nil {
		return gone
	}
	return h.engine.explain(ctx, err)
}

// inspect returns the daemon's state of the container.
func (h *handle) inspect(ctx context.Context) (state container.InspectResponse, err error) {
	err = h.engine.call(ctx, func(ctx context.Context) (err error) {
		state, err = h.engine.api.ContainerInspect(ctx, h.id)
		return err
	})
	return state, err
}

// startFailure returns the error for a helper that did not answer in a started container.
func (h *handle) startFailure(ctx context.Context, s *stream, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("docker: start a container of %s: %w", h.image, context.Cause(ctx))
	}
	f := h.engine.watch.end(ctx, h.id, exitTimeout)
	switch stderrTail := s.stderr.String(); {
	case f.outOfMemory:
		err = fmt.Errorf("%w; the helper was out of memory", err)
	case stderrTail != "":
		err = fmt.Errorf("%w; stderr of the helper: %q", err, stderrTail)
	case f.died:
		err = fmt.Errorf("%w; the helper exited with code %s", err, f.exitCode)
	}
	return openError(h.image, err)
}

// discard removes the container and its volumes within cleanupTimeout, also when ctx has ended.
func (h *handle) discard(ctx context.Context) error {
	ctx, cancel := detached(ctx, cleanupTimeout)
	defer cancel()
	h.engine.watch.forget(h.id)
	if err := h.engine.remove(ctx, h.name); err != nil {
		return err // its volumes are still in use
	}
	return h.engine.removeVolumes(ctx, strings.TrimPrefix(h.name, namePrefix))
}
