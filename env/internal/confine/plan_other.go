//go:build !linux && !darwin

package confine

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env"
)

// Mechanisms returns those that this system may have, the stronger one first.
func Mechanisms() []Mechanism { return nil }

// Hint returns nothing.
func Hint(Mechanism) string { return "" }

// Available returns an *Error.
func Available(by Mechanism) error { return &Error{By: by, Err: ErrNone} }

// New returns an *Error.
func New(Policy, Mechanism, []string, func(string) string) (Plan, error) {
	return Plan{}, &Error{Err: ErrNone}
}

// Outdated reports false.
func (p *Plan) Outdated() bool { return false }

// Command returns an *Error.
func (p *Plan) Command(*os.File, Handed, ...string) (cmd *exec.Cmd, release func(), err error) {
	return nil, nil, &Error{By: p.By, Err: ErrNone}
}

// Received returns an *Error.
func Received() (Plan, error) { return Plan{}, &Error{Err: ErrNone} }

// Enter returns an *Error.
func Enter(p Plan) error { return &Error{By: p.By, Err: ErrNone} }

// Guarantees returns nothing.
func (p *Plan) Guarantees() []env.Guarantee { return nil }

// realName returns a name without links.
func realName(name string) (string, error) { return filepath.EvalSymlinks(name) }

// Handed are files that a program gets.
type Handed struct{ Life, Outside, Socket *os.File }

// OutsideFile returns an error.
func OutsideFile() (*os.File, error) { return nil, ErrNone }

// SocketFile returns nothing.
func SocketFile() *os.File { return nil }
