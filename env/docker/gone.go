package docker

import (
	"context"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

const (
	// exitTimeout bounds the wait for the events of a container that has ended.
	exitTimeout = time.Second
	// daemonTimeout is the time that a daemon on this machine has for a restart.
	daemonTimeout = 30 * time.Second
)

// gone returns a *GoneError if the container has ended for good. State and err are the result of
// inspecting it.
func (h *handle) gone(ctx context.Context, state container.InspectResponse, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	running := err == nil && state.ContainerJSONBase != nil && state.State != nil &&
		state.State.Running
	switch {
	case running:
		h.unreachable = time.Time{}
		return nil
	case err != nil && !errdefs.IsNotFound(err):
		if !isUnreachable(err) || !strings.HasPrefix(h.engine.address, "unix://") {
			return nil
		}
		if h.unreachable.IsZero() {
			h.unreachable = time.Now()
		}
		if time.Since(h.unreachable) < daemonTimeout {
			return nil
		}
		detail := h.engine.explain(ctx, err).Error()
		return &GoneError{Container: h.name, Reason: ReasonUnreachable, Detail: detail}
	}
	restarted := !h.unreachable.IsZero()
	f := h.engine.watch.end(ctx, h.id, exitTimeout)
	gone := &GoneError{Container: h.name, Reason: ReasonEnded}
	switch {
	case f.killed != "" || f.stopped:
		gone.Reason, gone.Detail = ReasonStopped, "by docker stop, docker kill or docker rm"
	case f.outOfMemory && f.exitCode == "137", err == nil && state.State.OOMKilled &&
		state.State.ExitCode == 137:
		gone.Reason, gone.Detail = ReasonOutOfMemory,
			"the memory limit is too low, or its commands use too much"
	case restarted:
		gone.Reason = ReasonDaemon
	case f.removed, err != nil && !f.died:
		gone.Reason = ReasonRemoved
	case f.exitCode != "":
		gone.Detail = "exit code " + f.exitCode
	}
	return gone
}
