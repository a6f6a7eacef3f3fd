package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Store stores one session. It is safe for concurrent use.
type Store interface {
	// Append adds an entry with data as JSON. After an error it accepts nothing more.
	Append(typ string, data any) error
	// Sync makes the appended entries durable.
	Sync() error
	// Spool stores long outputs; nil if the store has none.
	Spool() tool.Spool
	// Backups stores the content of files before tools change them; nil if the store has none.
	Backups() tool.Backups
	// OpenOutput opens the stored output of the call id; fs.ErrNotExist without one.
	OpenOutput(id string) (io.ReadCloser, error)
	// Dir is the session's directory; empty without one.
	Dir() string
	Close() error
}

// ErrInvalidID is wrapped by the errors of session IDs that cannot name a directory.
var ErrInvalidID = errors.New("invalid session id")

// OnDisk returns a function that creates the store of a session in the directory dir/ID.
func OnDisk(dir string) func(sessionID string) (Store, error) {
	return func(sessionID string) (Store, error) {
		if !fs.ValidPath(sessionID) || filepath.Base(sessionID) != sessionID || sessionID == "." {
			return nil, fmt.Errorf("%w %q: it must be a file name", ErrInvalidID, sessionID)
		}
		d, err := Create(filepath.Join(dir, sessionID), Options{})
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// InMemory returns a function that creates a store without storage: Append discards entries, and a
// tool output longer than event.InlineLimit is shortened.
func InMemory() func(sessionID string) (Store, error) {
	return func(string) (Store, error) { return memory{}, nil }
}

type memory struct{}

var _ Store = memory{}

func (memory) Append(string, any) error { return nil }
func (memory) Sync() error              { return nil }
func (memory) Spool() tool.Spool        { return nil }
func (memory) Backups() tool.Backups    { return nil }
func (memory) Dir() string              { return "" }
func (memory) Close() error             { return nil }

func (memory) OpenOutput(id string) (io.ReadCloser, error) { return nil, noOutput(id) }

func noOutput(id string) error {
	return &fs.PathError{Op: "open", Path: "output://" + id, Err: fs.ErrNotExist}
}
