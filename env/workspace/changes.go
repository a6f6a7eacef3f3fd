package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// Changes is the difference between a workspace and the content of an environment. It is immutable;
// its methods may be called concurrently, except Apply.
type Changes struct {
	w        *Workspace
	after    *snapshot.Snapshot
	names    []string
	warnings []string
}

// maxTakes bounds the number of snapshots if commands make new git directories meanwhile.
const maxTakes = 3

// Changes compares the working directory of e, to which the workspace was uploaded, with the
// workspace. Files that git ignores, unless they were uploaded, and directories of version control
// systems are not part of the changes. The caller closes the result.
func (w *Workspace) Changes(ctx context.Context, e env.Environment) (*Changes, error) {
	return w.changesOr(ctx, e, false)
}

// ChangesSoFar is Changes while the work goes on: it does not read files again that are unchanged
// by their times, as snapshot.Options.TrustTimes has it.
func (w *Workspace) ChangesSoFar(ctx context.Context, e env.Environment) (*Changes, error) {
	return w.changesOr(ctx, e, true)
}

func (w *Workspace) changesOr(
	ctx context.Context, e env.Environment, trustTimes bool,
) (*Changes, error) {
	c, err := w.changes(ctx, e, trustTimes)
	if err != nil {
		return nil, fmt.Errorf("changes of %s: %w", w.dir, err)
	}
	return c, nil
}

func (w *Workspace) changes(
	ctx context.Context, e env.Environment, trustTimes bool,
) (*Changes, error) {
	o := w.snapshotOptions(w.before, nil)
	o.TrustTimes = trustTimes
	var made []string
	for range maxTakes {
		after, err := snapshot.Take(ctx, e, "", o)
		if err != nil {
			return nil, err
		}
		c := &Changes{w: w, after: after, names: snapshot.Differences(w.before, after)}
		more := c.newRepositories(c.names)
		if len(more) == 0 {
			for _, dir := range made {
				c.warnings = append(c.warnings,
					dir+" became a git directory in the environment: new files in it are not brought back")
			}
			return c, nil
		}
		if err := after.Close(); err != nil {
			return nil, err
		}
		made = append(made, more...)
		o.Omit = w.omitsNew(made)
	}
	return nil, fmt.Errorf("commands keep making git directories, such as %q", made[len(made)-1])
}

// Warnings returns one line for each part of the environment that is not brought back.
func (c *Changes) Warnings() []string { return slices.Clone(c.warnings) }

// Unreadable returns the sorted names of the files and directories that cannot be read in the
// environment, or are too large. They may have changed; the patch leaves them out, and the trees of
// such directories.
func (c *Changes) Unreadable() []string {
	before := c.w.before.Unreadable()
	return slices.DeleteFunc(c.after.Unreadable(),
		func(name string) bool { return slices.Contains(before, name) })
}

// Empty reports whether nothing has changed.
func (c *Changes) Empty() bool { return len(c.names) == 0 }

// WritePatch writes the changes as a patch for git apply, as snapshot.WritePatch does.
func (c *Changes) WritePatch(ctx context.Context, to io.Writer) (snapshot.PatchStats, error) {
	return snapshot.WritePatch(ctx, to, c.w.before, c.after)
}

// Snapshot returns the state of the environment, until Close.
func (c *Changes) Snapshot() *snapshot.Snapshot { return c.after }

// Snapshot returns the recorded directory.
func (w *Workspace) Snapshot() *snapshot.Snapshot { return w.before }

// Close releases the recorded contents. The workspace stays open.
func (c *Changes) Close() error { return c.after.Close() }
