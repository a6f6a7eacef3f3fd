package docker

import (
	"context"
	"errors"
	"testing"
)

// TestCallCut cuts off calls, which the client takes for a daemon that is not there.
func TestCallCut(t *testing.T) {
	why, said := errors.New("enough"), errors.New("cannot connect to the Docker daemon")
	e := &Engine{address: "unix:///nowhere"}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := e.call(ctx, func(context.Context) error { return said }); !errors.Is(err, said) {
		t.Errorf("before: %v", err)
	}
	err := e.call(ctx, func(context.Context) error { cancel(why); return said })
	if daemon := (*DaemonError)(nil); !errors.Is(err, why) || errors.As(e.explain(ctx, err), &daemon) {
		t.Errorf("cut off: %v", err)
	}
	if err := e.call(ctx, func(context.Context) error { return nil }); err != nil {
		t.Errorf("what was done all the same: %v", err)
	}
}
