package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// errorf makes an *Error whose message is for the model. A cause may be given with %w.
func errorf(kind ErrorKind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// classify makes an *Error of what a tool returned. What an environment reports is told in words
// that say what a model can do about it.
func classify(ctx context.Context, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	// A tool may fail for another reason just before its context ends; only what comes from the
	// context is its end.
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return errorf(KindCanceled, "the call was stopped before it was done: %w", context.Cause(ctx))
	}
	kind, text := describe(err)
	return &Error{Kind: kind, Message: text, Err: err}
}

func describe(err error) (kind ErrorKind, text string) {
	switch {
	case errors.Is(err, env.ErrUnknownOutcome):
		return KindEnvironment, "contact with the environment was lost; what was asked for may or may " +
			"not have been done, so look before doing it again: " + err.Error()
	case errors.Is(err, env.ErrGone):
		return KindEnvironment, "the environment is gone and will not come back: " + err.Error()
	case errors.Is(err, fs.ErrClosed):
		return KindEnvironment, "the environment is closed: " + err.Error()
	}
	name := "the file"
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) && pathErr.Path != "" {
		name = shown(pathErr.Path)
	}
	var start *env.StartError
	if errors.As(err, &start) {
		name = "the command " + shown(first(start.Argv))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return KindNotFound, name + " does not exist"
	case errors.Is(err, env.ErrReadOnly):
		return KindPermission, "this environment is read-only, nothing was changed: " + err.Error()
	case errors.Is(err, env.ErrOutside):
		return KindPermission, name + " lies outside of the working directory, and nothing there can " +
			"be used here"
	case errors.Is(err, fs.ErrPermission):
		return KindPermission, "no permission: " + err.Error()
	case errors.Is(err, env.ErrChanged):
		return KindEditConflict, name + " was changed by somebody else in the meantime, and was left " +
			"as it is; read it again"
	case errors.Is(err, env.ErrIsDir):
		return KindOther, name + " is a folder"
	case errors.Is(err, env.ErrNotDir):
		return KindOther, name + " is not a folder, or one of the folders in its path is a file"
	case errors.Is(err, env.ErrNotRegular):
		return KindOther, name + " is a device, socket or pipe, which cannot be read or written here"
	case errors.Is(err, env.ErrNoSpace):
		return KindOther, "the disk is full: " + err.Error()
	case errors.Is(err, search.ErrBadPattern):
		return KindValidation, "the pattern is malformed: " + err.Error()
	}
	return KindOther, err.Error()
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// shown is a name as a message shows it: quoted if it would not be clear where it ends, and cut if
// it is very long.
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
