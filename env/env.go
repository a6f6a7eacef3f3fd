package env

import (
	"context"
	"io"
	"io/fs"
	"reflect"
	"time"
)

const (
	// GraceTime is the time between SIGTERM and SIGKILL when a command is stopped.
	GraceTime = 2 * time.Second
	// DrainTime bounds the wait for end of file on a command's pipes after its exit.
	DrainTime = 2 * time.Second
)

// Environment runs commands and holds files. The package comment is its contract. All methods may
// be called concurrently. Constructors return a ready environment; the caller owns it and calls
// Close.
type Environment interface {
	Runner
	FileReader
	FileWriter
	Copier
	// Info describes the environment. It does not block and always returns the same.
	Info() Info
	// Close kills every process that the environment started and releases the environment. Its time
	// is bounded and independent of any context. A second Close does nothing and returns nil. Running
	// and later calls return fs.ErrClosed.
	io.Closer
}

// Runner runs commands.
type Runner interface {
	// Exec runs cmd and waits for it. With a nil error the command ran and Result is its outcome. An
	// error means that the command was not started or not observed to its end: *StartError if it
	// certainly did not run, ErrUnknownOutcome if it may have run, ErrGone if the environment was
	// removed, an error that wraps ctx.Err and context.Cause if ctx ended; Result then holds the known
	// part. Output written before an error is delivered.
	Exec(ctx context.Context, cmd Command) (Result, error)
}

// FileReader reads files and directories. Errors are *fs.PathError.
type FileReader interface {
	// Open opens a regular file for reading and follows symlinks. A directory is ErrIsDir; a device,
	// socket or FIFO is ErrNotRegular, and Open does not block on it. The caller closes the file. The
	// end of ctx may end reads of it.
	Open(ctx context.Context, name string) (fs.File, error)
	// Stat describes a file and follows symlinks.
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
	// Lstat is Stat, but describes a symlink itself.
	Lstat(ctx context.Context, name string) (fs.FileInfo, error)
	// ReadLink returns the target of a symlink as the symlink holds it, on Windows with slashes. A
	// file of another type is fs.ErrInvalid.
	ReadLink(ctx context.Context, name string) (string, error)
	// ReadDir lists a directory, sorted by name. Entries describe symlinks themselves. A file of
	// another type is ErrNotDir.
	ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error)
}

// FileWriter changes files and directories. Errors are *fs.PathError.
type FileWriter interface {
	// WriteFile replaces the content of the file name by the bytes of r up to io.EOF. It creates
	// missing parents with mode 0o777 less the umask. If r fails or ctx ends, the file is as before,
	// unless the write was in place, which the error states. A directory is ErrIsDir, a special file
	// ErrNotRegular. An unmet condition of opts is fs.ErrExist or ErrChanged.
	WriteFile(ctx context.Context, name string, r io.Reader, opts WriteOptions) (Written, error)
	// Remove removes a file, a symlink itself or an empty directory; with opts.Recursive a whole
	// tree. A missing name is fs.ErrNotExist, with opts.Recursive too.
	Remove(ctx context.Context, name string, opts RemoveOptions) error
}

// Copier copies whole trees as tar streams, with modes, symlinks and empty directories, in one
// round trip each.
type Copier interface {
	// CopyIn unpacks the tar stream archive into dir and creates dir if it is missing. Existing files
	// are replaced, other files stay. Names that leave dir, directly or through a symlink, and devices
	// are errors; nothing is ever written outside dir. Entries before an error stay. Owners in the
	// archive are ignored.
	CopyIn(ctx context.Context, dir string, archive io.Reader) error
	// CopyOut packs names, which are relative to dir and may not leave it, or all of dir without
	// names, as a tar stream with names relative to dir, in lexical order. Symlinks are packed as
	// symlinks, hard links as separate files; sockets, FIFOs and devices are left out. A missing name
	// is fs.ErrNotExist, from CopyOut or from Read. The caller closes the stream; Read of a stream
	// that ends early returns an error, never io.EOF.
	CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error)
}

// Command is one command to run. The names differ from those of os/exec where the meaning does:
// Argv replaces Path and Args, and Vars add to the variables of the environment, which Env would
// replace.
type Command struct {
	// Argv is the program and its arguments. A program without a slash is searched for in the PATH
	// that the command sees.
	Argv []string
	// Dir is where the command starts; empty means the working directory. A missing one is a
	// *StartError with a *fs.PathError of Op "chdir".
	Dir string
	// Vars are environment variables as "NAME=value", added to the base variables. Of duplicates the
	// last wins.
	Vars []string
	// Stdin is copied to the command; nil means empty. A command that does not read it is not an
	// error. Exec does not wait for a Read that blocks after the command has exited.
	Stdin io.Reader
	// Stdout and Stderr receive the output; nil discards it. Exec calls each from one goroutine at a
	// time, and never after it has returned; if both are the same value, calls do not overlap. After
	// an error of a writer the command runs on, its further output to that writer is discarded, and
	// Exec returns the error with the Result.
	Stdout, Stderr io.Writer
	// Timeout stops the command: SIGTERM to the whole process tree, GraceTime later SIGKILL. Zero
	// means no limit.
	Timeout time.Duration
	// MaxProcesses kills the process tree, without a grace time, when it has more than this number of
	// processes at once. They are counted 5 times a second, so a tree may be larger for a moment; only
	// the environment's own limits bound that. Zero means no limit. Descendants that outlive the
	// command are not counted. Where processes cannot be listed it is a *StartError that wraps
	// errors.ErrUnsupported.
	MaxProcesses int
	// Interrupt, if set, sends SIGINT to the process group of the command for each value, until it is
	// closed or the command ends; on Windows CTRL+BREAK. Exec has stopped receiving when it returns.
	// After a lost connection one value may become two signals.
	Interrupt <-chan struct{}
	// TTY, if set, gives the command a new controlling terminal as its stdin, stdout and stderr. All
	// output goes to Stdout, echo included, as the terminal prints it; a non-nil Stderr is
	// fs.ErrInvalid. Stdin is typed into the terminal: ^C interrupts. When Stdin ends, or is nil, the
	// terminal gets its end-of-file character, and a second one if the first only ends an unfinished
	// line. When the command exits, the terminal hangs up: the processes in its foreground get SIGHUP.
	// An environment without terminals returns a *StartError that wraps errors.ErrUnsupported.
	TTY *TTY
	// User is "UID", "UID:GID" or "root"; empty means the user of the environment. Of this module's
	// backends docker can run a command as another user. An environment that cannot returns a
	// *StartError that wraps errors.ErrUnsupported.
	User string
	// Confine, if set, keeps the command and its descendants to a part of the files. An environment
	// without the guarantee ConfinedCommands returns a *StartError that wraps errors.ErrUnsupported.
	Confine *Confinement
}

// Confinement is the part of the files that a command may change and read, of those that it may
// without. The zero value lets it change none. Names are absolute or relative to the working
// directory of the environment; a missing one is a *StartError with a *fs.PathError.
//
// Each command may also change devices such as /dev/null, and files in a directory for temporary
// files that it shares with the commands of an equal Confinement. TMPDIR, and the variables of
// usual caches, name it, and Close removes it. With Hide a command can make symlinks only there. A
// confined command gains no rights by set-id programs such as sudo.
type Confinement struct {
	// Write lists directories in which, and below which, the command may change files.
	Write []string
	// Hide is a directory that the command cannot read, except for Read and Write in it; empty hides
	// nothing. The command cannot list the directories above Hide either.
	Hide string
	// Read lists the directories in Hide that the command may read.
	Read []string
}

// SharesWriter reports whether Stdout and Stderr are the same value, so that calls of it must not
// overlap. Values that cannot be compared are not the same.
func (c Command) SharesWriter() bool {
	if c.Stdout == nil || c.Stderr == nil {
		return false
	}
	return reflect.ValueOf(c.Stdout).Comparable() && reflect.ValueOf(c.Stderr).Comparable() &&
		c.Stdout == c.Stderr
}

// TTY configures the terminal of a command. Exec does not change it.
type TTY struct {
	// Size is the initial size of the terminal. Zero means 80 columns or 24 rows.
	Size TTYSize
	// Resize, if set, sends later sizes, until it is closed or the command ends. Exec has stopped
	// receiving when it returns. A size with a zero is ignored.
	Resize <-chan TTYSize
}

// TTYSize is the size of a terminal in characters.
type TTYSize struct{ Columns, Rows uint16 }

// Result is the outcome of a command.
type Result struct {
	// ExitCode is 0 to 255, and 128+n if signal n ended the command.
	ExitCode int
	// Signal names the signal that ended the command, such as "SIGKILL"; empty if it exited by itself.
	Signal string
	// TimedOut reports that Command.Timeout passed and the process tree was killed.
	TimedOut bool
	// TooManyProcesses reports that the process tree exceeded Command.MaxProcesses and was killed.
	TooManyProcesses bool
	// OutOfMemory reports that the environment killed the command for its memory use.
	OutOfMemory bool
	// Detached reports that a descendant held the command's output open when Exec returned; its
	// further output is discarded.
	Detached bool
	// Elapsed is the wall-clock time from start to exit, on a monotonic clock.
	Elapsed time.Duration
}

// WriteOptions are the mode and the conditions of a write. The zero value writes unconditionally.
type WriteOptions struct {
	// Mode is the exact permission of the file after the write. Zero keeps the mode of an existing
	// file and gives a new one 0o666 less the umask.
	Mode fs.FileMode
	// MustNotExist makes the write fail with fs.ErrExist if the name exists. Of concurrent writers one
	// wins.
	MustNotExist bool
	// IfSHA256, if set, is the required hex SHA-256 of the present content. With other content the
	// write fails with ErrChanged; a missing file is fs.ErrNotExist. The check comes after r has been
	// read and right before the replacement; a writer outside this environment may still change the
	// file between the two.
	IfSHA256 string
}

// Written is the outcome of a write.
type Written struct {
	// Size is the number of bytes written.
	Size int64
	// Created reports that the file did not exist before.
	Created bool
	// InPlace reports that the file could not be replaced by rename and was overwritten: a reader may
	// have seen half of it.
	InPlace bool
}

// RemoveOptions are options of Remove. The zero value removes one file, symlink or empty
// directory.
type RemoveOptions struct {
	// Recursive removes a directory with everything below it; symlinks are removed, not followed.
	Recursive bool
}
