package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

const (
	// callTime bounds calls that the daemon answers at once.
	callTime = 45 * time.Second
	// cleanTime bounds the removal of what was made, which takes several calls.
	cleanTime = callTime + 10*time.Second
	// minVersion is the first version of the API that knows all that keeps a container in.
	minVersion = "1.41"
	// maxCreates is how many containers are made at once. A daemon makes more of them at once no faster, and each of them
	// takes longer.
	maxCreates = 4
)

// Engine is a Docker daemon. Its methods may be called concurrently. It is made by Connect.
type Engine struct {
	api     *client.Client
	address string
	config  dockerConfig

	creates *semaphore.Weighted
	shared  singleflight.Group
	watch   *watch
	work    sync.WaitGroup // shared calls

	// life ends with the engine.
	life context.Context //nolint:containedctx // what several callers wait for belongs to none of them
	end  context.CancelFunc

	mu      sync.Mutex
	options []string        // the daemon's security options, once they are known
	machine string          // the processor of the daemon's machine, once it is known
	volumes map[string]bool // helper volumes that are known to be there
	digests map[string]file // of programs that have been read
}

// Connect finds a daemon, without waiting for one that does not answer longer than ctx allows. The version of the
// daemon's API is negotiated. The error is a *ConfigError for an address that means nothing, and a *DaemonError if nobody
// answers there. The caller closes the engine.
func Connect(ctx context.Context, a Address) (*Engine, error) {
	opts, address, err := a.options()
	if err != nil {
		return nil, err
	}
	api, err := client.NewClientWithOpts(append(opts, client.WithAPIVersionNegotiation())...)
	if err != nil {
		return nil, &ConfigError{Field: "address", Reason: fmt.Sprintf("%s: %v", address, err)}
	}
	e := &Engine{
		api: api, address: address, creates: semaphore.NewWeighted(maxCreates),
		volumes: make(map[string]bool), digests: make(map[string]file),
	}
	if e.config, err = loadConfig(); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	pctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ping, err := api.Ping(pctx)
	if err != nil {
		_ = api.Close() // the ping says why
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if explained := e.explain(ctx, err); explained != err { //nolint:errorlint // identity tells whether it was explained
			return nil, explained
		}
		return nil, &DaemonError{Address: address, Err: err}
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		_ = api.Close()
		return nil, &DaemonError{Address: address, Err: fmt.Errorf("it runs containers for %s, and Linux is needed", ping.OSType)}
	}
	api.NegotiateAPIVersionPing(ping)
	if versions.LessThan(api.ClientVersion(), minVersion) {
		_ = api.Close()
		return nil, &DaemonError{Address: address, Err: fmt.Errorf("it speaks version %s of the API, and %s is needed (Docker 20.10)", api.ClientVersion(), minVersion)}
	}
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.watch = newWatch(e.life, api)
	return e, nil
}

// Address returns where the daemon is.
func (e *Engine) Address() string { return e.address }

// Close ends the connection to the daemon. Environments of it must have been closed before.
func (e *Engine) Close() error {
	e.end()
	e.work.Wait()
	e.watch.wait()
	return e.api.Close()
}

// share calls work once for all concurrent callers with the same key. The call continues when ctx of a caller
// ends; Close waits for it.
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

// call makes a call that the daemon answers at once, and does not wait longer for it than callTime.
func (e *Engine) call(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := do(limited)
	switch {
	case err == nil || limited.Err() == nil:
		return err
	case ctx.Err() != nil: // the client takes that for a daemon that is not there
		return context.Cause(ctx)
	}
	return &DaemonError{Address: e.address, Err: fmt.Errorf("nothing came within %s", callTime)}
}

// security returns the daemon's security options.
func (e *Engine) security(ctx context.Context) ([]string, error) {
	known, err := e.share(ctx, "security", func() (any, error) {
		e.mu.Lock()
		known := e.options
		e.mu.Unlock()
		if known != nil {
			return known, nil
		}
		var info system.Info
		err := e.call(e.life, func(ctx context.Context) (err error) {
			info, err = e.api.Info(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.options = append(info.SecurityOptions, "")
		e.mu.Unlock()
		return info.SecurityOptions, nil
	})
	options, _ := known.([]string)
	return options, e.explain(ctx, err)
}

// checkSecurity reports a daemon that runs containers without a system call filter. Other runtimes have means of their own.
func (e *Engine) checkSecurity(ctx context.Context, c Config) error {
	if c.Runtime != "" {
		return nil
	}
	options, err := e.security(ctx)
	if err != nil {
		return err
	}
	for _, o := range options {
		if !strings.HasPrefix(o, "name=seccomp") || strings.Contains(o, "profile=unconfined") {
			continue
		}
		if _, profile, ok := strings.Cut(o, "profile="); ok && profile != "builtin" && profile != "default" {
			c.note("the daemon's system call filter is not Docker's own but " + profile + "; what it refuses, env verify shows in part")
		}
		return nil
	}
	return &DaemonError{Address: e.address, Err: errors.New("it runs containers without a system call filter (seccomp), so that they would be no sandbox")}
}

// findImage is what the daemon knows of an image.
func (e *Engine) findImage(ctx context.Context, ref string) (found image.InspectResponse, err error) {
	err = e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.ImageInspect(ctx, ref)
		return err
	})
	return found, err
}

// detached returns a context for a call that is to be carried out although ctx may end: what the daemon has begun it does
// not take back, and it must be known what has become of it.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
