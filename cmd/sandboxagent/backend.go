package main

import (
	"cmp"
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
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// backendOptions are what a backend is told.
type backendOptions struct {
	dir       string
	vars      []string
	inherit   vars.Filter
	container docker.Config
	remote    remoteOptions
	target    ssh.Target
	helperDir string
	sandbox   sandboxOptions
	// note tells the user of something that is no error.
	note func(string)
}

// remoteOptions are what backends are told that run a helper elsewhere.
type remoteOptions struct {
	ttl    time.Duration
	helper string
}

// opened is an environment with what only its backend can do.
type opened struct {
	env.Environment
	// kill kills everything that the environment started, without any grace. The environment stays usable.
	kill func()
	// abandon gives the environment up, within a second or so. Nil means that kill is all there is to do.
	abandon func()
	// isolated says that what runs in it cannot touch the host.
	isolated bool
	// whose is the account on another machine whose rights commands have there; empty if it is the user's on this one.
	whose string
	// session is the name of an environment that one can come back to, and ticket what that takes; nil if one cannot.
	session string
	ticket  *ticket
	// leave ends the contact and keeps the environment.
	leave func() error
}

// backends are the environments that there are, by their names.
func backends() map[string]func(context.Context, backendOptions) (opened, error) {
	return map[string]func(context.Context, backendOptions) (opened, error){
		"local":  openLocal,
		"docker": openDocker,
		"ssh":    openSSH,
	}
}

// worksInPlace reports whether the working folder of a backend is one that is there already.
func worksInPlace(backend string) bool { return backend == "local" || backend == "ssh" }

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
	// tree is the folder of the host that was copied into the environment; nil where the environment works in place, or
	// nothing was to be copied.
	tree *workspace.Workspace
	// isolated says that what runs in it cannot touch the host.
	isolated bool
	// whose is the account on another machine whose rights commands have there; empty if it is the user's on this one.
	whose string
	// log takes what is of no concern to the user.
	log     *slog.Logger
	logFile *logFile
	kill    func()
	// kept says that the environment stays, for ttl without a client.
	kept    bool
	ttl     time.Duration
	session string
	leave   func() error
	// drop forgets what it takes to come back to the environment.
	drop func() error
	// after is called when the environment is closed; nil means nothing.
	after func() error
	// note tells the user of something that is no error.
	note func(string)
	// applying is held while changes are made on the host.
	applying sync.Locker
}

// stop kills what still runs in the environment, so that nothing changes files any more. The environment stays usable.
func (w *workplace) stop() { w.kill() }

// open opens the environment that s describes, with everything in it that is to be there. The caller closes it.
func (p *program) open(ctx context.Context, s environmentSettings) (_ *workplace, err error) {
	openBackend, ok := backends()[s.backend]
	if !ok {
		return nil, usagef("--env: there is no environment %q; there is %s", s.backend, knownBackends())
	}
	w := &workplace{log: slog.New(slog.DiscardHandler), note: p.note, applying: &p.applying}
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
	defer func() {
		if err != nil {
			w.closeLog()
		}
	}()
	tree := recordTree(ctx, s)
	s.options.note = p.note
	o, err := openBackend(ctx, s.options)
	if err == nil {
		w.tree, err = tree.sendTo(ctx, o, p.note)
	} else {
		err = errors.Join(err, tree.discard())
	}
	for _, u := range s.uploads {
		if err == nil {
			err = u.upload(ctx, o.Environment, p.note)
		}
	}
	if err == nil && s.keep && o.ticket == nil {
		err = usagef("--keep: without the helper the environment ends with the connection to it")
	}
	if err != nil {
		if o.Environment != nil {
			err = errors.Join(err, o.Close())
		}
		return nil, err
	}
	abandon := o.abandon
	if abandon == nil {
		abandon = o.kill
	}
	p.kill.Store(&abandon)
	w.kill, w.isolated, w.whose = o.kill, o.isolated, o.whose
	w.kept, w.ttl, w.session, w.leave = s.keep, cmp.Or(s.options.remote.ttl, docker.DefaultTTL), o.session, o.leave
	if o.ticket != nil {
		if w.drop, err = keepTicket(o.session, *o.ticket); err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	filter := s.options.inherit
	filter.Pass = s.given
	w.plain = o.Environment
	w.env = wrap.Apply(o.Environment, wrap.Options{Logger: logger, ReadOnly: s.readOnly, Vars: &filter})
	return w, nil
}

// recording is a folder of the host that is being read, while the environment for it is made.
type recording struct {
	done chan struct{}
	tree *workspace.Workspace
	err  error
}

// recordTree begins to read the folder that will be copied into the environment; nil if none will be.
func recordTree(ctx context.Context, s environmentSettings) *recording {
	if !s.copyTree || worksInPlace(s.backend) {
		return nil
	}
	r := &recording{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.tree, r.err = workspace.Open(ctx, cmp.Or(s.options.dir, "."), workspace.Options{UploadIgnored: s.uploadIgnored})
	}()
	return r
}

// sendTo copies the folder into an environment.
func (r *recording) sendTo(ctx context.Context, o opened, note func(string)) (*workspace.Workspace, error) {
	if r == nil {
		return nil, nil
	}
	<-r.done
	if r.err != nil {
		return nil, workdirError(r.err)
	}
	for _, line := range r.tree.Notes() {
		note(line)
	}
	if err := r.tree.Upload(ctx, o.Environment); err != nil {
		return nil, errors.Join(err, r.tree.Close())
	}
	return r.tree, nil
}

// discard ends the reading. A mistake in the name of the folder counts more than what else went wrong.
func (r *recording) discard() error {
	if r == nil {
		return nil
	}
	<-r.done
	if r.err != nil {
		return workdirError(r.err)
	}
	return r.tree.Close()
}

// note tells the user, on standard error, of something that is no error.
func (p *program) note(line string) {
	if show := p.display.Load(); show != nil {
		show.note(line)
		return
	}
	p.say("note: " + line)
}

// close ends everything that runs in the environment.
func (w *workplace) close() error {
	if w.kept {
		w.kept = false
		if err := w.there(); err != nil {
			return errors.Join(err, w.env.Close(), w.finish())
		}
		err := w.leave()
		w.note(fmt.Sprintf("the environment is kept for %s; \"sandboxagent env attach %s\" leads back to it", w.ttl, w.session))
		return errors.Join(err, w.finish())
	}
	err := w.env.Close()
	if w.drop != nil && !errors.Is(err, env.ErrGone) { // else it may be there, out of reach, and one may come back to it
		err = errors.Join(err, w.drop())
	}
	return errors.Join(err, w.finish())
}

// thereTime bounds the look whether an environment is there.
const thereTime = 10 * time.Second

// there returns why the environment cannot be kept.
func (w *workplace) there() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), thereTime, fmt.Errorf("--keep: the environment has not answered for %s", thereTime))
	defer cancel()
	_, err := w.plain.Stat(ctx, ".")
	return err
}

// finish ends what goes with the environment here.
func (w *workplace) finish() (err error) {
	if w.tree != nil {
		err = w.tree.Close()
	}
	if w.after != nil {
		err = errors.Join(err, w.after())
	}
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
