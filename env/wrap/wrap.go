// Package wrap has decorators of environments: [Logging] records calls, [ReadOnly] rejects
// changes, [FilterVars] keeps secrets out of the variables of commands, and [Subdir] rejects
// names outside a directory. Each passes all other calls on.
//
// [Apply] combines the first three in their right order; [Chain] combines any.
package wrap

import (
	"log/slog"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Chain wraps e with the decorators. The first is the outermost, so that a call passes them in the
// given order. Nil decorators are ignored.
func Chain(e env.Environment, decorators ...func(env.Environment) env.Environment) env.Environment {
	for _, decorate := range slices.Backward(decorators) {
		if decorate != nil {
			e = decorate(e)
		}
	}
	return e
}

// Options configure Apply. The zero value only filters variables.
type Options struct {
	// Logger, if set, receives a record of every call.
	Logger *slog.Logger
	// Redact, if set, replaces secrets in the texts of records.
	Redact func(text string) string
	// ReadOnly rejects writes, and runs commands as the decorator ReadOnly does with Check.
	ReadOnly bool
	Check    func(env.Command) error
	// Vars filters the variables of commands; nil means the default filter. Its Pass should hold the
	// variables that the user passes by name.
	Vars *vars.Filter
}

// Apply wraps e as opts configures. Logging is outermost, so that it also records rejected calls.
// ReadOnly comes next, so that Check gets a command with all its variables. FilterVars is
// innermost, so that no decorator adds a variable after it.
func Apply(e env.Environment, opts Options) env.Environment {
	var logging, readOnly func(env.Environment) env.Environment
	if opts.Logger != nil {
		logging = func(e env.Environment) env.Environment {
			return Logging(e, opts.Logger, opts.Redact)
		}
	}
	if opts.ReadOnly {
		readOnly = func(e env.Environment) env.Environment { return ReadOnly(e, opts.Check) }
	}
	filterVars := func(e env.Environment) env.Environment { return FilterVars(e, opts.Vars) }
	return Chain(e, logging, readOnly, filterVars)
}
