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
	// maxRunning is how many commands may run at once. Each takes memory as its output comes, up to two rings.
	maxRunning = 1024
	// maxFinished is how many results are kept for clients that reconnect, and maxOutputs how many bytes of memory their
	// outputs may take: a third of what the helper lets the garbage collector reach.
	maxFinished = 1024
	maxOutputs  = 16 << 20
	// maxLost is how many commands beyond those are known by their ids, so that they do not run again.
	maxLost = 64 << 10
)

// commands are the commands that run and those that have ended and whose results may be asked for.
type commands struct {
	mu             sync.Mutex
	byID           map[string]*command
	running        int
	finished       list.List // of *command, the oldest first
	outputs        int       // how many bytes those hold
	lost           list.List // of *command: finished ones of which only the ids are left
	arrival        chan struct{}
	awaited        bool          // somebody waits for arrival
	closing        bool          // the environment is being closed
	arrivalTimeout time.Duration // arrivalTime but for tests
}

func (t *commands) init() {
	t.byID = make(map[string]*command)
	t.arrival = make(chan struct{})
	t.arrivalTimeout = arrivalTimeout
}

// begin returns the command with the given id. If it is not known, it is a new one, to be run by the caller. Resumed says
// that the client has output of it.
func (t *commands) start(p *peer, id string, request *wire.ExecRequest, resumed bool) (c *command, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		return c, false, nil
	}
	switch {
	case !p.current():
		return nil, false, errCutOff
	case resumed:
		return nil, false, fmt.Errorf("%w: it is not known here", env.ErrUnknownOutcome)
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

// get returns the command with the given id; if it is not known, a channel that is closed when another one comes.
func (t *commands) get(id string) (*command, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	if c == nil {
		t.awaited = true
	}
	return c, t.arrival
}

// cancel cancels a command. One that is not known will not start.
func (t *commands) cancel(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		c.kill()
		return
	}
	c := &command{id: id, done: make(chan struct{}), wakeup: make(chan struct{}, 1)}
	c.result = wire.ExecResult{Cancelled: true, Error: wire.ToError(&env.StartError{Err: context.Canceled})}
	close(c.done)
	t.add(c)
	t.retain(c)
}

// end notes how a command has ended.
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

// keep adds c to the finished ones. Of those that have been there longest only the ids are kept, so that they do not run
// again.
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

// abandon makes no command wait any longer for somebody to take its output.
func (t *commands) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	for _, c := range t.byID {
		c.abandon()
	}
}
