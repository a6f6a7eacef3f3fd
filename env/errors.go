package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Conditions that callers branch on. Missing files, missing rights and closed environments are
// fs.ErrNotExist, fs.ErrPermission and fs.ErrClosed.
var (
	// ErrGone means that the place is not there any more: the container was removed, the host
	// rebooted. Nothing sent to it will ever be answered.
	ErrGone = errors.New("the environment is gone")
	// ErrUnknownOutcome means that contact was lost after a command was sent: it may have run.
	ErrUnknownOutcome = errors.New("the outcome is unknown: the command may have run")
	// ErrProtocol means that the other side of a remote environment broke the protocol: it is not what
	// it should be, or somebody has taken its place. Nothing that it says can be believed, and no more
	// is sent to it.
	ErrProtocol = errors.New("protocol violation")
	// ErrIsDir means that a file was wanted and the name is a folder.
	ErrIsDir = errors.New("is a directory")
	// ErrNotDir means that a folder was wanted and the name is none.
	ErrNotDir = errors.New("not a directory")
	// ErrNotRegular means that the name is a device, a socket or a named pipe.
	ErrNotRegular = errors.New("not a regular file")
	// ErrNoSpace means that the disk or the quota is full.
	ErrNoSpace = errors.New("no space left")
	// ErrChanged means that a file does not have the content that the caller required.
	ErrChanged = errors.New("the file has changed")
	// ErrReadOnly means that a read-only environment refused a write or a command.
	ErrReadOnly = errors.New("the environment is read-only")
	// ErrEscapes means that a name or a symlink in a tree leads out of the tree's directory.
	ErrEscapes = errors.New("leads out of the directory")
	// ErrTreeTooLarge means that a tree has more files or bytes than the caller allows.
	ErrTreeTooLarge = errors.New("the tree is too large")
	// ErrOutside means that a name leads out of the folder that an environment is confined to.
	ErrOutside = errors.New("outside of the working directory")
)

// StartError means that a command could not be started and certainly did not run. It wraps
// fs.ErrNotExist if the program was not found, fs.ErrPermission if it may not be executed, a
// *fs.PathError with Op "chdir" if the folder to run in is the cause, the end of the context or
// fs.ErrClosed if that came first, and other causes, such as an argument list that is too long, as
// the system reports them.
type StartError struct {
	Argv []string
	Err  error
}

func (e *StartError) Error() string {
	name := "command"
	if len(e.Argv) > 0 {
		name = e.Argv[0]
	}
	if strings.ContainsAny(name, " \t\n\"") {
		name = fmt.Sprintf("%q", name)
	}
	return "start " + name + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// ContextError returns nil while ctx is alive, then an error that wraps ctx.Err and context.Cause.
func ContextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// PathError returns err as a *fs.PathError, or unchanged if it wraps one already.
func PathError(op, name string, err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// IsFatal reports whether err concerns ctx or the whole environment rather than one file, so that
// an operation over many files ends with it.
func IsFatal(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, fs.ErrClosed) ||
		errors.Is(err, ErrGone) || errors.Is(err, ErrUnknownOutcome))
}
