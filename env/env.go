package env

import (
	"context"
	"io"
	"io/fs"
	"time"
)

const (
	// GraceTime is how long a command that is being stopped may take between SIGTERM and SIGKILL.
	GraceTime = 2 * time.Second
	// DrainTime bounds the wait for end of file on a command's pipes after the command itself has
	// exited.
	DrainTime = 2 * time.Second
)

// Environment is a place where commands run and files live. The package comment is its contract.
// All methods may be called concurrently. Constructors return a ready environment; the caller owns
// it and calls Close.
type Environment interface {
	Runner
	FileReader
	FileWriter
	Copier
	// Info describes the environment. It does not block and does not change during the environment's
	// life.
	Info() Info
	// Close ends everything that the environment started and releases it. It takes a bounded time of
	// its own, independent of any context. A second Close does nothing and returns nil. Calls that run
	// while Close begins end with fs.ErrClosed, and so does every later call.
	io.Closer
}

// Runner runs commands.
type Runner interface {
	// Exec runs cmd and waits for it. An error means that the command could not be started or not be
	// observed: a *StartError if it certainly did not run, ErrUnknownOutcome if nobody can know,
	// ErrGone if the place is gone, an error that wraps ctx.Err and context.Cause if ctx ended. With a
	// nil error the command ran and Result tells how it ended. With a cancellation, Result holds what
	// is known. Output written before an error has been delivered.
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

// FileWriter changes files and folders. Errors are *fs.PathError.
type FileWriter interface {
	// WriteFile makes the file name hold what r gives, until io.EOF. Missing parents are made with
	// mode 0o777 less the umask. If r fails or ctx ends, the file is as before (unless the write was
	// in place, which the error says). A folder is ErrIsDir, a special file ErrNotRegular. An unmet
	// condition of opts is fs.ErrExist or ErrChanged.
	WriteFile(ctx context.Context, name string, r io.Reader, opts WriteOptions) (Written, error)
	// Remove removes a file, a link itself or an empty folder; with opts.Recursive a whole tree. A
	// missing name is fs.ErrNotExist, with opts.Recursive too.
	Remove(ctx context.Context, name string, opts RemoveOptions) error
}

// Copier moves whole trees as tar streams, with modes, links and empty folders, in one round trip
// each.
type Copier interface {
	// CopyIn unpacks the tar stream archive into dir, which is made if missing. Existing files are
	// replaced, other files stay. Names that leave dir, directly or through a link, and device files
	// are errors; nothing is ever written outside dir. Entries before an error stay. Owners in the
	// archive are ignored.
	CopyIn(ctx context.Context, dir string, archive io.Reader) error
	// CopyOut packs names, which are relative to dir and may not leave it, or all of dir if there are
	// none, as a tar stream with names relative to dir, in lexical order. Links are packed as links,
	// hard links as separate files. Sockets, pipes and devices are left out. A missing name is
	// fs.ErrNotExist, here or from Read. The caller closes the stream; a stream that ends early gives
	// an error from Read, never io.EOF.
	CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error)
}

// Command is one command to run.
type Command struct {
	// Argv is the program and its arguments. A program without a slash is looked up in the PATH that
	// the command will see.
	Argv []string
	// Dir is the folder to run in; empty means the working directory. A missing one is a
	// *StartError with a *fs.PathError of Op "chdir".
	Dir string
	// Vars are environment variables as "NAME=value" in addition to the base variables. Of duplicates
	// the last wins.
	Vars []string
	// Stdin is copied to the command; nil means empty. A command that does not read it is not an
	// error. Exec does not wait for a Read that blocks after the command has exited.
	Stdin io.Reader
	// Stdout and Stderr receive the output; nil discards it. Each is called from one goroutine at a
	// time, and never after Exec has returned; if both are the same value, calls do not overlap. An
	// error of a writer stops delivery to it, the command runs on with its further output discarded,
	// and Exec returns that error with the Result.
	Stdout, Stderr io.Writer
	// Timeout stops the command: SIGTERM to the whole tree, GraceTime later SIGKILL. Zero means no
	// limit.
	Timeout time.Duration
	// TTY, if set, gives the command a terminal of its own, which controls its session and is its
	// standard input, output and error in one. All output goes to Stdout, as the terminal shows it,
	// with what it echoes; a Stderr that is set is fs.ErrInvalid. What Stdin gives goes to the
	// terminal as typed: ^C interrupts. When Stdin ends, or is nil, the terminal gets its end-of-file
	// character, once, or twice where the first only ends a line that was begun. The terminal hangs up
	// when the command exits: what it left in the foreground gets SIGHUP. An environment without
	// terminals gives a *StartError that wraps errors.ErrUnsupported.
	TTY *TTY
}

// TTY is the terminal of a command. Exec changes nothing in it.
type TTY struct {
	// Size is the size that the terminal starts with. A zero in it means 80 columns or 24 rows.
	Size TTYSize
	// Resize, if set, gives the sizes that follow, until it is closed or the command has ended. Exec
	// has stopped receiving when it returns. A size with a zero in it is ignored.
	Resize <-chan TTYSize
}

// TTYSize is the size of a terminal in characters.
type TTYSize struct{ Columns, Rows uint16 }

// Result tells how a command ended.
type Result struct {
	// ExitCode is the exit status: 0 to 255, and 128+n when signal n ended the command.
	ExitCode int
	// Signal names the signal that ended the command, such as "SIGKILL"; empty if it exited by itself.
	Signal string
	// TimedOut says that Command.Timeout passed and the tree was killed.
	TimedOut bool
	// OutOfMemory says that the environment killed the command for its memory use.
	OutOfMemory bool
	// Detached says that when Exec returned, a descendant still held the command's output open; what
	// it writes from then on is discarded.
	Detached bool
	// Elapsed is the wall-clock time from start to exit, on a monotonic clock.
	Elapsed time.Duration
}

// WriteOptions are conditions and modes of a write. The zero value writes unconditionally.
type WriteOptions struct {
	// Mode is the permission the file ends up with, exactly. Zero keeps the mode of an existing file
	// and gives a new one 0o666 less the umask.
	Mode fs.FileMode
	// MustNotExist makes the write fail with fs.ErrExist if the name exists. Of several concurrent
	// writers one wins.
	MustNotExist bool
	// IfSHA256, if set, is the hex SHA-256 that the present content must have, or the write fails with
	// ErrChanged; a missing file is fs.ErrNotExist. The check comes after r has been read and right
	// before the replacement; a writer outside this environment may still come between the two.
	IfSHA256 string
}

// Written tells what a write did.
type Written struct {
	// Size is the number of bytes written.
	Size int64
	// Created says that the file did not exist before.
	Created bool
	// InPlace says that the file could not be replaced by rename and was overwritten, so that a reader
	// may have seen half of it.
	InPlace bool
}

// RemoveOptions are options of Remove. The zero value removes one file, link or empty folder.
type RemoveOptions struct {
	// Recursive removes a folder with everything below it; links below are removed, not followed.
	Recursive bool
}
