package env

import (
	"context"
	"fmt"
	"io/fs"
)

// OutputOptions say what Output keeps of a command's output. The zero value keeps DefaultCapture
// bytes at each end of each stream.
type OutputOptions struct {
	// Stdout and Stderr are the options for the two streams. Their spools may be the same writer only
	// if that may be called concurrently.
	Stdout, Stderr CaptureOptions
	// Combined puts both streams into one, in the order in which they arrive, with the options of
	// Stdout. Those of Stderr must be the zero value.
	Combined bool
}

// Captured is what Output kept. Both captures are there in every case, also with an error.
type Captured struct {
	// Stdout holds the standard output; with OutputOptions.Combined both streams.
	Stdout *Capture
	// Stderr holds the standard error; with OutputOptions.Combined nothing.
	Stderr *Capture
}

// Output runs cmd and keeps the start and the end of what it prints. Result and error are those of
// Exec; with an error the captures hold what had been printed by then. The command does not run and
// the error is a *StartError that wraps fs.ErrInvalid if cmd has writers of its own or if opts
// contradict themselves.
func Output(
	ctx context.Context, r Runner, cmd Command, opts OutputOptions,
) (Captured, Result, error) {
	out := Captured{Stdout: NewCapture(opts.Stdout), Stderr: NewCapture(opts.Stderr)}
	switch {
	case cmd.Stdout != nil || cmd.Stderr != nil:
		return out, Result{}, &StartError{
			Argv: cmd.Argv,
			Err:  fmt.Errorf("output is captured, but the command has a writer: %w", fs.ErrInvalid),
		}
	case opts.Combined && opts.Stderr != CaptureOptions{}:
		return out, Result{}, &StartError{
			Argv: cmd.Argv,
			Err:  fmt.Errorf("output is combined, but there are options for stderr: %w", fs.ErrInvalid),
		}
	}
	cmd.Stdout, cmd.Stderr = out.Stdout, out.Stderr
	switch {
	case cmd.TTY != nil:
		cmd.Stderr = nil // a terminal has one stream
	case opts.Combined:
		cmd.Stderr = out.Stdout
	}
	result, err := r.Exec(ctx, cmd)
	return out, result, err
}
