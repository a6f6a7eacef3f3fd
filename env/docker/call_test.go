package docker

import (
	"context"
	"errors"
	"testing"
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
