package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// Applied is the result of Apply.
type Applied struct {
	// Written are the files and symlinks that were added or changed, Deleted those that were removed;
	// both sorted, relative to the directory.
	Written, Deleted []string
}

// Conflict is a change that the state of the directory on the host does not allow.
type Conflict struct {
	// Name is relative to the directory.
	Name string
	// Err is the reason.
	Err error
}

// Reasons for conflicts, besides env.ErrChanged for a file of the host that differs from the
// uploaded one, env.ErrEscapes for a symlink that leads out of the directory, env.ErrNotDir for a
// parent that is another file, and errors of the file system.
var (
	// ErrAppeared means that a file of the host has the name of a new one.
	ErrAppeared = errors.New("appeared since the upload")
	// ErrThroughSymlink means that a parent directory is a symlink.
	ErrThroughSymlink = errors.New("is below a symlink")
	// ErrUnreadable means that the file could not be read in the environment, or is too large.
	ErrUnreadable = errors.New("cannot be read in the environment, or is too large")
	// ErrGit means that a file is in a git directory, or would make a directory one.
	ErrGit = errors.New("is part of a git directory")
	// ErrName means that a name is not allowed on the host: a file system could take it for a
	// directory of a version control system, or for another name.
	ErrName = errors.New("is not an allowed name on the host")
)

// errChanged is env.ErrChanged in the words of an upload.
var errChanged error = changedError{}

type changedError struct{}

func (changedError) Error() string { return "changed since it was uploaded" }

// Unwrap returns env.ErrChanged.
func (changedError) Unwrap() error { return env.ErrChanged }

// ConflictError means that the state of the directory on the host does not allow the changes. Apply
// has changed nothing.
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

// Apply makes the changes in the directory of the host, all or none. Each changed file must equal
// the uploaded one, a new file must not exist, symlinks must not lead out of the directory, and
// nothing may be Unreadable. Apply checks all of that before it changes anything, and returns a
// *ConflictError with all names that do not pass.
//
// Apply writes new contents to a stage, a directory .sandboxagent-apply-… in the directory, and
// renames them into place, so that a reader never sees half a file; for a moment one changed file
// may be missing. A file that changes on the host meanwhile is kept: after any failure, and if ctx
// ends, Apply undoes its changes before it returns. Files that it cannot restore stay in the stage,
// which the error names.
//
// If the program is killed, the stage stays, with all removed and all new files by name, and a
// README with the steps to undo the changes. A workspace excludes it and warns about it; with
// Options.StateDir the warning names a copy of the steps that nobody else can have written.
//
// A file keeps its permissions, except the right to execute, and, where the system allows it, its
// owner. Directories that become empty are removed. A second Apply is a conflict, unless the
// changes are empty.
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
		root: root, before: c.w.before, after: c.after, excluded: c.w.excluded,
		modes: c.w.modes, records: c.w.records(true), buf: make([]byte, 256<<10),
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

// transaction makes all edits in a directory, or none.
type transaction struct {
	root          *os.Root
	before, after *snapshot.Snapshot
	edits         []*edit
	excluded      excludedDirs
	modes         map[string]bool
	buf           []byte

	// stage is the directory for new and removed files; empty until it is made.
	stage string
	// records is the directory for the record of the stage, recordFile the record; both may be empty.
	records, recordFile string
	// undo are the functions that revert the steps made so far.
	undo []func() error
}

// edit is one change. Of an added file was is nil, of a removed one now is.
type edit struct {
	name     string
	was, now *snapshot.File
	// host is the file of the host that is replaced or removed.
	host fs.FileInfo
	// staged is the path of the new file in the stage, kept that of the old one.
	staged, kept string
	placed       bool
}
