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

// daemon serves nothing on this system.
type daemon struct{}

// surroundings are nothing on this system.
type surroundings struct {
	confinement *sandbox.Plan
	bare        string
	refusal     error
}

func newDaemon(string, time.Duration, surroundings) *daemon { return &daemon{} }

func (*daemon) run(io.ReadWriteCloser) int { return fail(errSystem) }
