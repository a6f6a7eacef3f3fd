package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// environment is an open environment with everything that ends with it.
type environment struct {
	opened
	// backend is the name of the backend.
	backend string
	// wrapped is plain with the decorators of the flags. Commands and tools act on it, the program
	// itself on plain.
	wrapped env.Environment
	// tree is the directory of the host that was copied into the environment; nil if none was.
	tree *workspace.Workspace
	// log receives diagnostics that users do not see.
	log     *slog.Logger
	logFile *logFile
	// inPlace: commands work in an existing directory.
	inPlace bool
	// readOnly: no tool changes anything.
	readOnly bool
	// trusted is the file of a project whose settings the user trusts; may be empty.
	trusted string
	// keep leaves the environment running on close.
	keep bool
	// forget removes the stored way to reattach; nil if none is stored.
	forget func() error
	// cleanup is called after close; may be nil.
	cleanup func() error
	// notify receives lines for the user.
	notify func(string)
	// applying is held while changes are applied on the host.
	applying sync.Locker
	// endTime bounds the time to close after the timeout of a run.
	endTime time.Duration
	// silent means that the environment did not respond after the timeout of a run.
	silent bool
}

// open opens the environment that s describes, with its uploads. The caller closes it.
func (p *program) open(ctx context.Context, s environmentSettings) (_ *environment, err error) {
	e := &environment{
		backend: s.backend.name(), log: slog.New(slog.DiscardHandler), keep: s.keep,
		notify: p.notify, applying: &p.applying, endTime: p.endTime(),
		inPlace: s.backend.inPlace(), readOnly: s.readOnly, trusted: p.line.trusted,
	}
	var logger *slog.Logger
	if s.log != "" {
		f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, usagef("--log: %s", err)
		}
		e.logFile = &logFile{w: f}
		logger = slog.New(slog.NewJSONHandler(e.logFile, &slog.HandlerOptions{
			ReplaceAttr: redactAttr(s.redactor),
		}))
		e.log = logger
	}
	defer func() {
		if err != nil {
			e.closeLog()
		}
	}()
	reading, err := startReading(ctx, s)
	if err != nil {
		return nil, err
	}
	upload := func(
		ctx context.Context, to env.Environment, which func(transfer, env.Info) bool,
	) (err error) {
		if e.tree, err = reading.upload(ctx, to, p.notify); err == nil {
			err = s.upload(ctx, to, p.notify, which)
		}
		if err == nil {
			err = p.stored.restore(ctx, e.tree, to)
		}
		return err
	}
	s.config.notify, s.config.noteOnce, s.config.keep = p.notify, p.noteOnce, s.keep
	fills := s.readOnly && s.existing == nil && !s.backend.inPlace()
	if fills {
		s.config.fill = func(ctx context.Context, to env.Environment) error {
			return upload(ctx, to, transfer.isWork)
		}
	}
	if s.existing != nil {
		e.opened, err = s.existing.attach(ctx)
	} else {
		e.opened, err = s.backend.open(ctx, s.config)
	}
	if err != nil {
		return nil, errors.Join(err, reading.discard())
	}
	if fills {
		err = s.upload(ctx, e.plain, p.notify, func(t transfer, info env.Info) bool {
			return !t.isWork(info)
		})
	} else {
		err = upload(ctx, e.plain, func(transfer, env.Info) bool { return true })
	}
	if err == nil {
		err = p.stored.finishRollback(ctx, e, p.notify)
	}
	if err == nil && e.keeping != nil {
		e.forget, err = storeKept(e.backend, e.keeping)
	}
	if err != nil {
		return nil, errors.Join(err, e.plain.Close(), reading.discard())
	}
	abandon := e.abandon
	if abandon == nil {
		abandon = e.kill
	}
	p.kill.Store(&abandon)
	e.wrapped = s.wrap(e.plain, logger)
	return e, nil
}

// wrap returns an environment with the decorators of the flags.
func (s *environmentSettings) wrap(e env.Environment, logger *slog.Logger) env.Environment {
	filter := s.config.inherit
	filter.Pass = s.given
	return wrap.Apply(e, wrap.Options{
		Logger: logger, Redact: s.redactor.Text, Vars: &filter,
		ReadOnly: s.readOnly, Check: onlyReads(e.Info()),
	})
}

// workdirError turns mistakes in --workdir into usageErrors.
func workdirError(err error) error {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path):
		return usagef("--workdir: the directory %s does not exist", path.Path)
	case errors.Is(err, env.ErrNotDir) && errors.As(err, &path):
		return usagef("--workdir: %s is not a directory", path.Path)
	}
	return err
}

// reading is a directory of the host that is read while the environment for it is opened.
type reading struct {
	done chan struct{}
	tree *workspace.Workspace
	err  error
	told bool // upload has returned err
}

// startReading starts to read the directory to copy into the environment; nil if none is copied.
func startReading(ctx context.Context, s environmentSettings) (*reading, error) {
	if !s.copyTree || s.noUpload || s.backend.inPlace() || s.existing != nil {
		return nil, nil
	}
	dir := cmp.Or(s.config.dir, ".")
	if _, err := os.Stat(dir); err != nil {
		return nil, workdirError(err)
	}
	r := &reading{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		state, _ := stateDir() // without one, Apply records nothing
		opts := workspace.Options{UploadIgnored: s.uploadIgnored, StateDir: state}
		r.tree, r.err = workspace.Open(ctx, dir, opts)
	}()
	return r, nil
}

// upload copies the directory into an environment.
func (r *reading) upload(
	ctx context.Context, e env.Environment, notify func(string),
) (*workspace.Workspace, error) {
	if r == nil {
		return nil, nil
	}
	<-r.done
	if r.err != nil {
		r.told = true
		return nil, workdirError(r.err)
	}
	for _, line := range r.tree.Warnings() {
		notify(line)
	}
	if err := r.tree.Upload(ctx, e); err != nil {
		return nil, errors.Join(err, r.tree.Close())
	}
	return r.tree, nil
}

// discard waits for the reading and discards its result, but for a mistake in --workdir that upload
// has not returned.
func (r *reading) discard() error {
	if r == nil {
		return nil
	}
	<-r.done
	switch {
	case r.told:
		return nil
	case r.err != nil:
		return workdirError(r.err)
	}
	return r.tree.Close()
}

// notify writes a line for the user to standard error.
func (p *program) notify(line string) {
	if p.quiet {
		return
	}
	if p.part != nil {
		p.part.runner.note(line)
	}
	if show := p.display.Load(); show != nil {
		show.notify(line)
		return
	}
	p.printLine("note: " + line)
}

// close ends the environment with everything that runs in it, or leaves it running if it is kept.
func (e *environment) close() (err error) {
	if e.keep {
		e.keep = false
		err = e.leave()
	} else if err = e.wrapped.Close(); e.forget != nil && !errors.Is(err, env.ErrGone) {
		err = errors.Join(err, e.forget()) // an unreachable environment may still be reattached to
	}
	if e.tree != nil {
		err = errors.Join(err, e.tree.Close())
	}
	if e.cleanup != nil {
		err = errors.Join(err, e.cleanup())
	}
	e.closeLog()
	return err
}

// leaveTime bounds the check that an environment is reachable before it is left.
const leaveTime = 10 * time.Second

// leave disconnects from an environment that is kept. An unreachable one is closed instead.
func (e *environment) leave() error {
	timeout := fmt.Errorf("--keep: the environment has not answered for %s", leaveTime)
	ctx, cancel := context.WithTimeoutCause(context.Background(), leaveTime, timeout)
	defer cancel()
	if _, err := e.plain.Stat(ctx, "."); err != nil {
		return errors.Join(err, e.wrapped.Close())
	}
	err := e.keeping.leave()
	e.notify(fmt.Sprintf("the environment ends after %s without a client"+
		" (\"sandboxagent env attach %s\" reattaches)", e.keeping.ttl, e.keeping.session))
	return err
}

func (e *environment) closeLog() {
	if e.logFile != nil {
		e.logFile.close()
	}
}

// logError returns why the log is incomplete. It is valid after close.
func (e *environment) logError() error {
	if e.logFile == nil {
		return nil
	}
	if err := e.logFile.failure(); err != nil {
		return fmt.Errorf("--log: the log is incomplete: %w", err)
	}
	return nil
}
