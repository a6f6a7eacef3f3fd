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
	// Version is the version of the protocol. Client and server must have the same.
	Version = 5
	// Window is HTTP/2's window of a stream, and so how many bytes of one response or request may
	// be on their way. Its rings hold as much of each output of a command. With 20 ms of latency 1
	// MiB allows 50 MB/s.
	Window = 1 << 20

	// ReceiveBuffer bounds the bytes that a connection holds for all of its streams. HTTP/2 stalls
	// a connection when unread streams have used it up.
	ReceiveBuffer = 1 << 30
	// ReadFrame is the size of HTTP/2's frames.
	ReadFrame = 256 << 10
	// DefaultPing is the silence after which each side sends a ping.
	DefaultPing = 10 * time.Second

	// MaxHello bounds the line with a Hello, which comes before authentication.
	MaxHello = 8 << 10
	// MaxStart bounds the Start of a Hello.
	MaxStart = 4 << 20
	// MaxWelcome bounds the line with a Welcome.
	MaxWelcome = 256 << 10
	// MaxRequest bounds the JSON of a request, such as the arguments and variables of a command.
	MaxRequest = 8 << 20
	// MaxID bounds the ids that clients choose.
	MaxID = 64

	// ChangeHeader holds the id of a request that changes files.
	ChangeHeader = "Sandboxagent-Op"
)

// Hello is the first message of a client.
type Hello struct {
	Version int `json:"version"`
	// Token is the secret that opens the server.
	Token string `json:"token,omitempty"`
	// Client is the id that the client has chosen for itself. A later connection replaces an
	// earlier one.
	Client string `json:"client"`
	// Session is the session to resume; empty for a first connection. A server with another session
	// responds with that one: everything that the client started is gone.
	Session string `json:"session,omitempty"`
	// Start configures the environment, in a form of the server's. Only that of the first Hello
	// counts. It follows the line with the Hello, and is read only after authentication.
	Start json.RawMessage `json:"-"`
	// StartSize is the size of Start in bytes.
	StartSize int `json:"start_size,omitempty"`
}

// Encode returns the line with the Hello, and its Start.
func (h Hello) Encode() ([]byte, error) {
	if len(h.Start) > MaxStart {
		return nil, fmt.Errorf("start configuration of %d bytes: %w", len(h.Start), env.ErrTooLarge)
	}
	h.StartSize = len(h.Start)
	line, err := json.Marshal(h)
	if err == nil && len(line) >= MaxHello {
		err = fmt.Errorf("hello of %d bytes: %w", len(line), env.ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), h.Start...), nil
}

// Welcome is the response to a Hello.
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
		WorkDir: Text(i.WorkDir), Shell: Texts(i.Shell), NoShell: Text(i.NoShell),
		Guarantees: i.Guarantees,
	}
}

// Env returns the env.Info that i carries.
func (i *Info) Env() env.Info {
	return env.Info{
		Backend: string(i.Backend), OS: string(i.OS), Arch: string(i.Arch),
		OSVersion: string(i.OSVersion),
		WorkDir:   string(i.WorkDir), Shell: Strings(i.Shell), NoShell: string(i.NoShell),
		Guarantees: i.Guarantees,
	}
}

// ExecRequest starts a command.
type ExecRequest struct {
	Argv    []Text        `json:"argv"`
	Dir     Text          `json:"dir,omitempty"`
	Vars    []Text        `json:"vars,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Stdin, Stdout and Stderr report which streams the caller has, and Merged that stdout takes
	// stderr as well, in order.
	Stdin  bool         `json:"stdin,omitempty"`
	Stdout bool         `json:"stdout,omitempty"`
	Stderr bool         `json:"stderr,omitempty"`
	Merged bool         `json:"merged,omitempty"`
	TTY    *env.TTYSize `json:"tty,omitempty"`
	// MaxProcesses and Confine are those of Command.
	MaxProcesses int          `json:"max_processes,omitempty"`
	Confine      *Confinement `json:"confine,omitempty"`
}

// Confinement is env.Confinement on the wire.
type Confinement struct {
	Write []Text `json:"write,omitempty"`
	Hide  Text   `json:"hide,omitempty"`
	Read  []Text `json:"read,omitempty"`
}

// ToConfinement returns c in the form that the wire carries; nil for nil.
func ToConfinement(c *env.Confinement) *Confinement {
	if c == nil {
		return nil
	}
	return &Confinement{Write: Texts(c.Write), Hide: Text(c.Hide), Read: Texts(c.Read)}
}

// Env returns the env.Confinement that c carries; nil for nil.
func (c *Confinement) Env() *env.Confinement {
	if c == nil {
		return nil
	}
	return &env.Confinement{Write: Strings(c.Write), Hide: string(c.Hide), Read: Strings(c.Read)}
}

// ExecResult is the result of a command.
type ExecResult struct {
	ExitCode    int    `json:"exit_code"`
	Signal      string `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out,omitempty"`
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
	Detached    bool   `json:"detached,omitempty"`
	// TooManyProcesses is that of env.Result.
	TooManyProcesses bool          `json:"too_many_processes,omitempty"`
	Elapsed          time.Duration `json:"elapsed"`
	// Cancelled reports that a DELETE ended the command, or kept it from starting.
	Cancelled bool `json:"cancelled,omitempty"`
	// Stdout and Stderr are the sizes of the outputs, so that a client can verify that it has all.
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
	// Error is the error of Exec. After a cancellation it is the rest of it, or a *env.StartError
	// if the command was never started.
	Error *Error `json:"error,omitempty"`
}

// StdinState is the state of the stdin of a command.
type StdinState struct {
	// Taken is how many bytes the command has read.
	Taken int64 `json:"taken"`
	// Closed reports that the command takes no more: it has ended, has closed its stdin, or the end
	// was sent.
	Closed bool `json:"closed,omitempty"`
	// Unknown reports that the server does not have the command. The client repeats the piece while
	// it starts the command.
	Unknown bool `json:"unknown,omitempty"`
}

// EndRecord ends a response.
type EndRecord struct {
	Error *Error          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// FileInfo is an fs.FileInfo or an fs.DirEntry.
type FileInfo struct {
	Name Text        `json:"name"`
	Size int64       `json:"size,omitempty"`
	Mode fs.FileMode `json:"mode"`
	// Seconds and Nanos are the modification time since 1970.
	Seconds int64 `json:"s,omitempty"`
	Nanos   int64 `json:"n,omitempty"`
	// Stamp is that of a search.Entry.
	Stamp uint64 `json:"stamp,omitempty"`
	// Error is why an entry of a directory has no description; Mode then holds its type only.
	Error *Error `json:"error,omitempty"`
}

// ModTime returns the modification time.
func (i *FileInfo) ModTime() time.Time {
	if t := time.Unix(i.Seconds, i.Nanos); !t.IsZero() {
		return t
	}
	return time.Time{}
}

// WalkEntry is a search.Entry.
type WalkEntry = FileInfo

// ChangeOutcome is the outcome of a change.
type ChangeOutcome struct {
	// Known reports that the server has made or tried the change. One that has not started never
	// starts.
	Known bool `json:"known,omitempty"`
	// CutOff reports that the change failed because its request did not arrive whole.
	CutOff bool `json:"cut_off,omitempty"`
	// Outcome is the last frame of the response to the change.
	Outcome *EndRecord `json:"outcome,omitempty"`
}

// ReadRequest requests several files.
type ReadRequest struct {
	Names []Text `json:"names"`
	Limit int64  `json:"limit"`
}

// ReadHeader precedes one of the files; Size bytes of data follow if it has no error.
type ReadHeader struct {
	Index int    `json:"index"`
	Size  int64  `json:"size"`
	Error *Error `json:"error,omitempty"`
}

// PackRequest requests a tree.
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
		AnyType    bool `json:"any_type,omitempty"`
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
