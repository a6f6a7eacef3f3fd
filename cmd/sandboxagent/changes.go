package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

const (
	// comparedBytes and comparedFiles bound the directories whose changes are found without --patch.
	comparedBytes, comparedFiles = 64 << 20, 20_000
)

// changeFinder finds the changes of a run that writes no patch, for its record, in a directory of
// this machine that is not too large.
type changeFinder struct {
	env *environment
	// ctx is that of the first snapshot.
	ctx   context.Context //nolint:containedctx // it is that of the run, whose events come without one
	once  sync.Once
	taken chan struct{}
	// acted is true if something may have changed the directory.
	acted atomic.Bool
	patch patch
	err   error
}

func newChangeFinder(ctx context.Context, e *environment) *changeFinder {
	return &changeFinder{env: e, ctx: ctx, taken: make(chan struct{}), patch: patch{notify: e.notify}}
}

// event is a sink for the events of a run. The snapshot is taken beside the first request to the
// model, and no tool starts before it is.
func (f *changeFinder) event(e event.Event) error {
	switch e.Kind() {
	case event.KindUserInput:
		go f.once.Do(f.take)
	case event.KindVerify:
		f.acted.Store(true)
	case event.KindToolCallStart:
		f.acted.Store(true)
		f.await()
	case event.KindTextEnd:
		f.await()
	}
	return nil
}

// await waits for the first snapshot.
func (f *changeFinder) await() {
	select {
	case <-f.taken:
	case <-f.ctx.Done():
	}
}

// first returns the first snapshot, or why it was not taken.
func (f *changeFinder) first() (*patch, error) {
	f.await()
	select {
	case <-f.taken:
	default:
		return nil, context.Cause(f.ctx)
	}
	if f.patch.before == nil {
		return nil, cmp.Or(f.err, errors.New("the directory was not recorded"))
	}
	return &f.patch, nil
}

func (f *changeFinder) take() {
	defer close(f.taken)
	switch {
	case f.env.readOnly:
	case !f.env.inPlace:
		f.err = errors.New("the run had neither --patch nor --apply")
	case f.env.remote:
		f.err = errors.New("the directory is on a remote host, and the run had no --patch")
	default:
		f.patch.opts = snapshot.Options{MaxBytes: comparedBytes, MaxEntries: comparedFiles}
		if f.err = f.patch.take(f.ctx, f.env); f.ctx.Err() != nil {
			f.err = nil // no tool runs after the end
		}
	}
	if errors.Is(f.err, env.ErrTreeTooLarge) {
		f.err = fmt.Errorf("the directory has more than %d MiB or %d files, and the run had no --patch",
			comparedBytes>>20, comparedFiles)
	}
}

// finish returns the changes since the snapshot. It ignores the end of ctx.
func (f *changeFinder) finish(ctx context.Context) (stats snapshot.PatchStats, err error) {
	f.once.Do(func() { close(f.taken) }) // without input no tool has run
	<-f.taken
	if !f.acted.Load() {
		f.patch.close()
		return stats, nil
	}
	if f.patch.before == nil {
		return stats, f.err
	}
	defer f.patch.close()
	found, err := f.patch.changes(ctx, f.env.plain, false)
	if err != nil {
		return stats, err
	}
	defer found.Close() //nolint:errcheck // it was only read
	if stats, err = found.WritePatch(context.WithoutCancel(ctx), io.Discard); err != nil {
		return stats, err
	}
	if missing := found.Unreadable(); len(missing) > 0 {
		err = fmt.Errorf("files are unreadable or too large: %s", someNames(missing))
	}
	return stats, err
}

// close is finish for an environment that does not respond.
func (f *changeFinder) close() {
	select {
	case <-f.taken:
		f.patch.close()
	default:
	}
}

// mergeChanges returns the changes of tools with those of a patch, which counts more where both
// have a file.
func mergeChanges(tools []event.FileChange, found []snapshot.FileChange) []event.FileChange {
	merged := slices.Clone(tools)
	index := make(map[string]int, len(tools))
	for i, c := range tools {
		index[c.Path] = i
	}
	add := func(c event.FileChange) {
		i, ok := index[c.Path]
		if !ok {
			merged = append(merged, c)
			return
		}
		c.Backup = merged[i].Backup
		merged[i] = c
	}
	for _, c := range found {
		kind := event.FileModified
		switch c.Status {
		case snapshot.Added:
			kind = event.FileCreated
		case snapshot.Deleted:
			kind = event.FileDeleted
		case snapshot.Renamed:
			add(event.FileChange{Path: c.From, Kind: event.FileDeleted})
			kind = event.FileCreated
		}
		add(event.FileChange{
			Path: c.Path, Kind: kind, Insertions: c.Insertions, Deletions: c.Deletions,
		})
	}
	return merged
}
