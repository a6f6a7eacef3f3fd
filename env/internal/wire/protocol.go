package wire

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

const (
	// Version is the version of the protocol. Sides with different versions do not talk.
	Version = 2
	// Window is how much of one answer or request may be on its way: HTTP/2's window for a stream, and with it what a
	// server keeps of each output of a command. 1 MiB is what a stream with 20 ms of latency needs for 50 MB/s.
	Window = 1 << 20

	// ReceiveBuffer is how much a connection may hold for all of its streams. HTTP/2 stalls a connection when the streams
	// that nobody reads have used it up.
	ReceiveBuffer = 1 << 30
	// ReadFrame is the size of HTTP/2's frames.
	ReadFrame = 256 << 10
	// DefaultPing is after how long a silence each side checks that the other one is still there.
	DefaultPing = 10 * time.Second

	// MaxHello bounds the line with a Hello, which is read before it is known who sends it.
	MaxHello = 8 << 10
	// MaxStart bounds what the environment is opened with.
	MaxStart = 4 << 20
	// MaxWelcome bounds the line with a Welcome.
	MaxWelcome = 256 << 10
	// MaxRequest bounds the JSON of a request: the arguments and variables of a command.
	MaxRequest = 8 << 20
	// MaxID bounds the ids that clients choose.
	MaxID = 64

	// ChangeHeader holds the id of a request that changes files.
	ChangeHeader = "Sandboxagent-Op"
)

// Hello is what a client says first.
type Hello struct {
	Version int `json:"version"`
	// Token is the secret that opens the server.
	Token string `json:"token,omitempty"`
	// Client is the id that the client has chosen for itself. Its later connections replace its earlier ones.
	Client string `json:"client"`
	// Session is the session that the client wants to go on with; empty for a first connection. A server that is
	// another one by now answers with its own, and the client knows that what it started is gone.
	Session string `json:"session,omitempty"`
	// Start is what the server opens its environment with, in a form of the server's. Only the first Hello's counts. It
	// follows the line with the Hello, and is not read before the client is let in.
	Start json.RawMessage `json:"-"`
	// StartSize is how many bytes that has.
	StartSize int `json:"start_size,omitempty"`
}

// Encode returns what a client sends: a line, and what follows it.
func (h Hello) Encode() ([]byte, error) {
	if len(h.Start) > MaxStart {
		return nil, fmt.Errorf("what the environment is to be started with has %d bytes: %w", len(h.Start), env.ErrTooLarge)
	}
	h.StartSize = len(h.Start)
	line, err := json.Marshal(h)
	if err == nil && len(line) >= MaxHello {
		err = fmt.Errorf("a hello of %d bytes: %w", len(line), env.ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), h.Start...), nil
}

// Welcome is the server's answer to a Hello.
type Welcome struct {
	Version int    `json:"version"`
	Session string `json:"session,omitempty"`
	Info    *Info  `json:"info,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

// Info is env.Info on the wire.
type Info struct {
	Backend    Text            `json:"backend"`
	OS         Text            `json:"os"`
	Arch       Text            `json:"arch"`
	OSVersion  Text            `json:"os_version,omitempty"`
	WorkDir    Text            `json:"work_dir"`
	Shell      []Text          `json:"shell,omitempty"`
	NoShell    Text            `json:"no_shell,omitempty"`
	Guarantees []env.Guarantee `json:"guarantees,omitempty"`
}

// ToInfo returns i in the form that the wire carries.
func ToInfo(i env.Info) *Info {
	return &Info{
		Backend: Text(i.Backend), OS: Text(i.OS), Arch: Text(i.Arch), OSVersion: Text(i.OSVersion),
		WorkDir: Text(i.WorkDir), Shell: Texts(i.Shell), NoShell: Text(i.NoShell), Guarantees: i.Guarantees,
	}
}

// Env returns the env.Info that i carries.
func (i *Info) Env() env.Info {
	return env.Info{
		Backend: string(i.Backend), OS: string(i.OS), Arch: string(i.Arch), OSVersion: string(i.OSVersion),
		WorkDir: string(i.WorkDir), Shell: Strings(i.Shell), NoShell: string(i.NoShell), Guarantees: i.Guarantees,
	}
}

// ExecRequest starts a command.
type ExecRequest struct {
	Argv    []Text        `json:"argv"`
	Dir     Text          `json:"dir,omitempty"`
	Vars    []Text        `json:"vars,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Stdin, Stdout and Stderr say which streams the caller has; Merged that stdout takes stderr as well, in order.
	Stdin  bool         `json:"stdin,omitempty"`
	Stdout bool         `json:"stdout,omitempty"`
	Stderr bool         `json:"stderr,omitempty"`
	Merged bool         `json:"merged,omitempty"`
	TTY    *env.TTYSize `json:"tty,omitempty"`
}

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode    int           `json:"exit_code"`
	Signal      string        `json:"signal,omitempty"`
	TimedOut    bool          `json:"timed_out,omitempty"`
	OutOfMemory bool          `json:"out_of_memory,omitempty"`
	Detached    bool          `json:"detached,omitempty"`
	Elapsed     time.Duration `json:"elapsed"`
	// Cancelled says that a DELETE ended it, or kept it from starting.
	Cancelled bool `json:"cancelled,omitempty"`
	// Stdout and Stderr are how many bytes there were of each, so that a client knows that it has all.
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
	// Error is what Exec returned. If it was cancelled, that is what else than the cancellation there was to report,
	// and a *env.StartError if the command was never started.
	Error *Error `json:"error,omitempty"`
}

// StdinState is how far the standard input has got.
type StdinState struct {
	// Taken is how many bytes the command has been given since its start.
	Taken int64 `json:"taken"`
	// Closed says that it takes no more: it has ended, or closed its input, or the end was sent.
	Closed bool `json:"closed,omitempty"`
	// Unknown says that the server does not know the command. While the client waits for it to start, it repeats the piece.
	Unknown bool `json:"unknown,omitempty"`
}

// EndRecord ends an answer.
type EndRecord struct {
	Error *Error          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// FileInfo is a fs.FileInfo, or a fs.DirEntry.
type FileInfo struct {
	Name Text        `json:"name"`
	Size int64       `json:"size,omitempty"`
	Mode fs.FileMode `json:"mode"`
	// Seconds and Nanos are the time of the last change since 1970.
	Seconds int64 `json:"s,omitempty"`
	Nanos   int64 `json:"n,omitempty"`
	// Error is why an entry of a folder could not be described; Mode then holds its type only.
	Error *Error `json:"error,omitempty"`
}

// ModTime returns the time of the last change.
func (i *FileInfo) ModTime() time.Time {
	if t := time.Unix(i.Seconds, i.Nanos); !t.IsZero() {
		return t
	}
	return time.Time{}
}

// WalkEntry is an search.Entry.
type WalkEntry = FileInfo

// ChangeOutcome is the outcome of a change.
type ChangeOutcome struct {
	// Known says that the server has begun the change. It has ended by now. One that has not begun will not.
	Known bool `json:"known,omitempty"`
	// CutOff says that the request did not arrive whole, which is why the change failed.
	CutOff bool `json:"cut_off,omitempty"`
	// Outcome is how it ended, as its own answer told or would have told.
	Outcome *EndRecord `json:"outcome,omitempty"`
}

// ReadRequest asks for several files.
type ReadRequest struct {
	Names []Text `json:"names"`
	Limit int64  `json:"limit"`
}

// ReadHeader begins one of them; Size bytes of data follow unless there was an error.
type ReadHeader struct {
	Index int    `json:"index"`
	Size  int64  `json:"size"`
	Error *Error `json:"error,omitempty"`
}

// PackRequest asks for a tree.
type PackRequest struct {
	Dir   Text   `json:"dir"`
	Names []Text `json:"names,omitempty"`
}

type (
	// WalkRequest holds the arguments of Walk.
	WalkRequest struct {
		Root     Text `json:"root"`
		NoIgnore bool `json:"no_ignore,omitempty"`
		MaxDepth int  `json:"max_depth,omitempty"`
		Details  bool `json:"details,omitempty"`
	}
	// GlobRequest holds the arguments of Glob.
	GlobRequest struct {
		Pattern    Text `json:"pattern"`
		Dir        Text `json:"dir,omitempty"`
		IgnoreCase bool `json:"ignore_case,omitempty"`
		NoIgnore   bool `json:"no_ignore,omitempty"`
		Limit      int  `json:"limit,omitempty"`
	}
	// GrepRequest holds the arguments of Grep.
	GrepRequest struct {
		Pattern        Text            `json:"pattern"`
		Literal        bool            `json:"literal,omitempty"`
		IgnoreCase     bool            `json:"ignore_case,omitempty"`
		Multiline      bool            `json:"multiline,omitempty"`
		Path           Text            `json:"path,omitempty"`
		Glob           Text            `json:"glob,omitempty"`
		Exclude        Text            `json:"exclude,omitempty"`
		Types          []string        `json:"types,omitempty"`
		NoIgnore       bool            `json:"no_ignore,omitempty"`
		Mode           search.GrepMode `json:"mode,omitempty"`
		Before         int             `json:"before,omitempty"`
		After          int             `json:"after,omitempty"`
		MaxMatches     int             `json:"max_matches,omitempty"`
		MaxFileMatches int             `json:"max_file_matches,omitempty"`
		MaxLineBytes   int             `json:"max_line_bytes,omitempty"`
		MaxTime        time.Duration   `json:"max_time,omitempty"`
		MaxBytes       int64           `json:"max_bytes,omitempty"`
	}
	// GrepMatch is env/search.Match on the wire.
	GrepMatch struct {
		Name    Text `json:"name"`
		Line    int  `json:"line,omitempty"`
		Text    Text `json:"text,omitempty"`
		Cut     bool `json:"cut,omitempty"`
		Context bool `json:"context,omitempty"`
		Count   int  `json:"count,omitempty"`
	}
)
