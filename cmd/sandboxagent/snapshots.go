package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// fileHistory stores the changes of files by each round of calls in the journal, and the contents
// before and after as objects of the session, so that it can be rolled back.
type fileHistory struct {
	session *heldSession
	// known are the versions, as of the last snapshot, of files that differ from the first one.
	known map[session.FileName]session.FileVersion
}

// add stores the changes until now, which end with a call. First is the first snapshot of the
// program. Without the unreadable files the changes are incomplete.
func (h *fileHistory) add(call string, first, now *snapshot.Snapshot, unreadable []string) error {
	if len(unreadable) > 0 {
		return h.lose(call, errors.New("unreadable files: "+someNames(unreadable)))
	}
	versions := make(map[session.FileName]session.FileVersion)
	for _, c := range fileChanges(workspace.Differences(first, now)) {
		versions[c.Name] = c.After
	}
	names := maps.Clone(versions)
	maps.Copy(names, h.known)
	s := session.Snapshot{Call: call}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := session.FileChange{
			Name: name, Before: versionIn(first, name), After: versionIn(now, name),
		}
		if known, ok := h.known[name]; ok {
			c.Before = known
		}
		if c.Before.Same(c.After) {
			continue
		}
		s.Changes = append(s.Changes, c)
		if err := errors.Join(h.put(first, c.Name), h.put(now, c.Name)); err != nil {
			return h.lose(call, err)
		}
	}
	h.known = versions
	return h.session.store.Append(session.TypeSnapshot, s)
}

// lose stores that the changes until a call are not known.
func (h *fileHistory) lose(call string, reason error) error {
	return h.session.store.Append(session.TypeSnapshot, session.Snapshot{
		Call: call, Lost: reason.Error(),
	})
}

// put stores the content of a file of a snapshot, which may lack it.
func (h *fileHistory) put(from *snapshot.Snapshot, name session.FileName) error {
	f, ok := from.Lookup(string(name))
	if !ok {
		return nil
	}
	content, err := from.Content(string(name))
	if err != nil {
		return err
	}
	return h.session.disk.PutObject(versionIn(from, name).SHA256, f.Size, content)
}

func versionIn(s *snapshot.Snapshot, name session.FileName) session.FileVersion {
	return session.FileVersion(workspace.StateIn(s, string(name)))
}

func fileChanges(list []workspace.Change) (changes []session.FileChange) {
	for _, c := range list {
		changes = append(changes, session.FileChange{
			Name: session.FileName(c.Name), Before: session.FileVersion(c.Before),
			After: session.FileVersion(c.After),
		})
	}
	return changes
}

func workspaceChanges(list []session.FileChange) (changes []workspace.Change) {
	for _, c := range list {
		changes = append(changes, workspace.Change{
			Name: string(c.Name), Before: workspace.State(c.Before), After: workspace.State(c.After),
		})
	}
	return changes
}

// storeInPlace stores the changes to a directory in which the environment works in place.
func (c *checkpoints) storeInPlace(ctx context.Context, e env.Environment, call string) error {
	if !c.env.inPlace {
		return c.files.lose(call, errors.New("nothing was uploaded to the environment"))
	}
	p, err := c.first()
	var found changes
	if err == nil {
		found, err = p.changes(ctx, e, true)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return c.files.lose(call, err)
	}
	defer found.Close() //nolint:errcheck // it was only read
	d, ok := found.(*difference)
	if !ok {
		return c.files.lose(call, errors.New("the environment was open before"))
	}
	return c.files.add(call, d.before, d.after, d.Unreadable())
}
