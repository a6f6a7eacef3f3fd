package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

func TestWalkStreams(t *testing.T) {
	wiretest.NoLeaks(t)
	seen, ended := make(chan struct{}), make(chan error, 1)
	e := &wiretest.Env{OnWalk: func(ctx context.Context, root string, opts search.WalkOptions,
		fn func(search.Entry) error,
	) error {
		if want := (search.WalkOptions{NoIgnore: true, MaxDepth: 3, Details: true}); root != "r" ||
			opts != want {
			return fmt.Errorf("root %q, options %+v", root, opts)
		}
		entries := []search.Entry{
			{Name: "a\xff", Mode: 0o644, Size: 5, ModTime: day, Stamp: math.MaxUint64},
			{Name: "b", Mode: fs.ModeDir, Err: &fs.PathError{Op: "open", Path: "b", Err: fs.ErrPermission}},
		}
		for _, entry := range entries {
			if err := fn(entry); err != nil {
				return err
			}
		}
		<-seen // the client has them while the walk goes on
		var err error
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			err = fn(search.Entry{Name: strconv.Itoa(i), Mode: 0o600, ModTime: day})
		}
		ended <- errors.Join(err, ctx.Err())
		return err
	}}
	c := startServer(t, e, nil).connect("c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response, err := c.send(ctx, "POST", "/walk", jsonOf(wire.WalkRequest{
		Root: "r", NoIgnore: true,
		MaxDepth: 3, Details: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Close() }()
	frames := &wire.FrameReader{R: response}
	var got []wire.WalkEntry
	for len(got) < 2 {
		kind, payload, err := frames.Next()
		if err != nil || kind != wire.FrameRecords {
			t.Fatalf("frame of kind %d, %s, %v", kind, payload, err)
		}
		var list []wire.WalkEntry
		if err := wire.Decode(payload, &list); err != nil {
			t.Fatal(err)
		}
		got = append(got, list...)
	}
	var path *fs.PathError
	if got[0].Name != "a\xff" || got[0].Size != 5 || !got[0].ModTime().Equal(day) ||
		got[0].Mode != 0o644 || got[0].Stamp != math.MaxUint64 {
		t.Errorf("the first entry is %+v", got[0])
	}
	if err := got[1].Error.Err(); !errors.As(err, &path) || !errors.Is(err, fs.ErrPermission) ||
		!got[1].ModTime().IsZero() {
		t.Errorf("the second entry is %+v", got[1])
	}
	close(seen)
	if _, payload, err := frames.Next(); err != nil || len(payload) > batchSize {
		t.Errorf("a batch of %d bytes, %v", len(payload), err)
	}
	cancel()
	wiretest.Within(t, "the walk ends with its client", func() {
		if err := <-ended; err == nil {
			t.Error("the walk has ended without an error")
		}
	})
}

// TestLongLine finds a line that JSON makes six times as long.
func TestLongLine(t *testing.T) {
	wiretest.NoLeaks(t)
	wild := strings.Repeat("\x01", 60<<10) + "needle"
	files := reader(fstest.MapFS{"w": {Data: []byte(wild), ModTime: day}})
	c := startServer(t, files, nil).connect("c")
	request := wire.GrepRequest{Pattern: "needle", Path: "w", MaxLineBytes: 64 << 10}
	a := c.call("POST", "/grep", jsonOf(request)).fine(t)
	if got := decoded[wire.GrepMatch](t, a); len(got) != 1 || string(got[0].Text) != wild {
		t.Errorf("%d matches", len(got))
	}
}

func TestMalformedRequests(t *testing.T) {
	wiretest.NoLeaks(t)
	c := startServer(t, &wiretest.Env{}, nil).connect("c")
	long := strings.Repeat("x", wire.MaxID+1)
	huge := func() io.Reader { return io.LimitReader(spaces{}, wire.MaxRequest+1) }
	for _, test := range []struct {
		name, method, path string
		body               io.Reader
		op                 string
		status             int
	}{
		{"unknown path", "GET", "/nowhere", nil, "", http.StatusNotFound},
		{"unknown method", "PATCH", "/file?name=x", nil, "", http.StatusMethodNotAllowed},
		{"id too long", "POST", "/exec/" + long, jsonOf(wire.ExecRequest{}), "", http.StatusBadRequest},
		{
			"id with other characters", "POST", "/exec/a%2Fb", jsonOf(wire.ExecRequest{}), "",
			http.StatusBadRequest,
		},
		{"DELETE of such an id", "DELETE", "/exec/" + long, nil, "", http.StatusBadRequest},
		{"stdin of such an id", "POST", "/exec/" + long + "/stdin", nil, "", http.StatusBadRequest},
		{"no JSON", "POST", "/exec/1", strings.NewReader("{"), "", http.StatusBadRequest},
		{
			"JSON of another type", "POST", "/exec/1", strings.NewReader(`{"argv":"x"}`), "",
			http.StatusBadRequest,
		},
		{"nothing", "POST", "/exec/1", nil, "", http.StatusBadRequest},
		{"too much", "POST", "/exec/1", huge(), "", http.StatusRequestEntityTooLarge},
		{
			"an offset that is none", "POST", "/exec/1?stdout=x", jsonOf(wire.ExecRequest{}), "",
			http.StatusBadRequest,
		},
		{
			"a negative offset", "POST", "/exec/1?stderr=-1", jsonOf(wire.ExecRequest{}), "",
			http.StatusBadRequest,
		},
		{
			"a bad query", "POST", "/exec/1?stdout=%zz", jsonOf(wire.ExecRequest{}), "",
			http.StatusBadRequest,
		},
		{"an offset in a file", "GET", "/file?name=x&offset=1e3", nil, "", http.StatusBadRequest},
		{
			"a change without an id", "PUT", "/file?name=x", strings.NewReader("x"), "",
			http.StatusBadRequest,
		},
		{"a change with a bad id", "DELETE", "/file?name=x", nil, "a b", http.StatusBadRequest},
		{"a walk of nothing", "POST", "/walk", nil, "", http.StatusBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := c.call(test.method, test.path, test.body, wire.ChangeHeader, test.op)
			if a.status != test.status {
				t.Errorf("%+v, %v", a, a.err)
			}
		})
	}
	if a := c.call("PUT", "/file?name=x&mode=rw", strings.NewReader("x"), wire.ChangeHeader,
		"1"); a.end == nil || a.end.Error == nil {
		t.Errorf("a bad mode: %+v", a)
	}
	if a := c.call("GET", "/stat?name=x", nil); a.end == nil {
		t.Errorf("the connection does not answer any more: %+v", a)
	}
}

// spaces is white space without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
