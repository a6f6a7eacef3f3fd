// Package wrap has decorators of environments: they restrict, filter or record the calls and leave
// the rest to the environment that they wrap.
package wrap

import (
	"log/slog"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Chain returns e inside the decorators, of which the first is the outermost: a call passes them in
// the order in which they are given. Nil ones are left out.
func Chain(e env.Environment, decorators ...func(env.Environment) env.Environment) env.Environment {
	for _, decorate := range slices.Backward(decorators) {
		if decorate != nil {
			e = decorate(e)
		}
	}
	return e
}

// Options say what Apply puts around an environment. The zero value filters variables and does
// nothing else.
type Options struct {
	// Logger, if set, gets a record of every call.
	Logger *slog.Logger
	// ReadOnly refuses writes, and commands but for those that Allow lets through; nil lets none
	// through.
	ReadOnly bool
	Allow    func(env.Command) bool
	// Vars filters the variables of commands; nil means the default filter. A variable that the user
	// gave by name belongs into its Pass.
	Vars *vars.Filter
}

// Apply returns e with the decorations, in the order that the product uses. Logging is outermost,
// so that what is refused is on record too. ReadOnly comes next, so that Allow judges a command as
// it was given, with all its variables. FilterVars is next to e, so that nothing adds a variable
// behind it.
func Apply(e env.Environment, d Options) env.Environment {
	var logging, readOnly func(env.Environment) env.Environment
	if d.Logger != nil {
		logging = func(e env.Environment) env.Environment { return Logging(e, d.Logger) }
	}
	if d.ReadOnly {
		readOnly = func(e env.Environment) env.Environment { return ReadOnly(e, d.Allow) }
	}
	filterVars := func(e env.Environment) env.Environment { return FilterVars(e, d.Vars) }
	return Chain(e, logging, readOnly, filterVars)
}
