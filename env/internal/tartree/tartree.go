// Package tartree packs directories into tar streams and unpacks them, on both sides through an
// os.Root, so that no name, symlink or race leads out of the directory.
//
// Archives keep contents, permission bits, modification times, symlinks, empty directories and
// names of any length. They do not keep owners, hard links (each name becomes a separate file) and
// times of symlinks. Unpack drops the setuid, setgid and sticky bits, so that an archive cannot
// grant its creator's rights.
//
// Unpack treats an archive as hostile. The kernel keeps names inside the root where the system
// supports it (openat, by os.Root); this package validates the entries.
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
	// ErrSpecial means that an entry is neither a regular file nor a directory nor a link.
	ErrSpecial = errors.New("is a device, a FIFO or of an unknown type")
	// ErrInvalidName means that a name cannot be used on this system.
	ErrInvalidName = errors.New("invalid name")
)

// Changes of a file while Pack reads it, which end the stream.
var (
	// ErrShrunk means that a file became shorter while it was being packed.
	ErrShrunk = errors.New("the file shrank while it was being read")
	// ErrReplaced means that a file of another type replaced a file while it was opened.
	ErrReplaced = errors.New("the file was replaced while it was being read")
)

// EntryError is the error of one entry of an archive.
type EntryError struct {
	Name string
	Err  error
}

func (e *EntryError) Error() string { return fmt.Sprintf("unpack %q: %v", e.Name, e.Err) }

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// escapes wraps the error of an os.Root for a name that escapes it, which has no exported value, in
// env.ErrEscapes. It returns other errors unchanged.
func escapes(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Err != nil && strings.Contains(pe.Err.Error(),
		"path escapes from parent") {
		return fmt.Errorf("%w: %w", env.ErrEscapes, err)
	}
	return err
}

// openDir opens the directory name in the directory in. It opens "name/.", so that a FIFO that has
// replaced the directory is an error and does not block.
func openDir(in *os.Root, name string) (*os.Root, error) {
	root, err := in.OpenRoot(name + "/.")
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return nil, &fs.PathError{Op: pe.Op, Path: name, Err: pe.Err}
	}
	return root, err
}

// maxName is the longest path that a system accepts; an os.Root would make longer ones, directory
// by directory.
const maxName = 4096

// cleanName validates a relative slash-separated name and returns it without redundant elements;
// "." is the root itself. It refuses all ".." elements, whose meaning depends on symlinks.
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

// Limit converts a limit whose zero means byDefault, and negative values no limit, into one whose
// zero means no limit.
func Limit(n, byDefault int64) int64 {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}
