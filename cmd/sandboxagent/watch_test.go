package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

// slowEnvironment sends its archive a byte at a time.
type slowEnvironment struct {
	env.Environment
	every time.Duration
	bytes int
}

func (s *slowEnvironment) CopyOut(
	ctx context.Context, _ string, _ ...string,
) (io.ReadCloser, error) {
	return io.NopCloser(&slowReader{ctx, s}), nil
}

type slowReader struct {
	ctx context.Context
	e   *slowEnvironment
}

func (r *slowReader) Read(b []byte) (int, error) {
	if r.e.bytes == 0 {
		return 0, io.EOF
	}
	select {
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	case <-time.After(r.e.every):
	}
	r.e.bytes--
	return copy(b, "x"), nil
}

// TestWatch checks that reading may take long while data arrives, and ends otherwise.
func TestWatch(t *testing.T) {
	tests := []struct {
		name  string
		cause error // of the end of the context of the run
		every time.Duration
		bytes int
		want  string
	}{
		{"slow", nil, time.Minute, 60, ""},
		{"silent", nil, 3 * time.Minute, 1, "silent for 2m0s"},
		{"endless", nil, time.Minute, 1000, "not read within 2h0m0s"},
		{"slow after a signal", &signalError{os.Interrupt}, time.Minute, 60, ""},
		{"slow after a timeout", agent.ErrTimeLimit, 20 * time.Second, 10, ""},
		{"silent after a timeout", agent.ErrTimeLimit, time.Minute, 1, "silent for 30s"},
		{"endless after a timeout", agent.ErrTimeLimit, 20 * time.Second, 1000, "not read within 5m0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, end := context.WithCancelCause(t.Context())
				if tt.cause != nil {
					end(tt.cause)
				}
				defer end(nil)
				ctx, e, stop := watch(run,
					&slowEnvironment{every: tt.every, bytes: tt.bytes})
				defer stop()
				archive, err := e.CopyOut(ctx, ".")
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, archive)
				switch {
				case tt.want == "" && (err != nil || n != int64(tt.bytes)):
					t.Errorf("%d bytes, %v", n, err)
				case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("%v, want %q", err, tt.want)
				}
			})
		})
	}
}
