package server

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

const (
	// maxRunning bounds the number of commands in progress. Each takes memory for its output, two
	// rings at most.
	maxRunning = 1024
	// maxFinished bounds the number of results kept for clients that reconnect, and maxOutputs the
	// memory of their outputs: a third of the helper's memory limit.
	maxFinished = 1024
	maxOutputs  = 16 << 20
	// maxLost is how many more commands are kept by their ids alone, so that they do not run again.
	maxLost = 64 << 10
)

// commands are the commands in progress and those whose results are kept.
type commands struct {
	mu             sync.Mutex
	byID           map[string]*command
	running        int
	finished       list.List // of *command, the oldest first
	outputs        int       // how many bytes those hold
	lost           list.List // of *command: finished ones of which only the ids are left
	arrival        chan struct{}
	awaited        bool          // a request waits for arrival
	closing        bool          // the environment is being closed
	arrivalTimeout time.Duration // arrivalTime but for tests
}

func (t *commands) init() {
	t.byID = make(map[string]*command)
	t.arrival = make(chan struct{})
	t.arrivalTimeout = arrivalTimeout
}

// start returns the command with the given id. The caller runs a fresh one. Resumed means that the
// client has output of it.
func (t *commands) start(p *peer, id string, request *wire.ExecRequest,
	resumed bool,
) (c *command, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		return c, false, nil
	}
	switch {
	case !p.current():
		return nil, false, errCutOff
	case resumed:
		return nil, false, fmt.Errorf("%w: the server has forgotten it", env.ErrUnknownOutcome)
	}
	c = newCommand(id, request)
	if t.running == maxRunning {
		close(c.done)
		err := fmt.Errorf("%d commands are running already", maxRunning)
		c.result.Error = wire.ToError(&env.StartError{Argv: wire.Strings(request.Argv), Err: err})
		return c, false, nil // it is not remembered
	}
	t.running++
	if t.closing {
		c.abandon()
	}
	t.add(c)
	return c, true, nil
}

func (t *commands) add(c *command) {
	t.byID[c.id] = c
	if t.awaited {
		close(t.arrival)
		t.arrival, t.awaited = make(chan struct{}), false
	}
}

// get returns the command with the given id, or nil and a channel that is closed when another
// command starts.
func (t *commands) get(id string) (*command, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	if c == nil {
		t.awaited = true
	}
	return c, t.arrival
}

// cancel cancels a command. One that has not started does not start.
func (t *commands) cancel(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		c.kill()
		return
	}
	c := &command{id: id, done: make(chan struct{}), wakeup: make(chan struct{}, 1)}
	c.result = wire.ExecResult{
		Cancelled: true,
		Error:     wire.ToError(&env.StartError{Err: context.Canceled}),
	}
	close(c.done)
	t.add(c)
	t.retain(c)
}

// finish records the result of a command.
func (t *commands) finish(c *command, result wire.ExecResult) {
	c.result = result
	if c.stdin != nil {
		c.stdin.close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.retain(c)
	close(c.done)
}

// retain keeps the result of c. Of the oldest beyond the limits only the ids are kept.
func (t *commands) retain(c *command) {
	t.finished.PushBack(c)
	t.outputs += c.memory()
	for t.finished.Len() > maxFinished || t.outputs > maxOutputs && t.finished.Len() > 1 {
		oldest, _ := t.finished.Remove(t.finished.Front()).(*command)
		t.outputs -= oldest.memory()
		stub := &command{id: oldest.id, done: oldest.done, lost: true}
		t.lost.PushBack(stub)
		t.byID[stub.id] = stub
	}
	if t.lost.Len() > maxLost {
		oldest, _ := t.lost.Remove(t.lost.Front()).(*command)
		delete(t.byID, oldest.id)
	}
}

// abandon discards output that does not fit, instead of blocking the commands.
func (t *commands) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	for _, c := range t.byID {
		c.abandon()
	}
}
