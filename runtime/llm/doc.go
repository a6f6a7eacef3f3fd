// Package llm defines the conversation with a language model: messages made of parts, requests, a
// streaming client interface, typed errors and retry. Providers are packages below it; it imports
// none of them.
//
// # Streams
//
// A [Client] answers a request with a sequence of [Delta] values. An [Assembler] makes one message
// of them. Only [DeltaDone] completes a message; every other end of a stream is an error, and the
// tool calls of an unfinished stream never run.
package llm
