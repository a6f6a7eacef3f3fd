// Package local opens environments on this machine, in three strengths:
//
//   - [New] runs commands as children of this process, and isolates nothing.
//   - [Supervised] runs them through a second process, the helper, which kills everything that they
//     started when this process ends, even by a crash; on Linux and macOS.
//   - [Sandboxed] starts that helper in a sandbox of the kernel, on Linux.
//
// # Processes
//
// A command leads a session of its own, so it has its own process group and no controlling
// terminal. Its tree is the members of its session, its descendants, and, on Linux, every process
// with the command's marker, a variable named SANDBOXAGENT_EXEC_ plus an identifier. The marker
// identifies processes that have left the session and lost their parents. A process that also
// clears or overwrites its variables escapes, and Info reports that. New changes nothing
// process-wide: no sub-reaper flag, no signal handlers, no limits. [Exclusive] does, for a process
// that exists for the environment alone, and finds more.
//
// # Files
//
// A write goes to a temporary file in the same directory, which then replaces the target. It is not
// synced to disk: it is atomic for readers, not durable against a power cut. A replaced file keeps
// its mode, and its owner and group if this process may give them; otherwise it loses its set-id
// bits with them. A hard link to a replaced file keeps the old content. Extended attributes and
// access control lists are not carried over.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/proctree"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Config is the configuration of an environment. The zero value works in the current directory with
// the filtered variables of this process.
type Config struct {
	// Dir is the working directory; empty means the current one. It must exist.
	Dir string
	// Inherit selects the variables of this process that commands see; nil means the filtered ones.
	Inherit *vars.Filter
	// Vars are variables as "NAME=value" in addition to the inherited ones. Of duplicates the last
	// wins.
	Vars []string
}

const (
	// bufferSize is the size of the buffers for output and files: the capacity of a pipe.
	bufferSize = 64 << 10
	// closeTime bounds how long Close waits for calls in progress once all processes are dead.
	closeTime = 5 * time.Second
)

// Environment runs commands on this machine as children of this process. New and Exclusive make it.
type Environment struct {
	dir     string
	base    variables
	info    env.Info
	null    *os.File
	buffers sync.Pool
	commits locks
	set     *proctree.Set

	closing  sync.Once
	done     chan struct{}  // closed when Close begins
	swept    chan struct{}  // closed when Close has killed all processes
	sweepErr error          // the processes that Close could not kill; valid once swept is closed
	work     sync.WaitGroup // calls in progress and goroutines that read output

	// starting is held for reading while a command starts, so that Close finds every started command.
	starting sync.RWMutex
	mu       sync.Mutex
	closed   bool
	draining map[*pump]struct{}
}

var _ env.Environment = (*Environment)(nil)

// New returns an environment that works in cfg.Dir. It returns a *fs.PathError if cfg.Dir is not an
// existing directory.
func New(cfg Config) (*Environment, error) { return open(cfg, proctree.New) }

// Exclusive is New for a process that exists for one environment, such as a helper or PID 1 of a
// container. Such a process starts no processes by other means, and has at most one exclusive
// environment at a time. On Linux it permanently becomes the parent of all orphans below it, and
// finds processes that New cannot: those that clear their variables, leave their session and lose
// their parents. Close kills all descendants of this process. On other Unix systems Exclusive finds
// the processes that New finds, and Info reports that; on Windows Exclusive is New.
func Exclusive(cfg Config) (*Environment, error) { return open(cfg, proctree.Supervise) }

func open(cfg Config, newSet func() (*proctree.Set, error)) (*Environment, error) {
	dir, err := workDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: working directory: %w", err)
	}
	base, err := baseVars(cfg)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	set, err := newSet()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local: %w", err), null.Close())
	}
	return &Environment{
		dir:      dir,
		base:     base,
		info:     describe(dir, base, set),
		null:     null,
		buffers:  sync.Pool{New: func() any { return new([bufferSize]byte) }},
		set:      set,
		done:     make(chan struct{}),
		swept:    make(chan struct{}),
		draining: make(map[*pump]struct{}),
	}, nil
}

// workDir returns dir, or the current directory, as the absolute name of an existing directory.
func workDir(dir string) (string, error) {
	if strings.ContainsRune(dir, 0) {
		return "", &fs.PathError{Op: "stat", Path: dir, Err: fs.ErrInvalid}
	}
	abs, err := filepath.Abs(filepath.FromSlash(dir))
	if err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", pathError("stat", abs, err)
	}
	if !info.IsDir() {
		return "", &fs.PathError{Op: "stat", Path: abs, Err: env.ErrNotDir}
	}
	// A directory without search permission is of no use.
	if _, err := os.Stat(abs + string(filepath.Separator) + "."); err != nil {
		return "", pathError("search", abs, err)
	}
	return abs, nil
}

// Info implements env.Environment.
func (e *Environment) Info() env.Info { return e.info.Clone() }

// Close implements env.Environment. Commands in progress and processes that earlier commands left
// behind get SIGTERM, and SIGKILL after env.GraceTime. An error names processes that could not be
// killed.
func (e *Environment) Close() error {
	var err error
	e.closing.Do(func() { err = e.close() })
	return err
}

func (e *Environment) close() error {
	e.starting.Lock() // waits for commands that are just starting
	e.mu.Lock()
	e.closed = true
	close(e.done)
	e.mu.Unlock()
	e.starting.Unlock()

	err := e.set.StopAll()
	e.sweepErr = err
	close(e.swept)

	e.mu.Lock()
	for p := range e.draining {
		_ = p.r.Close() // a process that still holds the other end has escaped
	}
	e.mu.Unlock()

	idle := make(chan struct{})
	go func() {
		e.work.Wait()
		close(idle)
	}()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C: // a writer or a reader of the caller blocks
	}
	if err != nil {
		err = fmt.Errorf("local: close: %w", err)
	}
	return errors.Join(err, e.set.Close(), e.null.Close())
}

// errClosing is the cause with which bind ends a context.
var errClosing = errors.New("the environment is being closed")

// enter registers a call in progress. It reports false after Close has begun; otherwise the caller
// calls e.work.Done.
func (e *Environment) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Add(1)
	return true
}

// bind returns a context that also ends, with fs.ErrClosed as its cause, when Close begins.
func (e *Environment) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-e.done:
			cancel(errClosing)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// begin registers a file operation and returns the system's name of the file. On success the caller
// calls e.work.Done at the end of the operation.
func (e *Environment) begin(ctx context.Context, op, name string) (string, error) {
	if err := contextError(ctx); err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	path, err := e.path(name)
	if err == nil && !e.enter() {
		err = fs.ErrClosed
	}
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	return path, nil
}

// path returns the absolute name for the system. It does not clean the name: the system resolves
// ".." after a symlink, and a slash at the end.
func (e *Environment) path(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", fs.ErrInvalid
	}
	native := filepath.FromSlash(name)
	if filepath.IsAbs(native) {
		return native, nil
	}
	return join(e.dir, native), nil
}

// Kill kills everything that the environment started, without grace, and returns when it is dead:
// commands in progress end with SIGKILL. It is for a program that has to exit at once; call Close
// afterwards.
func (e *Environment) Kill() error { return e.set.Kill() }

// Signal sends sig to all processes of all running commands, and does not wait for their reaction.
// Processes that earlier commands left do not get it. On Windows it returns errors.ErrUnsupported.
func (e *Environment) Signal(sig os.Signal) error {
	if err := e.set.Signal(sig); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return nil
}

// contextError is env.ContextError, but fs.ErrClosed if Close ended ctx.
func contextError(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errClosing) {
		return fs.ErrClosed
	}
	return env.ContextError(ctx)
}
