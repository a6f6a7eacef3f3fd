// Package tool is what a model can do: the registry of tools, the validation of their arguments,
// the built-in tools and the cutting of their output. It is the only place where text for the model
// is written. Tools act on an [env.Environment] and never on the host.
//
// A call runs through one pipeline: look up, validate, execute, cut, record. Whatever goes wrong on
// the way becomes a result that tells the model what to do differently; nothing in it ends the
// loop.
package tool
