package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

// backendOptions are what a backend is told.
type backendOptions struct {
	dir     string
	vars    []string
	inherit env.VarFilter
}

// opened is an environment with what only its backend can do.
type opened struct {
	env.Environment
	// kill kills everything that the environment started, without any grace.
	kill func()
}

// backends are the environments that there are, by their names.
func backends() map[string]func(context.Context, backendOptions) (opened, error) {
	return map[string]func(context.Context, backendOptions) (opened, error){
		"local": openLocal,
	}
}

func knownBackends() string { return strings.Join(slices.Sorted(maps.Keys(backends())), ", ") }

// workdirError explains why there is no environment in the working folder.
func workdirError(err error) error {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path):
		return usagef("the working folder %s does not exist; --workdir names it", path.Path)
	case errors.Is(err, env.ErrNotDir) && errors.As(err, &path):
		return usagef("the working folder %s is no folder; --workdir names it", path.Path)
	}
	return err
}

// workplace is an open environment.
type workplace struct {
	// env is what commands and tools act on.
	env env.Environment
	// plain is the environment without its decorations, for what the program does on its own account.
	plain env.Environment
	// log takes what is of no concern to the user.
	log     *slog.Logger
	logFile *logFile
	kill    func()
}

// stop kills what still runs in the environment, so that nothing changes files any more. The environment stays usable.
func (w *workplace) stop() { w.kill() }

// open opens the environment that s describes. The caller closes it.
func (p *program) open(ctx context.Context, s environmentSettings) (*workplace, error) {
	openBackend, ok := backends()[s.backend]
	if !ok {
		return nil, usagef("--env: there is no environment %q; there is %s", s.backend, knownBackends())
	}
	w := &workplace{log: slog.New(slog.DiscardHandler)}
	var logger *slog.Logger
	if s.log != "" {
		f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, usagef("--log: %s", err)
		}
		w.logFile = &logFile{w: f}
		logger = slog.New(slog.NewJSONHandler(w.logFile, nil))
		w.log = logger
	}
	o, err := openBackend(ctx, s.options)
	if err != nil {
		w.closeLog()
		return nil, err
	}
	p.kill.Store(&o.kill)
	w.kill = o.kill
	filter := s.options.inherit
	filter.Pass = s.given
	w.plain = o.Environment
	w.env = env.Decorate(o.Environment, env.Decorations{Logger: logger, ReadOnly: s.readOnly, Vars: &filter})
	return w, nil
}

// close ends everything that runs in the environment.
func (w *workplace) close() error {
	err := w.env.Close()
	w.closeLog()
	return err
}

func (w *workplace) closeLog() {
	if w.logFile != nil {
		w.logFile.close()
	}
}

// logError is why the log is not complete. It is valid after close.
func (w *workplace) logError() error {
	if w.logFile == nil {
		return nil
	}
	if err := w.logFile.failure(); err != nil {
		return fmt.Errorf("--log: the log is not complete: %w", err)
	}
	return nil
}

// logFile keeps the first error of what it writes to, which a logger tells nobody of. It is safe for concurrent use.
type logFile struct {
	w io.WriteCloser

	mu     sync.Mutex
	closed bool
	err    error
}

func (f *logFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.w.Write(b)
	f.keep(err)
	return n, err
}

func (f *logFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(f.w.Close())
	f.closed = true
}

// keep keeps err if it is the first; what comes after close is of no concern any more.
func (f *logFile) keep(err error) {
	if f.err == nil && !f.closed {
		f.err = err
	}
}

func (f *logFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
