// Package event defines the events of a session, delivers them in one order, and encodes them as
// lines of JSON. The JSON format is public: scripts read it, and later versions only add to it.
package event
