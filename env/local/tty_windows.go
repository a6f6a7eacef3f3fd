package local

import (
	"errors"
	"fmt"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// connectTerminal refuses: a console on Windows is not a pair of files that a process can be given.
func (x *execution) connectTerminal(env.Command, *os.ProcAttr) ([]*os.File, error) {
	return nil, fmt.Errorf("open a terminal: %w", errors.ErrUnsupported)
}

func setSize(*os.File, env.TTYSize) error { return errors.ErrUnsupported }
