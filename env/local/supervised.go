package local

import (
	"context"
	"io"
	"io/fs"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// Helper says which program supervises. The zero value is the one that "make build" embeds, where there is one for this
// platform; it is kept in the user's cache directory.
type Helper struct {
	// Path is a program that calls sandboxd.Main, such as the caller's own one.
	Path string
	// Args are arguments of that program that come before those that it hands to sandboxd.Main.
	Args []string
}

// HelperError means that there is no helper to be had: none is embedded for this platform, it cannot be stored, the system
// does not execute it, perhaps since the file system is mounted so, or it is another program. Another Helper may do.
type HelperError struct {
	Err error
}

func (e *HelperError) Error() string { return "local: helper: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HelperError) Unwrap() error { return e.Err }

// SupervisedEnvironment is this machine by way of a process of its own, the helper. It starts the commands, finds more of
// what they leave behind than the caller's process could, and kills it all when the caller's process is gone, however
// that ended. If the helper itself ends before Close, calls give env.ErrGone, and env.ErrUnknownOutcome for a command that
// may have run. It is made by Supervised.
type SupervisedEnvironment struct {
	client  *wire.Client
	helper  *helperProcess
	closing sync.Once
}

var (
	_ env.Environment = (*SupervisedEnvironment)(nil)
	_ env.Walker      = (*SupervisedEnvironment)(nil)
	_ env.Searcher    = (*SupervisedEnvironment)(nil)
	_ env.MultiReader = (*SupervisedEnvironment)(nil)
)

// Exec implements env.Environment.
func (e *SupervisedEnvironment) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	return e.client.Exec(ctx, cmd)
}

// Open implements env.Environment.
func (e *SupervisedEnvironment) Open(ctx context.Context, name string) (fs.File, error) {
	return e.client.Open(ctx, name)
}

// Stat implements env.Environment.
func (e *SupervisedEnvironment) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return e.client.Stat(ctx, name)
}

// ReadDir implements env.Environment.
func (e *SupervisedEnvironment) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	return e.client.ReadDir(ctx, name)
}

// WriteFile implements env.Environment.
func (e *SupervisedEnvironment) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	return e.client.WriteFile(ctx, name, r, opts)
}

// Remove implements env.Environment.
func (e *SupervisedEnvironment) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	return e.client.Remove(ctx, name, opts)
}

// CopyIn implements env.Environment.
func (e *SupervisedEnvironment) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	return e.client.CopyIn(ctx, dir, archive)
}

// CopyOut implements env.Environment.
func (e *SupervisedEnvironment) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	return e.client.CopyOut(ctx, dir, names...)
}

// Walk implements env.Walker.
func (e *SupervisedEnvironment) Walk(
	ctx context.Context, root string, opts env.WalkOptions, fn func(env.Entry) error,
) error {
	return e.client.Walk(ctx, root, opts, fn)
}

// Glob implements env.Searcher.
func (e *SupervisedEnvironment) Glob(ctx context.Context, opts env.GlobOptions) ([]env.Entry, error) {
	return e.client.Glob(ctx, opts)
}

// Grep implements env.Searcher.
func (e *SupervisedEnvironment) Grep(
	ctx context.Context, opts env.GrepOptions, fn func(env.GrepMatch) error,
) (env.GrepStats, error) {
	return e.client.Grep(ctx, opts, fn)
}

// ReadFiles implements env.MultiReader.
func (e *SupervisedEnvironment) ReadFiles(ctx context.Context, names []string, limit int64) ([]env.FileContent, error) {
	return e.client.ReadFiles(ctx, names, limit)
}

// Info implements env.Environment.
func (e *SupervisedEnvironment) Info() env.Info { return e.client.Info() }

// Kill kills everything that the environment started, without any grace, and returns when it is dead. It is for a program
// that has to end at once: commands in progress end with SIGKILL, and Close remains to be called.
func (e *SupervisedEnvironment) Kill() error { return e.client.Kill() }
