// Package event defines the events of a session and encodes them as lines of JSON. The JSON format
// is public: scripts read it, and later versions only add to it.
package event
