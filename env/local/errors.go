package local

import (
	"errors"
	"io/fs"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// condition is an error of the system that also is one of package env's sentinel errors. Its text
// is the system's.
type condition struct {
	is  error
	err error
}

func (c *condition) Error() string   { return c.err.Error() }
func (c *condition) Unwrap() []error { return []error{c.is, c.err} }

// pathError returns err as a *fs.PathError about name, which the caller wrote, and unwraps to the
// system's error.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: systemError(err)}
}

// systemError unwraps the error types of package os, whose file names differ from the caller's.
func systemError(err error) error {
	var known *condition
	if errors.As(err, &known) {
		return known
	}
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	if errors.As(err, &call) {
		err = call.Err
	}
	if is := classify(err); is != nil {
		return &condition{is: is, err: err}
	}
	return err
}

// notRegular returns the error for using a file of this type as a regular one; nil if it is one.
func notRegular(mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return env.ErrIsDir
	default:
		return env.ErrNotRegular
	}
}

// both joins two errors; a single one is returned as it is.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return errors.Join(a, b)
	}
}
