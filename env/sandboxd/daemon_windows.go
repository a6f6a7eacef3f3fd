package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

var errSystem = fmt.Errorf("the helper on Windows: %w", errors.ErrUnsupported)

func protect() error { return errSystem }

func takeStdio() (io.ReadWriteCloser, error) { return nil, errSystem }

func dial(string, int) error { return errSystem }

func isGone(error) bool { return false }

// daemon serves nothing on this system.
type daemon struct{}

func newDaemon(string, time.Duration, *confine.Plan) *daemon { return &daemon{} }

func (*daemon) run(io.ReadWriteCloser) int { return fail(errSystem) }
