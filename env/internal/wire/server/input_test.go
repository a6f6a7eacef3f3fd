package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func TestStdinOfCommands(t *testing.T) {
	wiretest.NoLeaks(t)
	e := wiretest.Exec(func(_ context.Context, cmd env.Command) (env.Result, error) {
		if cmd.Stdin == nil {
			return env.Result{}, nil
		}
		_, err := io.Copy(cmd.Stdout, cmd.Stdin)
		return env.Result{}, err
	})
	c := startServer(t, e, nil).connect("c")
	// The first piece overtakes the command.
	piece := make(chan *reading, 1)
	go func() { piece <- c.call("POST", "/exec/1/stdin?offset=0", strings.NewReader("hello ")) }()
	result := make(chan *reading, 1)
	go func() { result <- c.run("1", wire.ExecRequest{Stdin: true, Stdout: true}) }()
	taken := func(a *reading) (s wire.StdinState) {
		t.Helper()
		if err := wire.Decode(a.fine(t).end.Value, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := taken(<-piece); got != (wire.StdinState{Taken: 6}) {
		t.Errorf("the first piece: %+v", got)
	}
	if a := c.call("POST", "/exec/1/stdin?offset=9",
		strings.NewReader("x")); a.status != http.StatusConflict {
		t.Errorf("a gap: %+v", a)
	}
	got := taken(c.call("POST", "/exec/1/stdin?offset=6&end=1", strings.NewReader("world")))
	if got != (wire.StdinState{Taken: 11, Closed: true}) {
		t.Errorf("the last piece: %+v", got)
	}
	if a := (<-result).fine(t); string(a.stdout) != "hello world" {
		t.Errorf("output %q", a.stdout)
	}
	if got := taken(c.call("POST", "/exec/1/stdin?offset=11", strings.NewReader("x"))); !got.Closed {
		t.Errorf("after the end: %+v", got)
	}
	c.run("2", wire.ExecRequest{}).fine(t)
	if got := taken(c.call("POST", "/exec/2/stdin?offset=0", strings.NewReader("x"))); !got.Closed {
		t.Errorf("a command without standard input: %+v", got)
	}
}

// TestStdinOfUnknownCommand sends stdin of commands that have not arrived or are deleted.
func TestStdinOfUnknownCommand(t *testing.T) {
	wiretest.NoLeaks(t)
	e, _ := writer(1)
	s := startServer(t, e, nil)
	s.commands.arrivalTimeout = time.Millisecond
	c := s.connect("c")
	ask := func() (answer wire.StdinState) {
		t.Helper()
		a := c.call("POST", "/exec/1/stdin?offset=0&end=1", strings.NewReader("x")).fine(t)
		if err := wire.Decode(a.end.Value, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := ask(); got != (wire.StdinState{Unknown: true}) {
		t.Errorf("a command that has not come: %+v", got)
	}
	c.call("DELETE", "/exec/1", nil).fine(t)
	if got := ask(); got != (wire.StdinState{Closed: true}) {
		t.Errorf("a command that was deleted: %+v", got)
	}
}
