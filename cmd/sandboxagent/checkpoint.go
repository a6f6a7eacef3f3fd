package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// checkpointName is the file in the directory of a session with the changes to an uploaded working
// directory. Its note is the ID of the last call that they include.
const checkpointName = "workspace.tar"

// checkpoints stores the changes to the working directory after each round of calls that may have
// changed it, beside the next request to the model, so that the session can be rolled back, and go
// on when the environment of an uploaded directory is gone. A nil one does nothing.
type checkpoints struct {
	env      *environment
	sessions string
	changing []string // names of tools
	// held returns a session, and first the first snapshot of a directory in which the environment
	// works in place, or why it has none.
	held  func(id string) *heldSession
	first func() (*patch, error)
	// ctx is that of the stored changes during the run.
	ctx context.Context //nolint:containedctx // it is that of the run, whose events come without one

	// The sink of events owns the fields below, and finish after the run.
	dir   string // of the session
	files fileHistory
	dirty bool
	call  string // the last call of the root agent
	later string // the call that waits for an approval
	// done is closed when the changes are stored, or failed is why they are not.
	done   chan struct{}
	failed error
}

func newCheckpoints(ctx context.Context, j *job, first func() (*patch, error)) *checkpoints {
	if j.env.readOnly || j.held == nil {
		return nil
	}
	c := &checkpoints{
		env: j.env, sessions: j.sessions, ctx: ctx, held: j.held, first: first,
		changing: changingNames(slices.Concat(j.config.Profile.Tools, j.config.Tools)),
	}
	if j.stored != nil {
		c.call = j.stored.restored.Note
		c.files.known = make(map[session.FileName]session.FileVersion)
		for _, change := range fileChanges(j.stored.restored.Changes) {
			c.files.known[change.Name] = change.After
		}
	}
	return c
}

// event is a sink for the events of a run. No tool starts while changes are stored.
func (c *checkpoints) event(e event.Event) error {
	switch d := e.Data.(type) {
	case event.SessionStart:
		if e.AgentID == "" {
			c.dir = filepath.Join(c.sessions, e.SessionID)
			c.files.session = c.held(e.SessionID)
		}
	case event.ToolCallStart:
		c.await()
	case event.PermissionReplied:
		if d.Answer == "later" {
			c.later = d.CallID
		}
	case event.Verify:
		c.dirty = true
	case event.ToolCallEnd:
		if d.CallID == c.later { // it has not run
			break
		}
		if slices.Contains(c.changing, d.Name) {
			c.dirty = true
		}
		if e.AgentID == "" {
			c.call = d.CallID
		}
	case event.Status:
		if e.AgentID == "" && d.From == string(agent.StateToolRunning) && c.dirty &&
			d.Signal != string(agent.SignalApproval) { // whose round goes on
			c.start(c.ctx, c.env.plain)
		}
		if e.AgentID == "" && d.Signal == string(agent.SignalCheck) { // which may end without an event
			c.dirty = true
		}
	}
	return nil
}

// start starts to store the changes.
func (c *checkpoints) start(ctx context.Context, e env.Environment) {
	c.await()
	c.dirty = false
	dir, call, done := c.dir, c.call, make(chan struct{})
	c.done = done
	go func() {
		defer close(done)
		c.failed = c.store(ctx, e, dir, call)
	}()
}

// await waits until the changes are stored. Those that are not are stored later.
func (c *checkpoints) await() {
	if c.done == nil {
		return
	}
	<-c.done
	if c.failed != nil {
		c.dirty = true
	}
}

// finish stores the changes since the last time.
func (c *checkpoints) finish(ctx context.Context) {
	if c == nil {
		return
	}
	c.await()
	if c.dir == "" || !c.dirty {
		return
	}
	ctx, e, stop := watch(ctx, c.env.plain)
	defer stop()
	c.start(ctx, e)
	if c.await(); c.failed != nil {
		c.env.notify(fmt.Sprintf("the changes are not stored with the session: %s", c.failed))
	}
}

// applied replaces the stored changes, which the directory of the host has now, by none.
func (c *checkpoints) applied() {
	if c == nil || c.dir == "" || c.env.tree == nil {
		return
	}
	err := replaceFile(filepath.Join(c.dir, checkpointName), 0o600, func(w io.Writer) error {
		return workspace.SaveChanges(w, c.call, nil, nil)
	})
	if err != nil {
		c.env.notify(fmt.Sprintf("the session still has the applied changes: %s", err))
	}
}

// close ends the work on an environment that does not respond any more.
func (c *checkpoints) close() {
	if c != nil {
		c.await()
	}
}

// store adds to the history of files, and replaces the file with the changes to an uploaded
// directory.
func (c *checkpoints) store(
	ctx context.Context, e env.Environment, dir, call string,
) error {
	if c.env.tree == nil {
		return c.storeInPlace(ctx, e, call)
	}
	now, err := c.env.tree.ChangesSoFar(ctx, e)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return errors.Join(err, c.files.lose(call, err))
	}
	defer now.Close() //nolint:errcheck // it was only read
	// If the program dies between the two, the changes are there, and their history is not known.
	err = replaceFile(filepath.Join(dir, checkpointName), 0o600, func(w io.Writer) error {
		return now.Save(ctx, w, call)
	})
	if err != nil {
		return err
	}
	return c.files.add(call, c.env.tree.Snapshot(), now.Snapshot(), now.Unreadable())
}

// restore makes the stored changes of a session, which may be nil, in an environment to which tree
// was uploaded; nil if none was.
func (s *storedSession) restore(
	ctx context.Context, tree *workspace.Workspace, to env.Environment,
) error {
	if s == nil || tree == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(s.record.Dir, checkpointName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	s.restored, err = tree.Restore(ctx, to, f)
	if conflict := (*workspace.ConflictError)(nil); errors.As(err, &conflict) {
		return fmt.Errorf("the working directory has changed since the session worked: %w; put these "+
			"files back, or start a new session", conflict)
	}
	return err
}

// checkPlace reports a session whose changes cannot come to the environment that is selected.
func (s *storedSession) checkPlace(b backend) error {
	if s == nil || !b.inPlace() {
		return nil
	}
	f, err := os.Open(filepath.Join(s.record.Dir, checkpointName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if c, err := workspace.ReadCheckpoint(f); err != nil || len(c.Changes) == 0 {
		return err
	}
	return usagef("--env=%s: the session worked on a copy of the directory in %s, and its changes go "+
		"on only in a copy; --apply brings them to the directory", b.name(), s.record.Started.Backend)
}

// placeHints returns what the model is told about an environment in which its session goes on, and
// tells the user about changes that are lost. Existing means that the environment was open before.
func (p *program) placeHints(ctx context.Context, j *job, existing bool) ([]string, error) {
	s := p.stored
	names := changingNames(slices.Concat(j.config.Profile.Tools, p.tools))
	switch {
	case s == nil:
		return nil, nil
	case existing:
		return []string{
			"The environment was open before: look at its files before you rely on them.",
		}, nil
	case j.env.inPlace && s.imported:
		return p.importHints(ctx, j.env, names)
	case j.env.inPlace:
		return nil, nil
	}
	hints := []string{"The environment is a new one: installed packages, files that git ignores, " +
		"commits, and files outside of the working directory are gone."}
	text := ""
	if before, err := findBackend(backends(nil), s.record.Started.Backend); err != nil ||
		before.name() != "local" || s.imported { // or its files were uploaded
		text = s.lost(j.env.tree != nil, names)
	}
	if len(s.restored.Unreadable) > 0 {
		text += "\nThese files could not be stored: " + someNames(s.restored.Unreadable)
	}
	if text != "" {
		p.notify("changes of the session are lost with its environment; the model is told")
		hints = append(hints, strings.TrimSpace(text))
	}
	return hints, nil
}

// importHints returns what the model is told about an imported session in an environment that works
// in place. Changing are the names of tools that change something.
func (p *program) importHints(
	ctx context.Context, e *environment, changing []string,
) ([]string, error) {
	missing, err := p.stored.bringChanges(ctx, e)
	if err != nil {
		return nil, err
	}
	text := ""
	switch {
	case len(missing) > 0:
		text = "These files may not be as you left them: " + someNames(missing)
	case p.stored.hasUnknown() || p.stored.record.Unrecorded(changing, storesChanges) != "":
		text = p.stored.lost(false, changing)
	}
	if text == "" {
		return nil, nil
	}
	p.notify("changes of the session are not in this directory; the model is told")
	return []string{"The session was imported, and its changes are not in this directory.\n" +
		text}, nil
}

// hasUnknown reports whether some changes of the session are not known, not even their names.
func (s *storedSession) hasUnknown() bool {
	return slices.ContainsFunc(s.record.Points, func(p session.Point) bool {
		return p.Lost && p.Files == 0
	})
}

// bringChanges makes the changes of an imported session in the directory in which e works in place,
// if the session has their contents and nobody else has changed the files. It returns the names of
// the changed files that are not as the session left them.
func (s *storedSession) bringChanges(ctx context.Context, e *environment) ([]string, error) {
	if len(s.record.Changes()) == 0 {
		return nil, nil
	}
	var missing []string
	p := &patch{notify: e.notify, opts: snapshot.Options{
		MaxBytes: comparedBytes, MaxEntries: comparedFiles,
	}}
	err := p.take(ctx, e)
	unknown := errors.Is(err, env.ErrTreeTooLarge)
	if err != nil && !unknown {
		return nil, err
	}
	defer p.close()
	for _, c := range s.record.Changes() {
		if unknown || !versionIn(p.before, c.Name).Same(c.After) {
			missing = append(missing, string(c.Name))
		}
	}
	back, err := s.record.ChangesBack(s.record.Start())
	if unknown || len(missing) == 0 || err != nil || e.readOnly {
		return missing, nil
	}
	if err := s.saveChanges("", session.Invert(back)); err != nil {
		return nil, err
	}
	err = errors.Join(s.putBack(ctx, e, nil), os.RemoveAll(s.file(changesName)))
	switch changed := (*changedError)(nil); {
	case errors.As(err, &changed): // and nothing is made
		return missing, nil
	case err != nil:
		return nil, err
	}
	e.notify("the changes of the session are made in this directory: " + someNames(missing))
	return nil, nil
}

// lost returns a text about the calls whose changes went with the environment of the session; empty
// if they are all there. Changing are the names of tools that change something.
func (s *storedSession) lost(uploaded bool, changing []string) string {
	var calls []string
	add := func(id, name, arguments string) {
		if slices.Contains(changing, name) {
			calls = append(
				calls,
				fmt.Sprintf("- %s %s", name, shorten.Cut(oneLine(arguments), maxResultLine)),
			)
		}
		if uploaded && id == s.restored.Note {
			calls = nil
		}
	}
	for _, t := range s.record.Conversation {
		for _, part := range t.Parts {
			if c := part.ToolCall; t.Kind == session.TurnAssistant && c != nil {
				add(c.ID, c.Name, c.Arguments)
			}
		}
	}
	if s.record.AgentsLost {
		calls = append(calls, "- those of the sub-agents that were at work")
	}
	if len(calls) == 0 {
		return ""
	}
	const most = 20
	if n := len(calls) - most; n > 0 {
		calls = append([]string{fmt.Sprintf("- %d more before them", n)}, calls[n:]...)
	}
	return "Changes that these calls made are lost; look before you rely on them:\n" +
		strings.Join(calls, "\n")
}

// changingNames returns the names of the tools that may change the environment, also by an agent.
func changingNames(all []tool.Tool) []string {
	names := []string{"spawn_agent", "send_input"}
	for _, t := range all {
		if t.NeedsEnv && !t.ReadOnly {
			names = append(names, t.Name)
		}
	}
	return names
}
