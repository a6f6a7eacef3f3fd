package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// Applied tells what Apply did.
type Applied struct {
	// Written are the files and links that were added or changed, Deleted those that were removed;
	// both sorted, relative to the folder.
	Written, Deleted []string
}

// Conflict is a name at which the folder of the host does not allow a change.
type Conflict struct {
	// Name is relative to the folder.
	Name string
	// Err is the reason.
	Err error
}

// Reasons for conflicts, besides env.ErrEscapes for a link that leads out of the folder, and errors
// of the file system.
var (
	// ErrChanged means that a file of the host is not what was uploaded.
	ErrChanged = errors.New("changed since it was uploaded")
	// ErrAppeared means that there is something where a new file should be.
	ErrAppeared = errors.New("appeared since the upload")
	// ErrThroughLink means that a folder on the way to the file is a link.
	ErrThroughLink = errors.New("is behind a link")
	// ErrNotFolder means that what should be a folder on the way to the file is none.
	ErrNotFolder = errors.New("is behind something that is not a folder")
	// ErrUnreadable means that what the environment holds could not be read, or was too large.
	ErrUnreadable = errors.New("cannot be read in the environment, or is too large")
	// ErrGit means that a file is in a folder of git, or would make a folder one.
	ErrGit = errors.New("is part of a folder of git")
	// ErrName means that a name may not be used on a host: it could be taken for a folder of version
	// control, or mean another place.
	ErrName = errors.New("is not a name for a file of the host")
)

// ConflictError means that the folder of the host does not allow the changes. It was not touched.
type ConflictError struct {
	// Conflicts are sorted by name.
	Conflicts []Conflict
}

func (e *ConflictError) Error() string {
	const most = 10
	var b strings.Builder
	fmt.Fprintf(&b, "%d of the changes do not apply", len(e.Conflicts))
	for i, c := range e.Conflicts {
		if i == most {
			fmt.Fprintf(&b, "; and %d more", len(e.Conflicts)-most)
			break
		}
		fmt.Fprintf(&b, "; %q %v", c.Name, c.Err)
	}
	return b.String()
}

// Unwrap returns the reasons.
func (e *ConflictError) Unwrap() []error {
	errs := make([]error, len(e.Conflicts))
	for i, c := range e.Conflicts {
		errs[i] = c.Err
	}
	return errs
}

// Apply makes the changes in the folder of the host. Each file that a change concerns must be what
// was uploaded, and where a file is new there must be none; links must not lead out of the folder,
// and nothing may be Unreadable. All of that is checked before anything is changed; where it does
// not hold, the error is a *ConflictError with all such names.
//
// New contents are written first, to a folder .sandboxagent-apply-… in the folder, and moved into
// place, so that a reader never sees half a file; for a moment one changed file may be missing. A
// file that is changed on the host meanwhile is kept: whatever goes wrong, and when ctx ends, what
// was done is taken back before Apply returns. What cannot be taken back stays in the folder
// beside, which the error then names.
//
// If the program is killed, that folder stays, with all that was taken away and all that is new, by
// name, and a README that says how to take back what was done. A workspace leaves it out, and its
// Notes tell of it.
//
// A file keeps its permissions but for the right to execute, and, where the system allows it, its
// owner. Folders that become empty are removed. A second Apply finds conflicts, unless there is
// nothing to change.
func (c *Changes) Apply(ctx context.Context) (Applied, error) {
	applied, err := c.apply(ctx)
	if err != nil {
		return Applied{}, fmt.Errorf("apply to %s: %w", c.w.dir, err)
	}
	return applied, nil
}

func (c *Changes) apply(ctx context.Context) (_ Applied, err error) {
	root, err := os.OpenRoot(c.w.dir)
	if err != nil {
		return Applied{}, err
	}
	defer func() { _ = root.Close() }()
	t := &transaction{
		root: root, before: c.w.before, after: c.after, hidden: c.w.hidden,
		modes: c.w.modes, buf: make([]byte, 256<<10),
	}
	var conflicts []Conflict
	for _, name := range c.Unreadable() {
		conflicts = append(conflicts, Conflict{name, ErrUnreadable})
	}
	for _, dir := range c.newRepositories(c.names) {
		conflicts = append(conflicts, Conflict{dir, ErrGit})
	}
	if err := t.check(ctx, c.names, conflicts); err != nil {
		return Applied{}, err
	}
	if len(t.edits) == 0 {
		return Applied{}, nil
	}
	if err := t.run(ctx); err != nil {
		return Applied{}, err
	}
	var done Applied
	for _, e := range t.edits {
		if e.now == nil {
			done.Deleted = append(done.Deleted, e.name)
		} else {
			done.Written = append(done.Written, e.name)
		}
	}
	return done, nil
}

// transaction makes changes in a folder, or none.
type transaction struct {
	root          *os.Root
	before, after *snapshot.Snapshot
	edits         []*edit
	hidden        hidden
	modes         map[string]bool
	buf           []byte

	// stage is the folder beside; empty before there is one.
	stage string
	// undo are the steps that take back what was done.
	undo []func() error
}

// edit is one change. What was before, or is now, is nil where there is no file.
type edit struct {
	name     string
	was, now *snapshot.File
	// host is the file of the host that goes away.
	host fs.FileInfo
	// staged is the name of the new file in the stage, kept that of the one that was taken away.
	staged, kept string
	placed       bool
}
