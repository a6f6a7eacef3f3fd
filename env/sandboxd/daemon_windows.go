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

// surroundings are nothing on this system.
type surroundings struct{ confinement *confine.Plan }

func newDaemon(string, time.Duration, surroundings) *daemon { return &daemon{} }

func box(string, serving) (*boxed, surroundings, error) { return nil, surroundings{}, errSystem }

type boxed struct{}

func (*boxed) wait() (code int, orphans bool) { return exitError, false }

func (*surroundings) arrive(bool) error { return errSystem }

func (*daemon) run(io.ReadWriteCloser) int { return fail(errSystem) }
