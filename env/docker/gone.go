package docker

import (
	"context"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

const (
	// fateTime bounds the wait for the news of how a container ended.
	fateTime = time.Second
	// daemonTime is how long a daemon on this machine may be away. Its socket refuses at once when it is not there.
	daemonTime = 8 * time.Second
)

// gone returns why the container will not answer any more, or nil if it may. State and err are what the daemon says of it.
func (b *box) gone(ctx context.Context, state container.InspectResponse, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := err == nil && state.ContainerJSONBase != nil && state.State != nil && state.State.Running
	switch {
	case running:
		b.lost = time.Time{}
		return nil
	case err != nil && !errdefs.IsNotFound(err):
		if !isUnreachable(err) || !strings.HasPrefix(b.engine.address, "unix://") {
			return nil
		}
		if b.lost.IsZero() {
			b.lost = time.Now()
		}
		if time.Since(b.lost) < daemonTime {
			return nil
		}
		return &GoneError{Container: b.name, Reason: ReasonUnreachable, Detail: b.engine.explain(ctx, err).Error()}
	}
	restarted := !b.lost.IsZero()
	f := b.engine.watch.fate(ctx, b.id, fateTime)
	gone := &GoneError{Container: b.name, Reason: ReasonEnded}
	switch {
	case f.killed != "" || f.stopped:
		gone.Reason, gone.Detail = ReasonStopped, "by docker stop or docker kill, or by its removal"
	case f.outOfMemory && f.exitCode == "137", err == nil && state.State.OOMKilled && state.State.ExitCode == 137:
		gone.Reason, gone.Detail = ReasonOutOfMemory, "the container's limit is too low, or its commands use too much"
	case restarted:
		gone.Reason = ReasonDaemon
	case f.removed, err != nil && !f.died:
		gone.Reason = ReasonRemoved
	case f.exitCode != "":
		gone.Detail = "exit code " + f.exitCode
	}
	return gone
}
