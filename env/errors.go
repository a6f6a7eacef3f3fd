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
	// ErrGone means that the environment does not exist any more: its container was removed, its host
	// was restarted. It does not come back.
	ErrGone = errors.New("the environment is gone")
	// ErrUnknownOutcome means that the connection was lost after a command was sent: it may have run.
	ErrUnknownOutcome = errors.New("the outcome is unknown: the command may have run")
	// ErrProtocol means that the helper of a remote environment violated the protocol: it may be
	// hostile. The client discards its data and sends nothing more.
	ErrProtocol = errors.New("protocol violation")
	// ErrIsDir means that the operation needs a file and the name is a directory.
	ErrIsDir = errors.New("is a directory")
	// ErrNotDir means that the operation needs a directory and the name is another file.
	ErrNotDir = errors.New("not a directory")
	// ErrNotRegular means that the name is a device, a socket or a FIFO.
	ErrNotRegular = errors.New("not a regular file")
	// ErrNoSpace means that the disk or the quota is full.
	ErrNoSpace = errors.New("no space left")
	// ErrBusy means that another process uses the file in a way that does not allow the operation,
	// such as a program that runs, or holds a lock on it.
	ErrBusy = errors.New("in use by another process")
	// ErrChanged means that a file does not have the content that the caller requires.
	ErrChanged = errors.New("the file has changed")
	// ErrReadOnly means that a read-only environment refused a write or a command.
	ErrReadOnly = errors.New("the environment is read-only")
	// ErrReadOnlyFile means that a file is on a file system that is mounted read-only, such as the
	// part of a sandbox that commands and tools cannot change.
	ErrReadOnlyFile = errors.New("on a read-only file system")
	// ErrEscapes means that a name or a symlink in a tree leads out of the tree's directory.
	ErrEscapes = errors.New("leads out of the directory")
	// ErrTreeTooLarge means that a tree has more files or bytes than the caller allows.
	ErrTreeTooLarge = errors.New("the tree is too large")
	// ErrOutside means that a name leads out of the directory that a decorator confines it to.
	ErrOutside = errors.New("outside of the working directory")
)

// StartError means that a command was not started and certainly did not run. It wraps
// fs.ErrNotExist if the program was not found, fs.ErrPermission if it may not be executed, a
// *fs.PathError with Op "chdir" if Command.Dir is the cause, the end of the context or fs.ErrClosed
// if that came first, and other causes, such as an argument list that is too long, as the system
// reports them.
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

// ContextError returns nil before the end of ctx, and then an error that wraps ctx.Err and
// context.Cause.
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

// UserError returns nil for an empty user, and else the error of an environment that runs every
// command as its own user; it wraps errors.ErrUnsupported.
func UserError(user string) error {
	if user == "" {
		return nil
	}
	return fmt.Errorf("commands as user %q: this environment runs all as its own user: %w", user,
		errors.ErrUnsupported)
}

// PathError returns err as a *fs.PathError; nil for nil, and err itself if it wraps one already.
func PathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// FatalError returns the error that ends an operation over many files after err, the error of one
// of them: err if it concerns the whole environment, the end of ctx if ctx has ended, and nil if
// err concerns that file only.
func FatalError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrClosed), errors.Is(err, ErrGone), errors.Is(err, ErrUnknownOutcome):
		return err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	}
	return ContextError(ctx)
}
