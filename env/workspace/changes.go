package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// Changes is the difference between what was uploaded and what an environment holds. It does not
// change; its methods may be called concurrently, but for Apply.
type Changes struct {
	w     *Workspace
	after *snapshot.Snapshot
	names []string
	notes []string
}

// maxTakes is how often the state of an environment is taken when new folders of git come up in it.
const maxTakes = 3

// Changes compares the working directory of e, to which the workspace was uploaded, with what was
// uploaded. New files that git ignores are no changes, nor is what version control keeps, wherever
// it is. The caller closes the result.
func (w *Workspace) Changes(ctx context.Context, e env.Environment) (*Changes, error) {
	c, err := w.changes(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("changes of %s: %w", w.dir, err)
	}
	return c, nil
}

func (w *Workspace) changes(ctx context.Context, e env.Environment) (*Changes, error) {
	o := w.snapshotOptions(w.before, nil)
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
				c.notes = append(c.notes, dir+" is a folder of git that was made in the environment: what "+
					"is new in it does not come back")
			}
			return c, nil
		}
		if err := after.Close(); err != nil {
			return nil, err
		}
		made = append(made, more...)
		o.Omit = w.omitsNew(made)
	}
	return nil, fmt.Errorf("new folders of git come up all the time, such as %q", made[len(made)-1])
}

// Notes says, a line each, what does not come back.
func (c *Changes) Notes() []string { return slices.Clone(c.notes) }

// Unreadable returns the names of the files and folders that cannot be read in the environment, or
// are too large, sorted, relative to the folder. Whether they have changed is not known: nothing is
// said about them, nor about what is in such a folder.
func (c *Changes) Unreadable() []string {
	before := c.w.before.Unreadable()
	return slices.DeleteFunc(c.after.Unreadable(),
		func(name string) bool { return slices.Contains(before, name) })
}

// Empty tells whether nothing has changed.
func (c *Changes) Empty() bool { return len(c.names) == 0 }

// WritePatch writes the changes as a patch that git apply understands, as snapshot.WritePatch does.
func (c *Changes) WritePatch(ctx context.Context, to io.Writer) (snapshot.PatchStats, error) {
	return snapshot.WritePatch(ctx, to, c.w.before, c.after)
}

// Close releases what was read. The workspace stays open.
func (c *Changes) Close() error { return c.after.Close() }
