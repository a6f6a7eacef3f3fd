package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
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
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Open makes a container and returns the environment in it, when it is ready. Errors are *ConfigError for what cannot be
// meant, *ImageError, *StartError, *DaemonError, env.ErrNoSpace, or the end of ctx; in each case nothing stays behind. The
// caller closes the environment before the engine.
func (e *Engine) Open(ctx context.Context, c Config) (*Environment, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	c.Session = cmp.Or(c.Session, newSession())
	if c.Mounts, err = e.resolve(c.Mounts); err != nil {
		return nil, err
	}
	early := ctx
	e.work.Go(func() { _, _ = e.security(early) }) // it is asked again when it is needed, and known then
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
	p, err := e.program(c, cmp.Or(found.Architecture, "amd64"))
	var missing *helper.MissingError
	switch {
	case c.Helper == HelperOff, c.Helper == HelperAuto && errors.As(err, &missing):
		if c.Helper == HelperAuto {
			c.note(missing.Error() + "; the sandbox uses its shell instead, which is slower and promises less")
		}
		return e.openPortable(ctx, c, ref, found)
	case err != nil:
		return nil, &ConfigError{Field: "helper", Reason: err.Error()}
	}
	for try := 1; ; try++ {
		if err := e.ensureProgram(ctx, c, p, found.ID, try > 1); err != nil {
			return nil, fmt.Errorf("docker: %w", err)
		}
		opened, err := e.openWith(ctx, c, ref, found, p)
		if err == nil || try > 1 || !lacksProgram(err) {
			return opened, err
		}
	}
}

// resolve follows links in the sources of mounts, where they are on this machine: what they lead to counts.
func (e *Engine) resolve(mounts []Mount) ([]Mount, error) {
	mounts = slices.Clone(mounts)
	if !strings.HasPrefix(e.address, "unix://") {
		return mounts, nil
	}
	for i, m := range mounts {
		resolved, err := filepath.EvalSymlinks(filepath.FromSlash(m.Source))
		if err != nil {
			continue // the daemon says what is wrong with it, or has another file system
		}
		if mounts[i].Source = filepath.ToSlash(resolved); mounts[i].Source != m.Source {
			if err := checkSource(mounts[i].Source); err != nil {
				return nil, err
			}
		}
		if info, err := os.Stat(resolved); err == nil && info.Mode().Type() == fs.ModeSocket {
			return nil, &ConfigError{Field: "mount", Reason: fmt.Sprintf("%q is a socket: whoever can talk to a daemon can leave the sandbox", m.Source)}
		}
	}
	return mounts, nil
}

// lacksProgram reports whether a container could not start because its volume does not have the helper: it was made by
// somebody who did not get far.
func lacksProgram(err error) bool {
	var start *StartError
	return errors.As(err, &start) && strings.Contains(err.Error(), programDir+"/"+programName) && strings.Contains(err.Error(), "no such file")
}

// openWith makes the container with a helper.
func (e *Engine) openWith(ctx context.Context, c Config, ref string, found image.InspectResponse, p *program) (_ *Environment, err error) {
	prepared, err := e.prepare(ctx, c, found)
	if err != nil {
		return nil, &StartError{Image: ref, Err: err}
	}
	box := &box{engine: e, name: namePrefix + c.Session, image: ref, program: p, ttl: c.TTL}
	attached, err := e.launch(ctx, c, box, c.spec(prepared, c.command(p), helperMount(p)))
	if err != nil {
		return nil, err
	}
	start, err := json.Marshal(helper.Start{Dir: c.WorkDir, Vars: c.vars(found), Inherit: vars.None})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker: %w", err), box.discard(ctx))
	}
	box.first = attached
	token := newToken()
	client, err := client.Open(ctx, client.Config{Dial: box.dial, Token: token, Start: start, Redial: c.TTL})
	if err != nil {
		return nil, errors.Join(box.unready(ctx, attached, err), box.discard(ctx))
	}
	opened := newEnvironment(box, client, c)
	opened.token = token
	return opened, nil
}

// newToken returns a secret for the helper's socket.
func newToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// launch makes and starts a container and returns the stream to its first process.
func (e *Engine) launch(ctx context.Context, c Config, box *box, s spec) (_ *stream, rerr error) {
	if err := e.creates.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer e.creates.Release(1)
	platform, err := c.platform()
	if err != nil {
		return nil, err
	}
	defer func() {
		if rerr != nil && !errdefs.IsConflict(rerr) { // the name is somebody else's
			rerr = errors.Join(rerr, box.discard(ctx))
		}
	}()
	// What the daemon has begun it finishes, and it has to be known what there is to be removed.
	cctx, cancel := detached(ctx, c.StartTimeout)
	defer cancel()
	created, err := e.api.ContainerCreate(cctx, s.config, s.host, s.net, platform, box.name)
	if err != nil && c.atMost && strings.Contains(err.Error(), "Range of CPUs") {
		var info system.Info
		if info, err = e.api.Info(cctx); err == nil {
			s.host.NanoCPUs = int64(info.NCPU) * 1e9
			created, err = e.api.ContainerCreate(cctx, s.config, s.host, s.net, platform, box.name)
		}
	}
	if err != nil {
		return nil, e.startError(ctx, box, err)
	}
	box.id = created.ID
	for _, w := range created.Warnings {
		if strings.Contains(w, "discarded") || strings.Contains(w, "without swap") { // a limit that nothing keeps
			return nil, &StartError{Image: box.image, Err: fmt.Errorf("the daemon cannot keep a limit: %s", strings.TrimSpace(w))}
		}
		c.note("docker: " + w)
	}
	e.watch.follow(box.id)
	hijacked, err := e.api.ContainerAttach(ctx, box.id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, e.startError(ctx, box, err)
	}
	attached := newStream(hijacked)
	if err := e.api.ContainerStart(cctx, box.id, container.StartOptions{}); err != nil {
		_ = attached.Close() // there is an error already
		return nil, e.startError(ctx, box, err)
	}
	return attached, nil
}

// startError says what went wrong with a container before it ran.
func (e *Engine) startError(ctx context.Context, box *box, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("docker: start a container of %s: %w", box.image, context.Cause(ctx))
	}
	explained := e.explain(err)
	var daemon *DaemonError
	if errors.As(explained, &daemon) {
		return explained
	}
	if strings.Contains(err.Error(), "exec format error") {
		return &ImageError{Reference: box.image, Problem: ImagePlatform, Err: err, Hint: "the daemon's machine cannot run its programs; emulation is not set up there"}
	}
	return &StartError{Image: box.image, Err: explained}
}

// box is the container of an environment.
type box struct {
	engine   *Engine
	id, name string
	image    string
	program  *program
	ttl      time.Duration
	first    *stream // until it is used

	mu   sync.Mutex
	lost time.Time // since when the daemon has not answered
}

// dial returns a stream to the helper: first the one to the container's first process, then one to a process of its own.
// Calls do not overlap.
func (b *box) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	if s := b.first; s != nil {
		b.first = nil
		return s, nil
	}
	state, err := b.inspect(ctx)
	if gone := b.gone(ctx, state, err); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, b.engine.explain(err)
	}
	hijacked, err := b.exec(ctx, dialCommand(b.program))
	if err != nil {
		return nil, err
	}
	return newStream(hijacked), nil
}

// inspect asks the daemon for the container.
func (b *box) inspect(ctx context.Context) (state container.InspectResponse, err error) {
	err = b.engine.call(ctx, func(ctx context.Context) (err error) {
		state, err = b.engine.api.ContainerInspect(ctx, b.id)
		return err
	})
	return state, err
}

// exec starts a process in the container and returns the connection to it.
func (b *box) exec(ctx context.Context, argv []string) (attached types.HijackedResponse, err error) {
	err = b.engine.call(ctx, func(ctx context.Context) error {
		made, err := b.engine.api.ContainerExecCreate(ctx, b.id, container.ExecOptions{
			AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: argv,
		})
		if err == nil {
			attached, err = b.engine.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
		}
		return err
	})
	return attached, b.engine.explain(err)
}

// unready says why the helper in a container that has started does not answer.
func (b *box) unready(ctx context.Context, s *stream, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("docker: start a container of %s: %w", b.image, context.Cause(ctx))
	}
	f := b.engine.watch.fate(ctx, b.id, fateTime)
	switch said := s.said.String(); {
	case f.outOfMemory:
		err = fmt.Errorf("%w; it was out of memory", err)
	case said != "":
		err = fmt.Errorf("%w; it said %q", err, said)
	case f.died:
		err = fmt.Errorf("%w; it ended with exit code %s", err, f.exitCode)
	}
	return &StartError{Image: b.image, Err: err}
}

// discard removes the container, whether ctx has ended or not, and waits no longer than cleanTime.
func (b *box) discard(ctx context.Context) error {
	ctx, cancel := detached(ctx, cleanTime)
	defer cancel()
	b.engine.watch.forget(b.id)
	if err := b.engine.remove(ctx, b.name); err != nil {
		return err // its volumes cannot be removed before it
	}
	return b.engine.removeVolumes(ctx, strings.TrimPrefix(b.name, namePrefix))
}
