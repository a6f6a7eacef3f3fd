package remote

import (
	"errors"
	"time"
)

// Listed is an environment on a server, or the remains of one. Backends embed it beside what only
// they have.
type Listed struct {
	// Session is the name of the environment.
	Session string
	// State is the backend's word for its state, such as "running".
	State string
	// Created is when it was opened, by the server's clock; zero if unknown.
	Created time.Time
	// TTL is how long it lives without a client; 0 if unknown.
	TTL time.Duration
	// Owner names its creator: a user, a machine or an address. It may be empty.
	Owner string
	// Garbage means that the environment is of no use any more.
	Garbage bool
	// Reason explains why the environment is Garbage, or why not.
	Reason string
}

// CollectOptions select what Collect removes. The zero value removes garbage only.
type CollectOptions struct {
	// DryRun removes nothing.
	DryRun bool
	// All removes more than garbage; the backend determines what.
	All bool
}

// Collected is an object that Collect removed, or would remove.
type Collected struct {
	// Kind is the kind of the object, such as "container".
	Kind, Name string
	// Reason is why it is removed.
	Reason string
	// Err is the error of the removal.
	Err error
}

// Collect removes the objects that find passes to its argument, each by its function, unless
// o.DryRun is set. It returns them all, also those that it failed to remove; the error joins the
// errors of the removals and that of find.
func (o CollectOptions) Collect(
	find func(add func(kind, name, reason string, remove func() error)) error,
) (done []Collected, err error) {
	var errs []error
	err = find(func(kind, name, reason string, remove func() error) {
		c := Collected{Kind: kind, Name: name, Reason: reason}
		if !o.DryRun {
			c.Err = remove()
			errs = append(errs, c.Err)
		}
		done = append(done, c)
	})
	return done, errors.Join(append(errs, err)...)
}
