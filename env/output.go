package env

import (
	"context"
	"fmt"
	"io/fs"
)

// OutputOptions configure Output. The zero value keeps DefaultCapture bytes at each end of each
// stream.
type OutputOptions struct {
	// Stdout and Stderr are the options of the two streams. Their spools may be the same writer only
	// if it may be called concurrently.
	Stdout, Stderr CaptureOptions
	// Combined captures both streams as one, in order of arrival, with the options of Stdout. Those of
	// Stderr must then be the zero value.
	Combined bool
}

// Captured holds the captured output. Neither capture is ever nil.
type Captured struct {
	// Stdout holds stdout; with OutputOptions.Combined or a TTY both streams.
	Stdout *Capture
	// Stderr holds stderr; with OutputOptions.Combined or a TTY nothing.
	Stderr *Capture
}

// Output runs cmd and captures its output. Result and error are those of Exec; after an error the
// captures hold the output up to then. If cmd has a writer, or opts contradict themselves, the
// command does not run and the error is a *StartError that wraps fs.ErrInvalid.
func Output(
	ctx context.Context, r Runner, cmd Command, opts OutputOptions,
) (Captured, Result, error) {
	out := Captured{Stdout: NewCapture(opts.Stdout), Stderr: NewCapture(opts.Stderr)}
	switch {
	case cmd.Stdout != nil || cmd.Stderr != nil:
		return out, Result{}, &StartError{
			Argv: cmd.Argv,
			Err:  fmt.Errorf("Output needs a command without writers: %w", fs.ErrInvalid),
		}
	case opts.Combined && opts.Stderr != CaptureOptions{}:
		return out, Result{}, &StartError{
			Argv: cmd.Argv,
			Err:  fmt.Errorf("Output.Combined excludes options of stderr: %w", fs.ErrInvalid),
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
