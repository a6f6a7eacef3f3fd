package wire

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
	"github.com/sandboxagent/sandboxagent/env/search"
)

const (
	// maxErrorText bounds the text of an error.
	maxErrorText = 16 << 10
	// MaxErrorDepth bounds how many errors wrap each other in an Error.
	MaxErrorDepth = 8
)

// conditions are the errors that callers branch on, by their names on the wire.
var conditions = []struct {
	name string
	err  error
}{
	{"not_exist", fs.ErrNotExist},
	{"exist", fs.ErrExist},
	{"permission", fs.ErrPermission},
	{"invalid", fs.ErrInvalid},
	{"closed", fs.ErrClosed},
	{"is_dir", env.ErrIsDir},
	{"not_dir", env.ErrNotDir},
	{"not_regular", env.ErrNotRegular},
	{"no_space", env.ErrNoSpace},
	{"busy", env.ErrBusy},
	{"changed", env.ErrChanged},
	{"read_only", env.ErrReadOnly},
	{"read_only_file", env.ErrReadOnlyFile},
	{"too_large", env.ErrTooLarge},
	{"bad_pattern", search.ErrBadPattern},
	{"escapes", env.ErrEscapes},
	{"special", tartree.ErrSpecial},
	{"replaced", tartree.ErrReplaced},
	{"shrunk", tartree.ErrShrunk},
	{"gone", env.ErrGone},
	{"unknown_outcome", env.ErrUnknownOutcome},
	{"unsupported", errors.ErrUnsupported},
	{"canceled", context.Canceled},
	{"deadline", context.DeadlineExceeded},
	{"timeout", os.ErrDeadlineExceeded},
}

// Types of errors that have fields.
const (
	errorPath       = "path"
	errorStart      = "start"
	errorUnreadable = "unreadable"
)

// Error is an error on the wire. It keeps type, fields, conditions and text.
type Error struct {
	Type  string   `json:"type,omitempty"`
	Op    Text     `json:"op,omitempty"`
	Path  Text     `json:"path,omitempty"`
	Argv  []Text   `json:"argv,omitempty"`
	Count int      `json:"count,omitempty"`
	Text  Text     `json:"text,omitempty"`
	Is    []string `json:"is,omitempty"`
	Inner *Error   `json:"inner,omitempty"`
}

// ToError returns err for the wire; nil if it is nil.
func ToError(err error) *Error { return EncodeError(err, MaxErrorDepth) }

// EncodeError returns err as JSON.
func EncodeError(err error, depth int) *Error {
	if err == nil {
		return nil
	}
	if depth > 1 {
		switch e := err.(type) { //nolint:errorlint // each level is encoded by its type
		case *fs.PathError:
			return &Error{
				Type: errorPath, Op: cut(e.Op), Path: cut(e.Path),
				Inner: EncodeError(e.Err, depth-1),
			}
		case *env.StartError:
			w := &Error{Type: errorStart, Inner: EncodeError(e.Err, depth-1)}
			if len(e.Argv) > 0 { // only the program is named in the text
				w.Argv = []Text{cut(e.Argv[0])}
			}
			return w
		case *search.UnreadableError:
			return &Error{
				Type: errorUnreadable, Count: e.Count,
				Inner: EncodeError(e.First, depth-1),
			}
		}
	}
	w := &Error{Text: cut(err.Error())}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			w.Is = append(w.Is, c.name)
		}
	}
	if depth > 1 {
		// A plain error may hold one with fields, for which callers look.
		var path *fs.PathError
		var start *env.StartError
		switch {
		case errors.As(err, &start):
			w.Inner = EncodeError(start, depth-1)
		case errors.As(err, &path):
			w.Inner = EncodeError(path, depth-1)
		}
	}
	return w
}

func cut(s string) Text {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return Text(s)
}

// remoteError is an error of the other side that has no specific type.
type remoteError struct {
	text  string
	inner []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.inner }

// Err returns the error; nil for a nil Error. It leaves out errors that are nested too deeply.
func (w *Error) Err() error { return w.decode(MaxErrorDepth) }

func (w *Error) decode(depth int) error {
	if w == nil {
		return nil
	}
	var inner error
	if depth > 1 {
		inner = w.Inner.decode(depth - 1)
	}
	if inner != nil {
		switch w.Type {
		case errorPath:
			return &fs.PathError{Op: string(w.Op), Path: string(w.Path), Err: inner}
		case errorStart:
			return &env.StartError{Argv: Strings(w.Argv), Err: inner}
		case errorUnreadable:
			return &search.UnreadableError{Count: max(w.Count, 1), First: inner}
		}
	}
	e := &remoteError{text: string(w.Text)}
	if strings.TrimSpace(e.text) == "" {
		e.text = "unknown error"
	}
	for _, c := range conditions {
		for _, name := range w.Is {
			if name == c.name {
				e.inner = append(e.inner, c.err)
				break
			}
		}
	}
	if inner != nil {
		e.inner = append(e.inner, inner)
	}
	return e
}
