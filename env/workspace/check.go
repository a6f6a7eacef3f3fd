package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// check makes an edit of each name, and returns a ConflictError of the given conflicts and those
// with the state of the host.
func (t *transaction) check(ctx context.Context, names []string, conflicts []Conflict) error {
	removed := make(map[string]bool)
	for _, name := range names {
		e := &edit{name: name}
		if f, ok := t.before.Lookup(name); ok {
			e.was = &f
		}
		if f, ok := t.after.Lookup(name); ok {
			e.now = &f
		}
		removed[name] = e.now == nil
		t.edits = append(t.edits, e)
	}
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.validate(e, removed); err != nil {
			conflicts = append(conflicts, Conflict{e.name, err})
		}
	}
	if len(conflicts) > 0 {
		slices.SortStableFunc(conflicts, func(a, b Conflict) int {
			return strings.Compare(a.Name, b.Name)
		})
		return &ConflictError{conflicts}
	}
	return nil
}

// validate reports why an edit conflicts with the state of the host. Removed files do not, since
// all are removed before files are placed at their names.
func (t *transaction) validate(e *edit, removed map[string]bool) error {
	if !safeName(e.name) {
		return ErrName
	}
	if err := t.validateParents(e.name, removed); err != nil {
		return err
	}
	if e.now != nil && e.now.Mode.Type() == fs.ModeSymlink {
		target, err := t.target(e.name)
		if err != nil {
			return err
		}
		if !staysInside(e.name, target) {
			return fmt.Errorf("%w: it is a symlink to %q", env.ErrEscapes, target)
		}
	}
	fi, err := t.root.Lstat(filepath.FromSlash(e.name))
	if e.was == nil {
		switch {
		case errors.Is(err, fs.ErrNotExist) || belowRemoved(e.name, removed):
			return nil
		case err != nil:
			return err
		case fi.IsDir() && t.becomesEmpty(e.name, removed):
			return nil
		case t.isRemoved(fi, e.name, removed):
			return nil
		}
		return ErrAppeared
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errChanged
	}
	if err != nil {
		return err
	}
	e.host = fi
	return t.matches(e.name, filepath.FromSlash(e.name), fi, *e.was)
}

// validateParents reports a parent of name that is neither a directory, nor missing, nor a removed
// file.
func (t *transaction) validateParents(name string, removed map[string]bool) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		fi, err := t.root.Lstat(filepath.FromSlash(name[:i]))
		switch {
		case errors.Is(err, fs.ErrNotExist) || removed[name[:i]]:
			return nil
		case err != nil:
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%w, %q", ErrThroughSymlink, name[:i])
		case !fi.IsDir():
			return fmt.Errorf("is below %q, which is %w", name[:i], env.ErrNotDir)
		}
		for _, git := range t.excluded {
			if os.SameFile(fi, git) {
				return ErrGit
			}
		}
	}
	return nil
}

// isRemoved reports whether the file name of the host is a removed one, whose name differs in
// letter case only.
func (t *transaction) isRemoved(fi fs.FileInfo, name string, removed map[string]bool) bool {
	for other := range removed {
		if removed[other] && other != name && strings.EqualFold(other, name) {
			old, err := t.root.Lstat(filepath.FromSlash(other))
			return err == nil && os.SameFile(fi, old)
		}
	}
	return false
}

// belowRemoved reports whether a parent of name is a removed file.
func belowRemoved(name string, removed map[string]bool) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if removed[dir] {
			return true
		}
	}
	return false
}

// becomesEmpty reports whether all files below a directory are removed.
func (t *transaction) becomesEmpty(dir string, removed map[string]bool) bool {
	names, err := readDir(t.root, filepath.FromSlash(dir))
	if err != nil {
		return false
	}
	for _, base := range names {
		name := path.Join(dir, base)
		fi, err := t.root.Lstat(filepath.FromSlash(name))
		if err != nil || !removed[name] && (!fi.IsDir() || !t.becomesEmpty(name, removed)) {
			return false
		}
	}
	return true
}

// matches returns errChanged if the file at the path at differs from the one recorded as name.
func (t *transaction) matches(name, at string, fi fs.FileInfo, want snapshot.File) error {
	if fi.Mode().Type() != want.Mode.Type() {
		return errChanged
	}
	if want.Mode.Type() == fs.ModeSymlink {
		target, err := t.root.Readlink(at)
		if err != nil {
			return err
		}
		if sha256.Sum256([]byte(target)) != want.SHA256 {
			return errChanged
		}
		return nil
	}
	if fi.Size() != want.Size {
		return errChanged
	}
	if _, ok := t.modes[name]; !ok && fi.Mode()&0o100 != want.Mode&0o100 {
		return errChanged
	}
	return t.sameContent(at, want)
}

func (t *transaction) sameContent(at string, want snapshot.File) error {
	f, _, err := gitrepo.OpenFile(t.root, at)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{f}, t.buf); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), want.SHA256[:]) {
		return errChanged
	}
	return nil
}

// target returns the target of a new symlink.
func (t *transaction) target(name string) (string, error) {
	content, err := t.after.Content(name)
	if err != nil {
		return "", err
	}
	if content.Size() > maxSmall {
		return "", errors.New("the target of the symlink is too long")
	}
	target, err := io.ReadAll(content)
	return string(target), err
}

// safeName reports whether a name means the same on every host, and no file system takes a part of
// it for a directory of a version control system.
func safeName(name string) bool {
	if name == "." || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return false
	}
	if os.PathSeparator != '/' && strings.ContainsAny(name, `\:`) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if gitrepo.MayBeControlName(part) {
			return false
		}
	}
	return true
}

// staysInside reports whether a symlink, reached through no other symlink, leads to a name in the
// directory, and into no directory of a version control system. It allows only leading "..": the
// name before another one may be a symlink to any directory.
func staysInside(name, target string) bool {
	if target == "" || strings.ContainsRune(target, 0) || path.IsAbs(target) ||
		filepath.IsAbs(target) || filepath.VolumeName(target) != "" {
		return false
	}
	if os.PathSeparator != '/' && strings.ContainsAny(target, `\:`) {
		return false
	}
	depth, named := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			if depth--; named || depth < 0 {
				return false
			}
		case gitrepo.MayBeControlName(part):
			return false
		default:
			named = true
		}
	}
	return true
}
