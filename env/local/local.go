// Package local opens environments on this machine, in three strengths:
//
//   - [New] runs commands as children of this process, and isolates nothing.
//   - [Supervised] runs them through a second process, the helper, which kills everything that they
//     started when this process ends, even by a crash; on Linux and macOS.
//   - [Sandboxed] starts that helper in a sandbox of the kernel, on Linux.
//
// # Processes
//
// Each command leads a session, so it has its own process group and no controlling terminal. After
// a timeout or a cancellation New's environment kills the members of that session, their
// descendants and, on Linux and macOS, every process that has the command's marker: an environment
// variable named SANDBOXAGENT_EXEC_ plus an identifier, which children inherit. A process escapes
// if it leaves the session, loses its parents and clears its variables; Info reports that. New
// changes nothing process-wide: no sub-reaper flag, no signal handlers, no limits.
//
// [Exclusive] is for programs that do nothing but serve one environment, as the helper does. It
// finds more processes, because it makes this process the parent of all orphans.
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

// Config configures an environment. The zero value has the current directory as the working
// directory, and the filtered variables of this process.
type Config struct {
	// Dir is the working directory; empty means the current one. It must exist.
	Dir string
	// Inherit selects the variables of this process that commands see; nil means the filtered ones.
	Inherit *vars.Filter
	// Vars are variables as "NAME=value" in addition to the inherited ones. Of duplicates the last
	// wins.
	Vars []string
	// Prepared, which may be nil, is the helper for Supervised and Sandboxed. New ignores it.
	Prepared *Prepared
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
	done     chan struct{}  // closed when Close starts
	swept    chan struct{}  // closed when Close has killed all processes
	sweepErr error          // the processes that Close could not kill; valid once swept is closed
	work     sync.WaitGroup // calls in progress and goroutines that read output

	// starting is held for reading while a command starts, so that Close finds every started command.
	starting sync.RWMutex
	mu       sync.Mutex
	closed   bool
	draining map[*pump]struct{}
	// temps are the directories for temporary files of confined commands, by their confinement.
	temps map[string]string
}

var _ env.Environment = (*Environment)(nil)

// New returns an environment whose working directory is cfg.Dir. It returns a *fs.PathError if
// cfg.Dir is not an existing directory.
func New(cfg Config) (*Environment, error) { return open(cfg, proctree.New) }

// Exclusive returns an environment that may change this process, for a program that does nothing
// but serve it. The program must start no other processes, and has at most one exclusive
// environment at a time.
//
// On Linux this process permanently becomes the parent of all orphans among its descendants.
// Exclusive so finds processes that New does not: those that clear their variables, leave their
// session and lose their parents. Close kills all descendants of this process. On other Unix
// systems Exclusive finds the processes that New finds, and Info reports that. On Windows it equals
// New.
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
	return errors.Join(err, e.removeTemps(), e.set.Close(), e.null.Close())
}

// errClosing is the cause with which bind ends a context.
var errClosing = errors.New("the environment is being closed")

// enter registers a call in progress. It reports false after the start of Close; otherwise the
// caller calls e.work.Done.
func (e *Environment) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Add(1)
	return true
}

// bind returns a context that also ends, with fs.ErrClosed as its cause, when Close starts.
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

// startOp registers a file operation and returns the system's name of the file. On success the
// caller calls e.work.Done at the end of the operation.
func (e *Environment) startOp(ctx context.Context, op, name string) (string, error) {
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

var (
	errEmptyName = fmt.Errorf("the name is empty: %w", fs.ErrInvalid)
	errNULName   = fmt.Errorf("the name has a NUL byte: %w", fs.ErrInvalid)
)

// path returns the absolute name for the system. It does not clean the name: the system resolves
// ".." after a symlink, and a slash at the end.
func (e *Environment) path(name string) (string, error) {
	switch {
	case name == "":
		return "", errEmptyName
	case strings.ContainsRune(name, 0):
		return "", errNULName
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
