package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// errorf returns an *Error with a message for the model. A cause may be given with %w.
func errorf(kind ErrorKind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// classify turns the error of a tool into an *Error. Errors of an environment get a message that
// names a remedy for the model.
func classify(ctx context.Context, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	// A tool may fail for another reason just before its context ends; only an error that comes from
	// the context is a cancellation.
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return errorf(KindCanceled, "the call was canceled before it ended: %w", context.Cause(ctx))
	}
	kind, text := describe(err)
	return &Error{Kind: kind, Message: text, Err: err}
}

func describe(err error) (kind ErrorKind, text string) {
	switch {
	case errors.Is(err, env.ErrUnknownOutcome):
		return KindEnvironment, "the connection to the environment was lost, and the operation may or " +
			"may not have been done; check before you repeat it: " + err.Error()
	case errors.Is(err, env.ErrGone):
		return KindEnvironment, "the environment no longer exists: " + err.Error()
	case errors.Is(err, fs.ErrClosed):
		return KindEnvironment, "the environment is closed: " + err.Error()
	}
	name := "the file"
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) && pathErr.Path != "" {
		name = shown(pathErr.Path)
	}
	var start *env.StartError
	if errors.As(err, &start) && len(start.Argv) > 0 {
		name = "the command " + shown(start.Argv[0])
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return KindNotFound, name + " does not exist"
	case errors.Is(err, env.ErrReadOnly):
		return KindPermission, "this environment is read-only, nothing was changed: " + err.Error()
	case errors.Is(err, env.ErrReadOnlyFile):
		return KindPermission, name + " is read-only for commands and tools; only the user can " +
			"allow changes"
	case errors.Is(err, env.ErrOutside):
		return KindPermission, name + " is outside the working directory, and only files below it " +
			"can be used"
	case errors.Is(err, fs.ErrPermission):
		return KindPermission, "no permission: " + err.Error()
	case errors.Is(err, env.ErrChanged):
		return KindEditConflict, name + " was changed by another process since it was read; it was " +
			"not written; read it again"
	case errors.Is(err, env.ErrBusy):
		return KindOther, name + " is in use by another process; it was not changed"
	case errors.Is(err, env.ErrIsDir):
		return KindOther, name + " is a directory"
	case errors.Is(err, env.ErrNotDir):
		return KindOther, name + " is not a directory, or a directory in its path is a file"
	case errors.Is(err, env.ErrNotRegular):
		return KindOther, name + " is a device, socket or FIFO, which tools cannot read or write"
	case errors.Is(err, env.ErrNoSpace):
		return KindOther, "the disk is full: " + err.Error()
	case errors.Is(err, search.ErrBadPattern):
		return KindValidation, "the pattern is malformed: " + err.Error()
	}
	return KindOther, err.Error()
}

// shown formats a name for a message: quoted if its end would not be clear, and cut if it is very
// long.
func shown(name string) string {
	const most = 300
	short := cutRunes(name, most)
	if short != name {
		short += "…"
	}
	for _, r := range short {
		if r <= ' ' || r == '"' || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return fmt.Sprintf("%q", short)
		}
	}
	if short == "" {
		return `""`
	}
	return short
}

// cutRunes returns the first n characters of s.
func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
