package docker

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestCancelledCalls cancels calls, which the client reports as a daemon that it cannot connect to.
func TestCancelledCalls(t *testing.T) {
	why, refused := errors.New("enough"), errors.New("cannot connect to the Docker daemon")
	e := &Engine{address: "unix:///nowhere"}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := e.call(ctx, func(context.Context) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("before: %v", err)
	}
	err := e.call(ctx, func(context.Context) error { cancel(why); return refused })
	if daemon := (*DaemonError)(nil); !errors.Is(err, why) || errors.As(e.explain(t.Context(), err),
		&daemon) {
		t.Errorf("cancelled: %v", err)
	}
	if err := e.call(ctx, func(context.Context) error { return nil }); err != nil {
		t.Errorf("a call that succeeded all the same: %v", err)
	}
	if err := e.explain(ctx, refused); !errors.Is(err, why) {
		t.Errorf("without a time limit: %v", err)
	}
}

// TestOpenAfterClose uses an engine after its end.
func TestOpenAfterClose(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_ping" {
			t.Errorf("a request for %s", r.URL)
		}
		w.Header().Set("Api-Version", minVersion)
	}))
	defer server.Close()
	e, err := Connect(t.Context(), Address{Host: strings.Replace(server.URL, "http", "tcp", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(t.Context(), Config{}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Open: %v", err)
	}
	ticket := Ticket{
		Ticket: remote.Ticket{Session: "abc", Token: "x", TTL: remote.DefaultTTL}, Container: "c",
	}
	if _, err := e.Attach(t.Context(), ticket); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Attach: %v", err)
	}
}
