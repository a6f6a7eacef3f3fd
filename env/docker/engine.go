package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

const (
	// callTimeout bounds short calls.
	callTimeout = 45 * time.Second
	// cleanupTimeout bounds a removal, which takes several calls.
	cleanupTimeout = callTimeout + 10*time.Second
	// minVersion is the first version of the API with all options of a container.
	minVersion = "1.41"
	// maxCreates bounds concurrent creations. More of them only make each one slower.
	maxCreates = 4
)

// Engine is a connection to a Docker daemon, made by Connect. Its methods may be called
// concurrently.
type Engine struct {
	api     *client.Client
	address string
	config  dockerConfig

	creates *semaphore.Weighted
	shared  singleflight.Group
	watch   *watch
	work    sync.WaitGroup // shared calls

	// life ends with the engine.
	life context.Context //nolint:containedctx // of shared calls
	end  context.CancelFunc

	known atomic.Pointer[system.Info] // nil until the daemon has described itself

	mu      sync.Mutex
	volumes map[string]bool // existing helper volumes
}

// Connect connects to a daemon and negotiates the version of its API. The error is a *ConfigError
// for an invalid address, and a *DaemonError for a daemon that does not answer within 45 seconds or
// is unfit. The caller closes the engine.
func Connect(ctx context.Context, a Address) (*Engine, error) {
	opts, address, err := a.options()
	if err != nil {
		return nil, err
	}
	api, err := client.NewClientWithOpts(append(opts, client.WithAPIVersionNegotiation())...)
	if err != nil {
		return nil, badConfig("address", "%s: %v", address, err)
	}
	e := &Engine{
		api: api, address: address, creates: semaphore.NewWeighted(maxCreates),
		volumes: make(map[string]bool),
	}
	if e.config, err = loadConfig(); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	pctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ping, err := api.Ping(pctx)
	if err != nil {
		_ = api.Close() // the ping failed
		if ctx.Err() != nil {
			return nil, fmt.Errorf("docker: connect to %s: %w", address, context.Cause(ctx))
		}
		var daemon *DaemonError
		if err = e.explain(ctx, err); !errors.As(err, &daemon) {
			err = &DaemonError{Address: address, Err: err}
		}
		return nil, err
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		_ = api.Close()
		return nil, &DaemonError{Address: address, Err: fmt.Errorf("it runs %s containers; Linux "+
			"containers are needed", ping.OSType)}
	}
	api.NegotiateAPIVersionPing(ping)
	if versions.LessThan(api.ClientVersion(), minVersion) {
		_ = api.Close()
		err := fmt.Errorf("its API has version %s; %s is needed (Docker 20.10)",
			api.ClientVersion(), minVersion)
		return nil, &DaemonError{Address: address, Err: err}
	}
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.watch = newWatch(e.life, api)
	return e, nil
}

// Address returns the address of the daemon.
func (e *Engine) Address() string { return e.address }

// checkOpen returns an error after Close.
func (e *Engine) checkOpen() error {
	if e.life.Err() != nil {
		return fmt.Errorf("docker: %s: %w", e.address, fs.ErrClosed)
	}
	return nil
}

// Close closes the connection to the daemon. Its environments must be closed first, and no other
// can be opened.
func (e *Engine) Close() error {
	e.end()
	e.work.Wait()
	e.watch.wait()
	return e.api.Close()
}

// share calls work once for all concurrent callers with the same key. The call continues when ctx
// of a caller ends; Close waits for it.
func (e *Engine) share(ctx context.Context, key string, work func() (any, error)) (any, error) {
	done := make(chan singleflight.Result, 1)
	e.work.Go(func() { done <- <-e.shared.DoChan(key, work) })
	select {
	case r := <-done:
		return r.Val, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call makes a short call, bounded by callTimeout.
func (e *Engine) call(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(limited)
	switch {
	case err == nil || limited.Err() == nil:
		return err
	case ctx.Err() != nil: // the client reports a failed connection
		return context.Cause(ctx)
	}
	return &DaemonError{Address: e.address, Err: fmt.Errorf("no answer within %s", callTimeout)}
}

// info returns the description of the daemon, which it gets once.
func (e *Engine) info(ctx context.Context) (*system.Info, error) {
	if known := e.known.Load(); known != nil {
		return known, nil
	}
	_, err := e.share(ctx, "info", func() (any, error) {
		return nil, e.call(e.life, func(ctx context.Context) error {
			info, err := e.api.Info(ctx)
			if err == nil {
				e.known.Store(&info)
			}
			return err
		})
	})
	return e.known.Load(), e.explain(ctx, err)
}

// architectures maps the kernel's names of processors to those of the Go toolchain.
var architectures = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "loongarch64": "loong64",
}

// Arch returns the processor of the daemon's machine, as the Go toolchain names it.
func (e *Engine) Arch(ctx context.Context) (string, error) {
	info, err := e.info(ctx)
	if err != nil {
		return "", err
	}
	return cmp.Or(architectures[info.Architecture], info.Architecture), nil
}

// Version returns the version of the daemon.
func (e *Engine) Version(ctx context.Context) (string, error) {
	info, err := e.info(ctx)
	if err != nil {
		return "", err
	}
	return info.ServerVersion, nil
}

// checkSecurity returns an error if the daemon runs containers without a system call filter.
// Runtimes other than the default have means of their own.
func (e *Engine) checkSecurity(ctx context.Context, c Config) error {
	if c.Runtime != "" {
		return nil
	}
	info, err := e.info(ctx)
	if err != nil {
		return err
	}
	for _, o := range info.SecurityOptions {
		if !strings.HasPrefix(o, "name=seccomp") || strings.Contains(o, "profile=unconfined") {
			continue
		}
		if _, profile, ok := strings.Cut(o, "profile="); ok && profile != "builtin" &&
			profile != "default" {
			c.Warn("the daemon's system call filter is " + profile + " instead of Docker's default")
		}
		return nil
	}
	return &DaemonError{Address: e.address, Err: errors.New("it runs containers without a system " +
		"call filter (seccomp)")}
}

// findImage returns an image on the daemon.
func (e *Engine) findImage(
	ctx context.Context, ref string,
) (found image.InspectResponse, err error) {
	err = e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.ImageInspect(ctx, ref)
		return err
	})
	return found, err
}

// detached returns a context for a call that has to complete although ctx may end: the daemon does
// not undo a started operation.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
