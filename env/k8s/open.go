package k8s

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

const (
	// cleanupTimeout bounds the removal of a pod.
	cleanupTimeout = callTimeout + 10*time.Second
	// adoptTimeout bounds the search for a pod whose creation had no answer.
	adoptTimeout = 10 * time.Second
)

// Open creates a pod and returns the environment in it when it is ready. Errors are *ConfigError,
// also for a missing helper, *OpenError, *ClusterError, fs.ErrClosed, or the cause of ctx; the pod
// is deleted then, unless the error has a *ClusterError, or reports that it cannot be deleted. The
// caller closes the environment before the cluster.
func (c *Cluster) Open(ctx context.Context, cfg Config) (*Environment, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	timeout := fmt.Errorf("it was not ready within %s", cfg.StartTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(cfg.StartTimeout, func() { cancel(timeout) })
	defer timer.Stop()
	var fillErr error
	if fill := cfg.Fill; fill != nil {
		cfg.Fill = func(ctx context.Context, e env.Environment) error {
			if !timer.Stop() {
				return timeout
			}
			defer timer.Reset(cfg.StartTimeout)
			fillErr = fill(ctx, e)
			return fillErr
		}
	}
	e, err := c.open(ctx, cfg, timer)
	var config *ConfigError
	var cluster *ClusterError
	var left *leftError
	switch cause := context.Cause(ctx); {
	case err == nil:
		return e, nil
	case fillErr != nil, errors.As(err, &config):
		return nil, err
	case cause != nil && !errors.Is(cause, timeout):
		if errors.As(err, &left) {
			cause = errors.Join(cause, left)
		} else if errors.As(err, &cluster) { // the pod may be left
			cause = errors.Join(cause, cluster)
		}
		return nil, fmt.Errorf("k8s: start a pod of %s: %w", cfg.Image, cause)
	case errors.As(err, &cluster):
		return nil, err
	}
	return nil, &OpenError{Backend: backend, Object: "a pod of " + cfg.Image, Err: err}
}

// leftError is the reason why a pod may be left.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// open opens an environment until the timer of StartTimeout ends ctx.
func (c *Cluster) open(
	ctx context.Context, cfg Config, timer *time.Timer,
) (_ *Environment, err error) {
	program := cfg.program(ctx)
	pod, err := cfg.pod(program)
	if err != nil {
		return nil, err
	}
	c.describe(pod, cfg)
	if len(cfg.Template) > 0 {
		_, err := c.createPod(ctx, pod, true)
		if err != nil && !IsQuota(err) {
			return nil, fmt.Errorf("the cluster rejects the pod template: %w", err)
		}
	}
	h := &handle{cluster: c, name: pod.Name, program: program}
	if !c.watch.follow(h.name) {
		return nil, badConfig("session", "%s is the name of another environment", cfg.Session)
	}
	defer func() {
		if err == nil {
			return
		}
		if late := context.Cause(ctx); late != nil && errors.Is(err, late) {
			err = fmt.Errorf("%w%s", err, h.waitReason())
		}
		h.cluster.watch.forget(h.name)
		if h.uid != "" {
			if failed := h.discard(ctx); failed != nil {
				err = errors.Join(err, &leftError{failed})
			}
		}
	}()
	// The server finishes what it has started, and the result has to be deleted.
	created, err := c.createPod(context.WithoutCancel(ctx), pod, false)
	if IsQuota(err) {
		created, err = c.waitForQuota(ctx, pod, cfg, timer, err)
	}
	if err != nil {
		h.adopt(ctx, pod.Annotations[annotationOpen], err)
		return nil, err
	}
	h.uid = created.UID
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := cfg.checkAdmitted(pod, created); err != nil {
		return nil, err
	}
	if cfg.Network == NetworkNone {
		if err := c.denyNetwork(ctx, created); err != nil {
			return nil, err
		}
	}
	if cfg.HelperImage == "" {
		if err := h.deliver(ctx, cfg.Helper); err != nil {
			return nil, err
		}
	}
	if cfg.Fill != nil {
		if err := h.fill(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return h.serve(ctx, cfg)
}

// wait waits for a pause, and reports false if ctx ends before.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// fill calls Config.Fill with an environment in the container for it.
func (h *handle) fill(ctx context.Context, cfg Config) error {
	rc := h.connection()
	rc.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) { return h.dial(ctx, fillName) }
	rc.Close = nil // the pod goes on
	e, err := h.connect(ctx, rc, cfg, fillName, isFilling)
	if err != nil {
		return err
	}
	err = cfg.Fill(ctx, e)
	if cerr := e.Close(); err != nil {
		return errors.Join(err, cerr)
	}
	return nil // the state of the container tells whether it has ended well
}

// connect opens the environment of a container, once it runs.
func (h *handle) connect(
	ctx context.Context, rc remote.Config, cfg Config, container string, runs func(*observed) bool,
) (e *remote.Environment, err error) {
	rc.Session, rc.TTL, rc.Token = cfg.Session, cfg.TTL, rand.Text()
	rc.Dir, rc.Vars, rc.Inherit = cfg.WorkDir, cfg.vars(), inherited
	rc.Isolation = cfg.isolation
	err = h.try(ctx, runs, never, func() error {
		s, err := h.exec(ctx, container, "--wait", startWait)
		if err != nil {
			return err
		}
		rc.Stream = s
		if e, err = remote.Open(ctx, rc); err != nil {
			return s.failure(err)
		}
		return nil
	})
	return e, err
}

// serve opens the environment of a pod whose helper is installed, and its working directory filled.
func (h *handle) serve(ctx context.Context, cfg Config) (_ *Environment, err error) {
	rc := h.connection()
	rc.Left = func() { h.cluster.watch.forget(h.name) }
	e := &Environment{handle: h, config: cfg}
	e.served, err = h.connect(ctx, rc, cfg, sandboxName, isServing)
	if err != nil {
		return nil, err
	}
	e.network, err = e.checkNetwork(ctx)
	if err == nil && cfg.RequireNoNetwork && e.network.Strength != env.Enforced {
		err = fmt.Errorf("the cluster does not keep the pod from the network: %s", e.network.By)
	}
	if err != nil {
		return nil, errors.Join(err, e.Leave())
	}
	return e, nil
}

// handle is the pod of an environment.
type handle struct {
	cluster *Cluster
	name    string
	uid     types.UID
	program *remote.Program // for its arguments
	// seen is the pod when running last asked for it. That of Attach has no watch.
	seen atomic.Pointer[corev1.Pod]
}

// await waits for a state of the pod. The error is the reason why the pod cannot reach it, in the
// words of the cluster.
func (h *handle) await(ctx context.Context, reached func(*observed) bool) error {
	return h.cluster.watch.until(ctx, h.name, func(o *observed) (bool, error) {
		switch {
		case o.deleted || o.pod.DeletionTimestamp != nil:
			return false, h.gone(o.pod, o.deleted)
		case reached(o):
			return true, nil
		}
		return false, startFailure(o.pod)
	})
}

// waitReason returns what the pod waits for, in the words of the cluster; empty if that is unknown.
func (h *handle) waitReason() string {
	pod := h.cluster.watch.last(h.name)
	if pod == nil {
		return ""
	}
	if text := waitReason(pod); text != "" {
		return ": " + text
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if text := h.cluster.lastWarning(ctx, pod); text != "" {
		return ": " + text
	}
	return ""
}

// maxTries is how often try calls, and startWait how long a helper takes to listen.
const (
	maxTries  = 3
	startWait = "20s"
)

// try calls call, which connects to a container, once the container runs. Where the connection
// breaks it calls again, unless the pod reaches the state done, or fails. A kubelet reports that up
// to a second late.
func (h *handle) try(
	ctx context.Context, runs, done func(*observed) bool, call func() error,
) error {
	if err := h.await(ctx, runs); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := call()
		if !errors.Is(err, errBroken) && !isTransient(err) {
			return err
		}
		late, cancel := context.WithTimeout(ctx, exitTimeout)
		ended := h.await(late, done)
		cancel()
		switch {
		case ctx.Err() != nil:
			return err
		case !errors.Is(ended, context.DeadlineExceeded):
			return ended
		case tries == maxTries:
			return err
		}
	}
}

// isTransient reports whether the API server may answer the next request.
func isTransient(err error) bool {
	var cluster *ClusterError
	return errors.As(err, &cluster) && !cluster.Denied
}

// dial returns a stream to the helper of a container by an exec of its own. The API server accepts
// one for a pod that has ended, too.
func (h *handle) dial(ctx context.Context, container string) (io.ReadWriteCloser, error) {
	if err := h.running(ctx); err != nil {
		return nil, err
	}
	if pod := h.last(); pod != nil && isSilent(pod) {
		return nil, fmt.Errorf("the node %s does not report to the cluster", pod.Spec.NodeName)
	}
	s, err := h.exec(ctx, container)
	if err != nil {
		return nil, err
	}
	return explained{s}, nil
}

// exec starts a process in a container that connects its stream to the helper.
func (h *handle) exec(ctx context.Context, container string, args ...string) (*stream, error) {
	args = append([]string{"--pid", "1"}, args...)
	argv := h.program.Dial(programPath, socketPrefix+h.name, args...)
	return h.cluster.exec(ctx, h.name, container, argv)
}

// running returns a *GoneError if the pod has ended.
func (h *handle) running(ctx context.Context) error {
	pod, err := h.cluster.getPod(ctx, h.name)
	switch {
	case isMissing(err) || err == nil && pod.UID != h.uid:
		return h.gone(h.last(), true)
	case err != nil:
		return err
	}
	h.seen.Store(pod)
	if pod.DeletionTimestamp != nil || hasEnded(pod) {
		return h.gone(pod, false)
	}
	return nil
}

// last returns the last state of the pod: by the watch, or else by running.
func (h *handle) last() *corev1.Pod {
	return cmp.Or(h.cluster.watch.last(h.name), h.seen.Load())
}

// discard deletes the pod within cleanupTimeout, also when ctx has ended.
func (h *handle) discard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	h.cluster.watch.forget(h.name)
	var last error // of the server; the end of the time has no reason
	for pause := time.Second; ; pause *= 2 {
		err := h.cluster.deletePod(ctx, h.name, string(h.uid))
		if err != nil && ctx.Err() != nil && last != nil {
			return last
		}
		if !isTransient(err) {
			return err
		}
		last = err
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// adopt finds the pod of an Open that the server created although it answered err, or not at all.
func (h *handle) adopt(ctx context.Context, open string, err error) {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsNotFound(err), isDenied(err):
		return // it created none
	case errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &certificate):
		return // it got no request
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adoptTimeout)
	defer cancel()
	for {
		pod, err := h.cluster.getPod(ctx, h.name)
		switch {
		case err == nil && pod.Annotations[annotationOpen] == open:
			h.uid = pod.UID
			return
		case err == nil:
			return // it is that of another
		}
		select { // the request may still be on its way
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}
