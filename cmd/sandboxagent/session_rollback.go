package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// Names of commands and flags that roll sessions back.
const (
	rollbackName  = "session rollback"
	undoName      = "session undo"
	keepFilesName = "keep-files"
)

func (p *program) rollbackCommand() *cli.Command {
	return &cli.Command{
		Usage:     "put a session and its files back to a point",
		ArgsUsage: "[flags] ID@N",
		UsageText: `
sandboxagent session rollback ID@12
sandboxagent session rollback --keep-files ID@12`,
		Description: `
The points are printed by "session show". The session forgets what came after, and its files get
back what they had then, also what commands changed, but for files that git ignores. A file that was
changed since by others is an error with its name, exit code 6, and nothing is changed. Prints the
files with a letter each: A for added, M for modified, D for deleted.`,
		Flags: append([]cli.Flag{keepFilesFlag()},
			environmentFlags(groupEnvironment, "end after this `DURATION`")...),
		Action: p.action(p.rollBack),
	}
}

func (p *program) undoCommand() *cli.Command {
	return &cli.Command{
		Usage:     "take back the last changes of files of a session",
		ArgsUsage: "[flags] ID|--last",
		UsageText: `
sandboxagent session undo --last
sandboxagent session undo ID`,
		Description: `
Rolls the session back to the point before its last calls that changed files; see "session
rollback".`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{
				Name: lastName, Category: groupCommand, Usage: "take the session that was used last",
			},
			keepFilesFlag(),
		}, environmentFlags(groupEnvironment, "end after this `DURATION`")...),
		Action: p.action(p.rollBack),
	}
}

func keepFilesFlag() cli.Flag {
	return &cli.BoolFlag{
		Name: keepFilesName, Category: groupCommand, Usage: "leave the files as they are",
	}
}

// rollsBack reports whether a command rolls a session back.
func rollsBack(command string) bool { return command == rollbackName || command == undoName }

// Files of a rollback that is under way: pendingName, a pending as JSON, and changesName, a
// checkpoint. The first exists only if the second is complete.
const (
	pendingName = "rollback.json"
	changesName = "rollback.tar"
)

// pending describes a rollback.
type pending struct {
	// To is its point.
	To int64 `json:"to"`
	// InPlace means that its changes are for the directory in which the environment works; otherwise
	// they are those of the session to an uploaded directory.
	InPlace bool `json:"in_place"`
	// Dir is that directory.
	Dir string `json:"dir,omitempty"`
}

// rollBack is the commands session rollback and session undo.
func (p *program) rollBack(ctx context.Context, c *cli.Context) (code int, err error) {
	s := p.stored
	plan, err := s.pendingRollback()
	if err != nil {
		return 0, err
	}
	if plan != nil && !c.Bool(keepFilesName) {
		if err := p.finishIn(ctx, c, *plan); err != nil {
			return 0, err
		}
		if p.line.command == undoName || s.point == plan.To {
			return codeDone, nil
		}
	}
	point, err := s.pointOf(p.line.command)
	if err != nil {
		return 0, err
	}
	if !s.record.HasPoint(point) {
		return 0, explainLost(fmt.Errorf("entry %d: %w", point, session.ErrNoPoint))
	}
	b, err := findBackend(backends(nil), s.record.Started.Backend)
	if err != nil {
		return 0, err
	}
	if c.Bool(keepFilesName) {
		return codeDone, errors.Join(s.removePending(), s.forget(point))
	}
	back, err := s.record.ChangesBack(point)
	if err != nil {
		return 0, explainLost(err)
	}
	if s.imported && b.inPlace() && len(back) > 0 {
		return 0, usagef("the session was imported, and its changes were not made here: resume it "+
			"first, or roll back with --%s", keepFilesName)
	}
	plan = &pending{To: point, InPlace: b.inPlace(), Dir: s.record.Started.WorkDir}
	list := back
	if !plan.InPlace {
		if list, err = s.copied(back); err != nil {
			return 0, explainLost(err)
		}
	}
	if len(back) == 0 {
		return codeDone, s.forget(point)
	}
	if err := s.saveChanges(s.record.LastCall(point), list); err != nil {
		return 0, err
	}
	s.planned = plan
	if err := p.finishIn(ctx, c, *plan); err != nil {
		return 0, s.explainUnfinished(err)
	}
	for _, change := range back {
		letter := "M"
		switch (session.FileVersion{}) {
		case change.Before:
			letter = "A"
		case change.After:
			letter = "D"
		}
		if _, err := fmt.Fprintln(p.std.out, letter, row(string(change.Name))); err != nil {
			return 0, err
		}
	}
	p.notify("go on with: sandboxagent " + resumeName + " " + s.record.ID + " TASK")
	return codeDone, nil
}

// explainUnfinished returns the error of a rollback with what becomes of it: one that has changed
// nothing is forgotten.
func (s *storedSession) explainUnfinished(err error) error {
	switch plan, perr := s.pendingRollback(); {
	case perr != nil:
		return errors.Join(err, perr)
	case plan == nil:
		return errors.Join(err, s.removePending())
	}
	return fmt.Errorf("%w; some files may be put back already, and the next command that works on "+
		"the session finishes that", err)
}

// finishIn finishes a rollback, in the environment that the flags select if it is in place.
func (p *program) finishIn(ctx context.Context, c *cli.Context, plan pending) (err error) {
	if !plan.InPlace {
		return p.stored.finishRollback(ctx, nil, p.notify)
	}
	settings, err := p.parseEnvironmentFlags(c)
	if err != nil {
		return err
	}
	settings.readOnly = false
	e, err := p.open(ctx, settings) // which finishes it
	if err != nil {
		return err
	}
	return e.close()
}

// changedError lists the files that others have changed since the session changed them.
type changedError struct {
	names []string
	err   error
}

func (e *changedError) Error() string {
	return fmt.Sprintf("the session is not rolled back, since others have changed its files: %s; put "+
		"them back, or roll back with --%s", allNames(e.names), keepFilesName)
}

func (e *changedError) Unwrap() error { return e.err }

// explainLost adds the remedy to an error about files.
func explainLost(err error) error {
	if errors.Is(err, session.ErrNoPoint) {
		return usagef("%s (\"session show\" prints them as @N)", err)
	}
	return fmt.Errorf("%w; --%s rolls back the conversation only", err, keepFilesName)
}

// pointOf returns the point of a command.
func (s *storedSession) pointOf(command string) (int64, error) {
	points := s.record.Points
	if command == undoName {
		i := len(points) - 1
		if i >= 0 && s.record.ChangedSince { // in a round that has not ended
			return points[i].Seq, nil
		}
		for i >= 0 && points[i].Files == 0 && !points[i].Lost {
			i--
		}
		if i < 1 {
			return 0, usagef("no call of the session %s has changed a file that it has recorded",
				s.record.ID)
		}
		return points[i-1].Seq, nil
	}
	return s.point, nil
}

// file returns a file in the directory of the session.
func (s *storedSession) file(name string) string { return filepath.Join(s.record.Dir, name) }

// removePending ends a rollback.
func (s *storedSession) removePending() error {
	return errors.Join(os.RemoveAll(s.file(pendingName)), os.RemoveAll(s.file(changesName)))
}

// forget removes from the session what came after a point.
func (s *storedSession) forget(point int64) error {
	err := s.store.Append(session.TypeRolledBack, session.RolledBack{To: point})
	if err == nil {
		err = s.store.Sync()
	}
	return err
}

// copied returns the changes to an uploaded directory with other ones after them.
func (s *storedSession) copied(back []session.FileChange) ([]session.FileChange, error) {
	f, err := os.Open(s.file(checkpointName))
	if errors.Is(err, fs.ErrNotExist) {
		return back, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	c, err := workspace.ReadCheckpoint(f)
	if err != nil {
		return nil, err
	}
	return session.Compose(fileChanges(c.Changes), back)
}

// splitPoint returns the parts of ID@N.
func splitPoint(text string) (id string, point int64, err error) {
	id, n, ok := strings.Cut(text, "@")
	if ok {
		point, err = strconv.ParseInt(n, 10, 64)
	}
	if !ok || err != nil || point < 1 {
		return "", 0, usagef("%q is no session with a point, such as ID@12 (\"session show\" prints the "+
			"points as @N)", text)
	}
	return id, point, nil
}

// saveChanges writes the changes of a rollback with a last call.
func (s *storedSession) saveChanges(call string, list []session.FileChange) error {
	return replaceFile(s.file(changesName), 0o600, func(w io.Writer) error {
		return workspace.SaveChanges(w, call, workspaceChanges(list), s.disk.OpenObject)
	})
}

// savePending makes a rollback whose changes are saved one that is under way.
func (s *storedSession) savePending(plan pending) error {
	return replaceFile(s.file(pendingName), 0o600, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(plan)
	})
}

// pendingRollback returns the rollback that was interrupted; nil without one.
func (s *storedSession) pendingRollback() (*pending, error) {
	data, err := os.ReadFile(s.file(pendingName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	plan := &pending{}
	return plan, json.Unmarshal(data, plan)
}

// finishRollback finishes the rollback that is planned, or under way since an earlier command, in
// an environment that works in place, or otherwise, with nil, in the changes to an uploaded
// directory. Every step of it can be repeated.
func (s *storedSession) finishRollback(
	ctx context.Context, e *environment, notify func(string),
) error {
	if s == nil {
		return nil
	}
	plan := s.planned
	if plan == nil {
		var err error
		if plan, err = s.pendingRollback(); err != nil {
			return err
		}
	}
	switch {
	case plan == nil, plan.InPlace && e == nil:
		return nil
	case !plan.InPlace:
		if err := s.savePending(*plan); err != nil {
			return err
		}
	case (!e.inPlace || e.plain.Info().WorkDir != plan.Dir) && s.planned != nil:
		return usagef("the files of the session %s are in %s: roll it back there", s.record.ID, plan.Dir)
	case !e.inPlace || e.plain.Info().WorkDir != plan.Dir:
		return usagef("a rollback of the session was interrupted in %s; finish it first with "+
			"\"%s %s\"", plan.Dir, undoName, s.record.ID)
	default:
		if err := s.putBack(ctx, e, plan); err != nil {
			return err
		}
	}
	if err := s.forget(plan.To); err != nil {
		return err
	}
	if !plan.InPlace {
		err := os.Rename(s.file(changesName), s.file(checkpointName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is done already
			return err
		}
	}
	if err := s.removePending(); err != nil {
		return err
	}
	if s.planned == nil {
		notify(fmt.Sprintf("the rollback to @%d that was interrupted is finished", plan.To))
	}
	s.planned = nil
	return s.reload()
}

// putBack makes the changes of saveChanges in place, those of a rollback unless it is nil, which is
// under way from the first one on. It changes nothing if others have changed one of the files.
func (s *storedSession) putBack(ctx context.Context, e *environment, plan *pending) error {
	f, err := os.Open(s.file(changesName))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	c, err := workspace.ReadCheckpoint(f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	p := &patch{notify: e.notify}
	for _, change := range c.Changes {
		p.opts.Include = append(p.opts.Include, change.Name)
	}
	if err := p.take(ctx, e); err != nil {
		return err
	}
	defer p.close()
	err = workspace.Check(p.before, c.Changes)
	if err == nil && plan != nil {
		err = s.savePending(*plan)
	}
	if err == nil {
		_, err = workspace.Restore(ctx, e.plain, p.before, f)
	}
	if conflict := (*workspace.ConflictError)(nil); errors.As(err, &conflict) {
		var names []string
		for _, c := range conflict.Conflicts {
			names = append(names, c.Name)
		}
		return &changedError{names, err}
	}
	return err
}
