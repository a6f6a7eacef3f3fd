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
	"github.com/sandboxagent/sandboxagent/env/internal/vcs"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// check turns names into edits and makes sure that the folder allows them all, beside conflicts
// that are known.
func (t *transaction) check(ctx context.Context, names []string, conflicts []Conflict) error {
	goes := make(map[string]bool)
	for _, name := range names {
		e := &edit{name: name}
		if f, ok := t.before.Lookup(name); ok {
			e.was = &f
		}
		if f, ok := t.after.Lookup(name); ok {
			e.now = &f
		}
		goes[name] = e.now == nil
		t.edits = append(t.edits, e)
	}
	for _, e := range t.edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.allows(e, goes); err != nil {
			conflicts = append(conflicts, Conflict{e.name, err})
		}
	}
	if len(conflicts) > 0 {
		slices.SortStableFunc(conflicts, func(a, b Conflict) int {
			return strings.Compare(a.Name,
				b.Name)
		})
		return &ConflictError{conflicts}
	}
	return nil
}

// allows tells why an edit cannot be made. What goes away, goes before anything comes.
func (t *transaction) allows(e *edit, goes map[string]bool) error {
	if !safeName(e.name) {
		return ErrName
	}
	if err := t.parents(e.name, goes); err != nil {
		return err
	}
	if e.now != nil && e.now.Mode.Type() == fs.ModeSymlink {
		target, err := t.target(t.after, e.name)
		if err != nil {
			return err
		}
		if !staysInside(e.name, target) {
			return fmt.Errorf("%w: it is a link to %q", env.ErrEscapes, target)
		}
	}
	fi, err := t.root.Lstat(filepath.FromSlash(e.name))
	if e.was == nil {
		switch {
		case errors.Is(err, fs.ErrNotExist) || behindFile(e.name, goes):
			return nil
		case err != nil:
			return err
		case fi.IsDir() && t.empties(e.name, goes):
			return nil
		case t.goesAway(fi, e.name, goes):
			return nil
		}
		return ErrAppeared
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	e.host = fi
	return t.matches(e.name, filepath.FromSlash(e.name), fi, *e.was)
}

// parents makes sure that the folders on the way to a name are folders, or are not there, or are
// files that go away.
func (t *transaction) parents(name string, goes map[string]bool) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		fi, err := t.root.Lstat(filepath.FromSlash(name[:i]))
		switch {
		case errors.Is(err, fs.ErrNotExist) || goes[name[:i]]:
			return nil
		case err != nil:
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%w, %q", ErrThroughLink, name[:i])
		case !fi.IsDir():
			return fmt.Errorf("%w, %q", ErrNotFolder, name[:i])
		}
		for _, git := range t.hidden {
			if os.SameFile(fi, git) {
				return ErrGit
			}
		}
	}
	return nil
}

// goesAway tells whether what has a name on the host is a file that goes away under another one,
// which differs in the case of letters.
func (t *transaction) goesAway(fi fs.FileInfo, name string, goes map[string]bool) bool {
	for other := range goes {
		if goes[other] && other != name && strings.EqualFold(other, name) {
			old, err := t.root.Lstat(filepath.FromSlash(other))
			return err == nil && os.SameFile(fi, old)
		}
	}
	return false
}

// behindFile tells whether what stands where a folder of name should be goes away.
func behindFile(name string, goes map[string]bool) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if goes[dir] {
			return true
		}
	}
	return false
}

// empties tells whether a folder has nothing in it but what goes away.
func (t *transaction) empties(dir string, goes map[string]bool) bool {
	names, err := readDir(t.root, filepath.FromSlash(dir))
	if err != nil {
		return false
	}
	for _, base := range names {
		name := path.Join(dir, base)
		fi, err := t.root.Lstat(filepath.FromSlash(name))
		if err != nil || !goes[name] && (!fi.IsDir() || !t.empties(name, goes)) {
			return false
		}
	}
	// An empty folder may go, except where its being there says something.
	return true
}

// matches tells whether a file of the host, which may be elsewhere by now, is what was recorded
// under a name.
func (t *transaction) matches(name, at string, fi fs.FileInfo, want snapshot.File) error {
	if fi.Mode().Type() != want.Mode.Type() {
		return ErrChanged
	}
	if want.Mode.Type() == fs.ModeSymlink {
		target, err := t.root.Readlink(at)
		if err != nil {
			return err
		}
		if sha256.Sum256([]byte(target)) != want.SHA256 {
			return ErrChanged
		}
		return nil
	}
	if fi.Size() != want.Size {
		return ErrChanged
	}
	if _, ok := t.modes[name]; !ok && fi.Mode()&0o100 != want.Mode&0o100 {
		return ErrChanged
	}
	return t.sameContent(at, want)
}

func (t *transaction) sameContent(at string, want snapshot.File) error {
	f, _, err := openFile(t.root, at)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{f}, t.buf); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), want.SHA256[:]) {
		return ErrChanged
	}
	return nil
}

// target returns what a link in a snapshot points to.
func (t *transaction) target(s *snapshot.Snapshot, name string) (string, error) {
	content, err := s.Content(name)
	if err != nil {
		return "", err
	}
	if content.Size() > maxSmall {
		return "", errors.New("the target of the link is too long")
	}
	target, err := io.ReadAll(content)
	return string(target), err
}

// safeName tells whether a name means the same on every host, and no part of it may be taken for a
// folder of version control.
func safeName(name string) bool {
	if name == "." || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) {
		return false
	}
	if os.PathSeparator != '/' && strings.ContainsAny(name, `\:`) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if vcs.MayBeFolder(part) {
			return false
		}
	}
	return true
}

// staysInside tells whether a link, reached through no other link, leads to a name in the folder,
// and to no folder of version control. After a name, a ".." may be anywhere, because the name may
// be a link; so only leading ones are allowed.
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
		case vcs.MayBeFolder(part):
			return false
		default:
			named = true
		}
	}
	return true
}
