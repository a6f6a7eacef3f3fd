package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

var errSystem = fmt.Errorf("the helper on Windows: %w", errors.ErrUnsupported)

func protect() error { return errSystem }

func takeStdio() (io.ReadWriteCloser, error) { return nil, errSystem }

func dial(string, int, time.Duration) error { return errSystem }

func isGone(error) bool { return false }

// helperServer serves nothing on this system.
type helperServer struct{}

// setup is unused on this system.
type setup struct {
	plan      *sandbox.Plan
	noSandbox string
	refusal   error
}

func newHelperServer(string, time.Duration, setup) *helperServer { return &helperServer{} }

func (*helperServer) run(io.ReadWriteCloser) int { return fail(errSystem) }

func (*helperServer) runSocket() (int, error) { return 0, errSystem }
