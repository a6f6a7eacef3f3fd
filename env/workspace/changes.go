package workspace

import (
	"context"
	"fmt"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

// Changes is the difference between what was uploaded and what an environment holds. It does not change; its methods may
// be called concurrently, but for Apply.
type Changes struct {
	w     *Workspace
	after *env.Snapshot
	names []string
}

// Changes compares the working directory of e, to which the workspace was uploaded, with what was uploaded. New files
// that git ignores are no changes. The caller closes the result.
func (w *Workspace) Changes(ctx context.Context, e env.Environment) (*Changes, error) {
	after, err := env.TakeSnapshot(ctx, e, "", w.snapshotOptions(w.before, nil))
	if err != nil {
		return nil, fmt.Errorf("changes of %s: %w", w.dir, err)
	}
	return &Changes{w: w, after: after, names: env.Differences(w.before, after)}, nil
}

// Empty tells whether nothing has changed.
func (c *Changes) Empty() bool { return len(c.names) == 0 }

// WritePatch writes the changes as a patch that git apply understands, as env.WritePatch does.
func (c *Changes) WritePatch(ctx context.Context, to io.Writer) (env.PatchStats, error) {
	return env.WritePatch(ctx, to, c.w.before, c.after)
}

// Close releases what was read. The workspace stays open.
func (c *Changes) Close() error { return c.after.Close() }
