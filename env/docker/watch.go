package docker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// observed is the state of a container according to the daemon's events.
type observed struct {
	outOfMemory bool
	killed      string // the signal that the daemon sent
	stopped     bool
	removed     bool // on request
	died        bool
	exitCode    string
	ended       chan struct{} // closed when died is set
}

// watch follows the daemon's events, the only trace of a container that removes itself.
type watch struct {
	api  *client.Client
	life context.Context //nolint:containedctx // of the engine
	done sync.WaitGroup

	mu      sync.Mutex
	started bool
	of      map[string]*observed
}

func newWatch(life context.Context, api *client.Client) *watch {
	return &watch{api: api, life: life, of: make(map[string]*observed)}
}

// follow starts recording the events of a container.
func (w *watch) follow(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[id] = &observed{ended: make(chan struct{})}
	if !w.started {
		w.started = true
		w.done.Add(1)
		go w.run()
	}
}

// forget stops recording.
func (w *watch) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, id)
}

// end returns the recorded state of a container once it has ended, or after limit.
func (w *watch) end(ctx context.Context, id string, limit time.Duration) observed {
	w.mu.Lock()
	f := w.of[id]
	w.mu.Unlock()
	if f == nil {
		return observed{}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-f.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return *f
}

// wait waits until the watch has ended, which follows the end of the engine.
func (w *watch) wait() { w.done.Wait() }

// run reads events, and reconnects where the stream broke.
func (w *watch) run() {
	defer w.done.Done()
	since := "" // by the daemon's clock
	for w.life.Err() == nil {
		messages, errs := w.api.Events(w.life, events.ListOptions{
			Since: since,
			Filters: filters.NewArgs(
				filters.Arg("type", string(events.ContainerEventType)),
				filters.Arg("label", labelKind+"="+kindSandbox),
			),
		})
	reading:
		for {
			select {
			case m := <-messages:
				since = strconv.FormatInt(m.Time, 10)
				w.record(m)
			case err := <-errs:
				_ = err // reconnect
				break reading
			}
		}
		select {
		case <-time.After(time.Second):
		case <-w.life.Done():
		}
	}
}

// record applies an event.
func (w *watch) record(m events.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.of[m.Actor.ID]
	if f == nil {
		return
	}
	switch m.Action {
	case events.ActionOOM:
		f.outOfMemory = true
	case events.ActionKill:
		f.killed = m.Actor.Attributes["signal"]
	case events.ActionStop:
		f.stopped = true
	case events.ActionDestroy, events.ActionRemove:
		f.removed = true
	case events.ActionDie:
		f.exitCode = m.Actor.Attributes["exitCode"]
		if !f.died {
			f.died = true
			close(f.ended)
		}
	}
}
