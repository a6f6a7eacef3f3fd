package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// get returns the change with the given id; nil if it is not known.
func (t *changes) get(id string) *change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// evict makes so many changes, one for each client, that those before them are forgotten.
func (t *changes) evict(test *testing.T, p *peer) {
	test.Helper()
	for i := range maxChanges {
		id := "evict" + strconv.Itoa(i) + "-1"
		o, fresh, err := t.start(p, id)
		if err != nil || !fresh {
			test.Fatalf("%s: %t, %v", id, fresh, err)
		}
		t.finish(id, o)
	}
}

// TestForgottenChanges: a change that the server has forgotten is neither unknown nor made again.
func TestForgottenChanges(t *testing.T) {
	var table changes
	table.init()
	p := &peer{}
	make1 := func(id string) {
		t.Helper()
		o, fresh, err := table.start(p, id)
		if err != nil || !fresh {
			t.Fatalf("%s: %t, %v", id, fresh, err)
		}
		table.finish(id, o)
	}
	running, _, err := table.start(p, "a-2")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a-z", "a-10", "b-5", "odd"} { // 10 in base 36 is above z
		make1(id)
	}
	table.evict(t, p)
	for _, c := range []struct {
		id   string
		want error
	}{
		{"a-z", errForgotten},
		{"a-10", errForgotten},
		{"a-1", errForgotten}, // it is late, or has been forgotten as well
		{"a-11", nil},
		{"b-5", errForgotten},
		{"b-6", nil},
		{"c-1", nil},
		{"odd", errForgotten},
		{"odd-1", nil},
	} {
		_, fresh, err := table.start(p, c.id)
		if !errors.Is(err, c.want) || fresh != (c.want == nil) {
			t.Errorf("%s starts: %t, %v, want %v", c.id, fresh, err, c.want)
		}
		if _, err := table.outcome(c.id); !errors.Is(err, c.want) {
			t.Errorf("%s has the outcome %v, want %v", c.id, err, c.want)
		}
	}
	if !errors.Is(errForgotten, env.ErrUnknownOutcome) {
		t.Error("errForgotten is not env.ErrUnknownOutcome")
	}
	if o, err := table.outcome("a-2"); o != running || err != nil {
		t.Errorf("the one in progress: %v, %v", o, err)
	}
}

// TestMarksBounded: what is known of forgotten changes is bounded.
func TestMarksBounded(t *testing.T) {
	var table changes
	table.init()
	for i := range uint64(5 * maxMarks) {
		table.forget("c" + strconv.FormatUint(i, 10) + "-7")
		table.forget("busy-" + strconv.FormatUint(i, 36))
		if len(table.marks) > maxMarks {
			t.Fatalf("%d marks", len(table.marks))
		}
		if !table.forgotten("busy-"+strconv.FormatUint(i, 36)) ||
			table.forgotten("busy-"+strconv.FormatUint(i+1, 36)) {
			t.Fatalf("the mark of the busy client is wrong at %d", i)
		}
	}
	table.forget("busy-1")
	if !table.forgotten("busy-" + strconv.FormatUint(5*maxMarks-1, 36)) {
		t.Error("the mark went down")
	}
}

// TestOutcomeBeforeChange requests the outcome of a change before the change, which then never
// starts.
func TestOutcomeBeforeChange(t *testing.T) {
	wiretest.NoLeaks(t)
	var removed atomic.Int32
	s := startServer(t, &wiretest.Env{OnRemove: func(context.Context, string,
		env.RemoveOptions,
	) error {
		removed.Add(1)
		return nil
	}}, nil)
	c := s.connect("c")
	for range 2 {
		if got := valueOf[wire.ChangeOutcome](t, c.call("GET", "/op/c-1", nil).fine(t)); got.Known {
			t.Errorf("the outcome is %+v", got)
		}
	}
	if a := c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "c-1"); a.end == nil ||
		a.end.Error == nil {
		t.Errorf("the change that was given up: %+v", a)
	}
	if n := removed.Load(); n != 0 {
		t.Errorf("it was made %d times", n)
	}
	c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "c-2").fine(t)
	if n := removed.Load(); n != 1 {
		t.Errorf("another one was made %d times", n)
	}
	s.changes.evict(t, &peer{})
	if a := c.call("GET", "/op/c-2", nil); a.end == nil || !errors.Is(a.end.Error.Err(),
		env.ErrUnknownOutcome) {
		t.Errorf("the outcome of a forgotten change is %+v", a)
	}
	a := c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "c-2")
	if a.end == nil || !errors.Is(a.end.Error.Err(), env.ErrUnknownOutcome) || removed.Load() != 1 {
		t.Errorf("a change that is forgotten is made again: %+v", a)
	}
}

// TestRememberedErrors: of a long error the conditions and a little text are remembered, and its
// response has all.
func TestRememberedErrors(t *testing.T) {
	wiretest.NoLeaks(t)
	long := strings.Repeat("\x01", 100<<10)
	s := startServer(t, &wiretest.Env{OnRemove: func(_ context.Context, name string,
		_ env.RemoveOptions,
	) error {
		err := error(&fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission})
		if name == "long" {
			err = &fs.PathError{Op: long, Path: long, Err: err}
		}
		return err
	}}, nil)
	c := s.connect("c")
	for id, name := range []string{"short", "long"} {
		id := "c-" + strconv.Itoa(id)
		now := c.call("DELETE", "/file"+query1(name), nil, wire.ChangeHeader, id).end.Error.Err()
		outcome := valueOf[wire.ChangeOutcome](t, c.call("GET", "/op/"+id, nil).fine(t)).Outcome
		later := outcome.Error.Err()
		if !errors.Is(now, fs.ErrPermission) || !errors.Is(later, fs.ErrPermission) {
			t.Errorf("%s: the errors are %.100v and %.100v", name, now, later)
		}
		encoded, err := json.Marshal(outcome)
		if err != nil || len(encoded) > 2*maxOutcome {
			t.Errorf("%s: %d bytes are remembered, %v", name, len(encoded), err)
		}
		if (now.Error() == later.Error()) != (name == "short") || len(now.Error()) < len(later.Error()) {
			t.Errorf("%s: the texts have %d and %d bytes", name, len(now.Error()), len(later.Error()))
		}
	}
}
