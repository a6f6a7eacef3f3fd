package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Backups keeps what files held before a tool changed them.
type Backups interface {
	// Keep stores content, what the file name held, durably, and returns where that is on the host.
	Keep(name string, content io.Reader) (file string, err error)
}

// backupEnv is an environment whose files are kept before they are written or removed. A file that
// cannot be kept is not changed. What commands change is not kept.
type backupEnv struct {
	env.Environment
	backups Backups

	mu sync.Mutex
	// kept has the backups by the names under which changes are told.
	kept map[string]string
}

func newBackupEnv(e env.Environment, b Backups) *backupEnv {
	return &backupEnv{Environment: e, backups: b, kept: make(map[string]string)}
}

// WriteFile implements env.FileWriter.
func (b *backupEnv) WriteFile(
	ctx context.Context, name string, content io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	if !opts.MustNotExist { // else there is nothing, or nothing happens
		if err := b.keep(ctx, name); err != nil {
			return env.Written{}, err
		}
	}
	return b.Environment.WriteFile(ctx, name, content, opts)
}

// Remove implements env.FileWriter.
func (b *backupEnv) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	if err := b.keep(ctx, name); err != nil {
		return err
	}
	return b.Environment.Remove(ctx, name, opts)
}

// keep keeps what a file holds. What is no file, or cannot be found, is left to the operation.
func (b *backupEnv) keep(ctx context.Context, name string) error {
	f, err := b.Open(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, env.ErrIsDir), errors.Is(err,
		env.ErrNotDir), errors.Is(err, env.ErrNotRegular):
		return nil
	case err != nil:
		return fmt.Errorf("keep a backup: %w", err)
	}
	file, err := b.backups.Keep(name, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep a backup of %s: %w", name, err)
	}
	key := changedName(b.Environment, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.kept[key]; !ok { // the first is what was there before the call
		b.kept[key] = file
	}
	return nil
}

// note notes the backups in changes.
func (b *backupEnv) note(changes []event.FileChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		if changes[i].Kind != event.FileCreated {
			changes[i].Backup = b.kept[changes[i].Path]
		}
	}
}
