package server

import (
	"errors"
	"strconv"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// TestOutputsOfEndedCommandsAreBounded has commands end with much output. What is kept of it stays
// well below the 48 MiB that the helper may have.
func TestOutputsOfEndedCommandsAreBounded(t *testing.T) {
	wiretest.NoLeaks(t)
	const size = 1 << 20
	e, started := writer(size)
	s := startServer(t, e, nil)
	c := s.connect("c")
	count := 0
	for ; s.commands.lost.Len() == 0 && count < maxFinished; count++ {
		c.run(strconv.Itoa(count), wire.ExecRequest{Stdout: true, Stderr: true}).fine(t)
	}
	s.commands.mu.Lock()
	kept, held := s.commands.finished.Len(), 0
	for i := s.commands.finished.Front(); i != nil; i = i.Next() {
		if command, ok := i.Value.(*command); ok {
			held += command.memory()
		}
	}
	outputs := s.commands.outputs
	s.commands.mu.Unlock()
	if held != outputs || held > maxOutputs || held < maxOutputs/2 || kept != count-1 {
		t.Errorf("%d of %d results are kept, with %d bytes (%d counted)", kept, count, held, outputs)
	}
	if a := c.run("0", wire.ExecRequest{Stdout: true, Stderr: true}); a.end == nil ||
		!errors.Is(a.end.Error.Err(), env.ErrUnknownOutcome) {
		t.Errorf("the oldest: %+v", a.end)
	}
	if n := len(c.run(strconv.Itoa(count-1), wire.ExecRequest{
		Stdout: true,
		Stderr: true,
	}).fine(t).stdout); n != size {
		t.Errorf("the last one has %d bytes", n)
	}
	if int(started.Load()) != count {
		t.Errorf("%d of %d commands were started", started.Load(), count)
	}
}
