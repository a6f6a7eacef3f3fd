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

func dial(string, int) error { return errSystem }

func isGone(error) bool { return false }

// server serves nothing on this system.
type server struct{}

// setup is unused on this system.
type setup struct {
	plan      *sandbox.Plan
	noSandbox string
	refusal   error
}

func newServer(string, time.Duration, setup) *server { return &server{} }

func (*server) run(io.ReadWriteCloser) int { return fail(errSystem) }
