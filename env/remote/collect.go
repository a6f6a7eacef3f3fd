package remote

import (
	"errors"
	"time"
)

// Listed is an environment on a server, or the remains of one. Backends embed it in a type with
// more fields.
type Listed struct {
	// Session is the name of the environment.
	Session string
	// State is its state as the backend names it, such as "running".
	State string
	// Created is when it was opened, by the server's clock; zero if unknown.
	Created time.Time
	// TTL is its lifetime without a client; 0 if unknown.
	TTL time.Duration
	// Owner names its creator: a user, a machine or an address. It may be empty.
	Owner string
	// Garbage reports that no client can use the environment any more.
	Garbage bool
	// Reason explains why the environment is Garbage, or why not.
	Reason string
}

// CollectOptions select the objects that Collect removes. The zero value removes garbage only.
type CollectOptions struct {
	// DryRun removes nothing.
	DryRun bool
	// All removes environments in use too; each backend documents which.
	All bool
}

// Collected is an object that Collect removed, or would remove.
type Collected struct {
	// Kind is the kind of the object, such as "container".
	Kind, Name string
	// Reason is the reason for the removal.
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
