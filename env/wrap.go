package env

import (
	"log/slog"
	"slices"
)

// Wrap returns e inside the decorators, of which the first is the outermost: a call passes them in the order in which
// they are given. Nil ones are left out.
func Wrap(e Environment, decorators ...func(Environment) Environment) Environment {
	for _, decorate := range slices.Backward(decorators) {
		if decorate != nil {
			e = decorate(e)
		}
	}
	return e
}

// Decorations say what Decorate puts around an environment. The zero value filters variables and does nothing else.
type Decorations struct {
	// Logger, if set, gets a record of every call.
	Logger *slog.Logger
	// ReadOnly refuses writes, and commands but for those that Allow lets through; nil lets none through.
	ReadOnly bool
	Allow    func(Command) bool
	// Vars filters the variables of commands; nil means the default filter. A variable that the user gave by name
	// belongs into its Pass.
	Vars *VarFilter
}

// Decorate returns e with the decorations, in the order that the product uses. Logging is outermost, so that what is
// refused is on record too. ReadOnly comes next, so that Allow judges a command as it was given, with all its variables.
// FilterVars is next to e, so that nothing adds a variable behind it.
func Decorate(e Environment, d Decorations) Environment {
	var logging, readOnly func(Environment) Environment
	if d.Logger != nil {
		logging = func(e Environment) Environment { return Logging(e, d.Logger) }
	}
	if d.ReadOnly {
		readOnly = func(e Environment) Environment { return ReadOnly(e, d.Allow) }
	}
	filterVars := func(e Environment) Environment { return FilterVars(e, d.Vars) }
	return Wrap(e, logging, readOnly, filterVars)
}
