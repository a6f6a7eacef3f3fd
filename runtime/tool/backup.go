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

// Backups keeps the content that files had before a tool changed them.
type Backups interface {
	// Keep stores the content of the file name durably, and returns the path of the copy on the host.
	Keep(name string, content io.Reader) (file string, err error)
}

// backupEnv keeps the content of each file before it is written or removed. If that fails, the file
// is not changed. Changes by commands are not covered.
type backupEnv struct {
	env.Environment
	backups Backups

	mu sync.Mutex
	// kept holds the backups by the names that event.FileChange has.
	kept map[string]string
}

func newBackupEnv(e env.Environment, b Backups) *backupEnv {
	return &backupEnv{Environment: e, backups: b, kept: make(map[string]string)}
}

// WriteFile implements env.FileWriter.
func (b *backupEnv) WriteFile(
	ctx context.Context, name string, content io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	if !opts.MustNotExist { // otherwise no file exists, or nothing is written
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

// keep keeps the content of a regular file. For anything else the operation reports the error.
func (b *backupEnv) keep(ctx context.Context, name string) error {
	f, err := b.Open(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, env.ErrIsDir),
		errors.Is(err, env.ErrNotDir), errors.Is(err, env.ErrNotRegular):
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
	if _, ok := b.kept[key]; !ok { // the first is the content before the call
		b.kept[key] = file
	}
	return nil
}

// addTo adds the paths of the backups to changes, and reports whether there are any.
func (b *backupEnv) addTo(changes []event.FileChange) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		if changes[i].Kind != event.FileCreated {
			changes[i].Backup = b.kept[changes[i].Path]
		}
	}
	return len(b.kept) > 0
}
