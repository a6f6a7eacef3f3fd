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

// facts are what the daemon has told of a container.
type facts struct {
	outOfMemory bool
	killed      string // the signal that somebody had the daemon send
	stopped     bool
	removed     bool // somebody asked for its removal
	died        bool
	exitCode    string
	changed     chan struct{} // closed when it has died
}

// watch follows what the daemon tells of containers, which is all that is left of one that removes itself.
type watch struct {
	api  *client.Client
	life context.Context //nolint:containedctx // that of the engine
	done sync.WaitGroup

	mu      sync.Mutex
	started bool
	of      map[string]*facts
}

func newWatch(life context.Context, api *client.Client) *watch {
	return &watch{api: api, life: life, of: make(map[string]*facts)}
}

// follow begins to keep what is told of a container.
func (w *watch) follow(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[id] = &facts{changed: make(chan struct{})}
	if !w.started {
		w.started = true
		w.done.Add(1)
		go w.run()
	}
}

// forget ends that.
func (w *watch) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, id)
}

// fate returns what is known of a container, after a wait for the news of its end.
func (w *watch) fate(ctx context.Context, id string, patience time.Duration) facts {
	w.mu.Lock()
	f := w.of[id]
	w.mu.Unlock()
	if f == nil {
		return facts{}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return *f
}

// wait waits for the end of the following, which comes with that of the engine.
func (w *watch) wait() { w.done.Wait() }

// run reads what the daemon tells, and asks again when the connection breaks, from where it broke.
func (w *watch) run() {
	defer w.done.Done()
	since := "" // by the daemon's clock
	for w.life.Err() == nil {
		messages, errs := w.api.Events(w.life, events.ListOptions{
			Since: since,
			Filters: filters.NewArgs(
				filters.Arg("type", string(events.ContainerEventType)), filters.Arg("label", labelKind+"="+kindSandbox),
			),
		})
	reading:
		for {
			select {
			case m := <-messages:
				since = strconv.FormatInt(m.Time, 10)
				w.note(m)
			case err := <-errs:
				_ = err // the connection has ended; it is made again
				break reading
			}
		}
		select {
		case <-time.After(time.Second):
		case <-w.life.Done():
		}
	}
}

// note keeps what a message says.
func (w *watch) note(m events.Message) {
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
			close(f.changed)
		}
	}
}
