//go:build !linux

package sandbox

import (
	"io"
	"os"
	"os/exec"

	"github.com/sandboxagent/sandboxagent/env"
)

// Guarantees returns nil: no plan exists on this system.
func (p *Plan) Guarantees() []env.Guarantee { return nil }

// RefusesUnixSockets returns false.
func (p *Plan) RefusesUnixSockets() bool { return false }

// HiddenPaths returns nil.
func (p *Plan) HiddenPaths(int) (secrets, home []string) { return nil, nil }

// Confinements returns the guarantee env.ConfinedCommands.
func Confinements() env.Guarantee {
	return env.Guarantee{
		Name: env.ConfinedCommands, Strength: env.Absent, By: "this system has no Landlock",
	}
}

// StartConfined returns ErrUnsupported.
func StartConfined(env.Confinement, string, func()) error { return ErrUnsupported }

// TempVars returns nil.
func TempVars(string) []string { return nil }

// Vars returns nil.
func (p *Plan) Vars() []string { return nil }

// Tidy does nothing.
func (p *Plan) Tidy() error { return nil }

// ReceivePlan returns an *Error.
func ReceivePlan() (Plan, error) { return Plan{}, &Error{Err: ErrUnsupported} }

// Enter returns an *Error.
func Enter(p Plan) error { return &Error{By: p.By, Err: ErrUnsupported} }

// DeathFile returns nil.
func DeathFile() *os.File { return nil }

// RunTidier returns ErrUnsupported.
func RunTidier(io.Reader, *os.File) error { return ErrUnsupported }

// HomeDirs returns nil.
func HomeDirs() []string { return nil }

// Command returns an *Error.
func (p *Plan) Command(*os.File, Files, ...string) (cmd *exec.Cmd, release func(), err error) {
	return nil, nil, &Error{By: p.By, Err: ErrUnsupported}
}

// tidier is not needed on this system.
type tidier struct{ life *os.File }

func startTidier(*Plan, *Program) (*tidier, error) { return nil, nil }

func (*tidier) dismiss() {}

func (*tidier) killOrphans() {}
