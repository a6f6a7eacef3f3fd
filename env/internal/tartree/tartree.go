// Package tartree moves trees of files as tar streams, on both sides through an os.Root, so that no
// name, link or race leads outside the tree.
//
// Kept are contents, permission bits, modification times, symbolic links, empty folders and names
// of any length. Not kept are owners, hard links (each name becomes a file of its own), the times
// of symbolic links, and on unpacking the setuid, setgid and sticky bits, because an archive must
// not be able to hand out its creator's rights.
//
// Unpack treats an archive as hostile. The kernel keeps names inside the root where the system can
// (openat and its kin, by os.Root); what an archive may contain is decided here.
package tartree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Reasons for which an entry of an archive is refused; they come wrapped in an *EntryError.
var (
	// ErrSpecial means that an entry is neither a file nor a folder nor a link.
	ErrSpecial = errors.New("is a device, a pipe or of an unknown kind")
	// ErrInvalidName means that a name cannot be used on this system.
	ErrInvalidName = errors.New("invalid name")
)

// Changes of a file that is being read, which end the stream that it is in.
var (
	// ErrShrunk means that a file became shorter while it was being packed.
	ErrShrunk = errors.New("the file shrank while it was being read")
	// ErrReplaced means that another kind of file took the place of a file between two looks at it.
	ErrReplaced = errors.New("the file was replaced while it was being read")
)

// EntryError tells which entry of an archive could not be unpacked, and why.
type EntryError struct {
	Name string
	Err  error
}

func (e *EntryError) Error() string { return fmt.Sprintf("unpack %q: %v", e.Name, e.Err) }

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// escapes turns the error with which an os.Root refuses to leave its folder, which has no exported
// value, into env.ErrEscapes. Other errors are returned as they are.
func escapes(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Err != nil && strings.Contains(pe.Err.Error(),
		"path escapes from parent") {
		return fmt.Errorf("%w: %w", env.ErrEscapes, err)
	}
	return err
}

// openFolder opens the folder called name, which is in the folder in. A pipe that has taken its
// place is refused and not waited for, which is what naming something in the folder is for.
func openFolder(in *os.Root, name string) (*os.Root, error) {
	root, err := in.OpenRoot(name + "/.")
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return nil, &fs.PathError{Op: pe.Op, Path: name, Err: pe.Err}
	}
	return root, err
}

// maxName is the longest path that a system accepts; an os.Root would make longer ones, folder by
// folder.
const maxName = 4096

// cleanName checks a relative slash-separated name and returns it without redundant parts; "." is
// the root itself. A ".." element is refused even where it would not leave the root, because with
// links its meaning depends on what is there.
func cleanName(name string) (string, error) {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", ErrInvalidName
	}
	if name[0] == '/' {
		return "", env.ErrEscapes
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", env.ErrEscapes
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ".", nil
	}
	clean := strings.Join(parts, "/")
	if !validHere(clean) {
		return "", ErrInvalidName
	}
	return clean, nil
}

// Limit converts a limit whose zero is byDefault and whose negative values mean none into one whose
// zero means none.
func Limit(n, byDefault int64) int64 {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}
