// Package event defines what happens in a session as a stream of typed events, and their form as
// lines of JSON. The JSON form is public: scripts read it, and it only grows.
package event
