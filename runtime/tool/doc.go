// Package tool holds the tools that a model can call: their registry, the validation of arguments,
// the built-in tools and the truncation of output. It is the only package that writes text for the
// model, except the instructions of package profile. Tools act on an [env.Environment] and never on
// the host.
//
// A call runs through one pipeline: look up, validate, execute, truncate, record. A failure becomes
// an error result that names a remedy for the model; it never ends the loop.
package tool
