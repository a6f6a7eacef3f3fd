// Package llm is what the agent loop knows of language models: messages made of parts, requests, a
// streaming client interface, typed errors and retry. Providers live in packages below this one;
// this package imports none.
//
// # Streams
//
// A [Client] answers a request with a sequence of [Delta] values. An
// [Assembler] makes one message of them. Only a stream that ends with [DeltaDone] is a message;
// whatever else ends it is an error, and a tool call of an unfinished stream is never seen by the
// loop.
package llm
