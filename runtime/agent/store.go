package agent

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/store"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Store is where a session is kept. It is safe for concurrent use.
type Store interface {
	// Append adds an entry with data as JSON. After an error nothing more may be accepted.
	Append(typ string, data any) error
	// Sync makes what was appended durable.
	Sync() error
	// Spool keeps long outputs; nil if the store keeps none.
	Spool() tool.Spool
	// Backups keeps what files held before tools changed them; nil if the store keeps nothing.
	Backups() tool.Backups
	// OpenOutput opens a kept output of the call id; fs.ErrNotExist if there is none.
	OpenOutput(id string) (io.ReadCloser, error)
	// Dir is the session's folder; empty if there is none.
	Dir() string
	Close() error
}

// Types of journal entries, with their data.
const (
	entrySession      = "session"
	entrySurroundings = "surroundings"
	entryRunStarted   = "run_started"
	entryPrompt       = "prompt"
	entryTurn         = "turn"
	entryToolStarted  = "tool_started"
	entryToolResult   = "tool_result"
	entryAgent        = "agent"
	entryRunEnded     = "run_ended"
	entrySessionEnded = "session_ended"
)

type sessionEntry struct {
	ID      string   `json:"id"`
	Profile string   `json:"profile"`
	Model   string   `json:"model"`
	Backend string   `json:"backend,omitempty"`
	WorkDir string   `json:"workdir,omitempty"`
	Tools   []string `json:"tools"`
}

type runStartedEntry struct {
	RunID        string `json:"run_id"`
	Instructions string `json:"instructions,omitempty"`
	Limits       Limits `json:"limits"`
}

// promptEntry is what a request holds besides the history. It is written before the first request
// and whenever something in it has changed, so that the entries give every request.
type promptEntry struct {
	Model           string         `json:"model"`
	ReasoningEffort string         `json:"reasoning_effort,omitempty"`
	System          string         `json:"system"`
	Tools           []llm.ToolSpec `json:"tools,omitempty"`
}

// toolStartedEntry stands before a call that may change something, toolResultEntry after every
// call. A call is named by its run, the number of the model call, its position in the answer, and
// its id.
type toolStartedEntry struct {
	RunID     string `json:"run_id"`
	ModelCall int    `json:"model_call"`
	Position  int    `json:"position"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type toolResultEntry struct {
	RunID        string         `json:"run_id"`
	ModelCall    int            `json:"model_call"`
	Position     int            `json:"position"`
	Result       llm.ToolResult `json:"result"`
	ErrorKind    string         `json:"error_kind,omitempty"`
	OutputFile   string         `json:"output_file,omitempty"`
	OutputSize   int64          `json:"output_size"`
	OutputSHA256 string         `json:"output_sha256,omitempty"`
	DurationMS   int64          `json:"duration_ms"`
}

type sessionEndedEntry struct {
	Reason string `json:"reason"`
}

// OnDisk keeps each session in a folder of its own, named by its ID, below dir on the host.
func OnDisk(dir string) func(sessionID string) (Store, error) {
	return func(sessionID string) (Store, error) {
		if !fs.ValidPath(sessionID) || filepath.Base(sessionID) != sessionID || sessionID == "." {
			return nil, fmt.Errorf("agent: %w: session id %q is no plain name", ErrConfig, sessionID)
		}
		s, err := store.Create(filepath.Join(dir, sessionID), store.Options{})
		if err != nil {
			return nil, err
		}
		return diskStore{s}, nil
	}
}

type diskStore struct{ session *store.Session }

var _ Store = diskStore{}

func (d diskStore) Append(typ string, data any) error {
	_, err := d.session.Append(typ, data)
	return err
}

func (d diskStore) Sync() error       { return d.session.Sync() }
func (d diskStore) Dir() string       { return d.session.Dir() }
func (d diskStore) Close() error      { return d.session.Close() }
func (d diskStore) Spool() tool.Spool { return diskSpool(d) }

// Backups implements Store.
func (d diskStore) Backups() tool.Backups { return diskBackups(d) }

type diskBackups struct{ session *store.Session }

func (d diskBackups) Keep(name string, content io.Reader) (string, error) {
	return d.session.KeepBackup(name, content)
}

func (d diskStore) OpenOutput(id string) (io.ReadCloser, error) { return d.session.OpenOutput(id) }

type diskSpool struct{ session *store.Session }

func (d diskSpool) Create(id string) (tool.SpoolFile, error) { return d.session.CreateOutput(id) }

// InMemory keeps nothing: a session is gone when it is closed, and an output longer than
// event.InlineLimit is cut.
func InMemory(string) (Store, error) { return memoryStore{}, nil }

type memoryStore struct{}

var _ Store = memoryStore{}

func (memoryStore) Append(string, any) error { return nil }
func (memoryStore) Sync() error              { return nil }
func (memoryStore) Spool() tool.Spool        { return nil }
func (memoryStore) Backups() tool.Backups    { return nil }
func (memoryStore) Dir() string              { return "" }
func (memoryStore) Close() error             { return nil }

func (memoryStore) OpenOutput(id string) (io.ReadCloser, error) {
	return nil, &fs.PathError{Op: "open", Path: "output://" + id, Err: fs.ErrNotExist}
}
