package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Policy lists the rights of a helper in a sandbox. Paths are absolute.
type Policy struct {
	// Dir is the writable working directory: neither the root nor a home directory.
	Dir string
	// Write are further writable files and directories, which exist.
	Write []string
	// ReadOnly are paths that stay read-only below writable ones. They may be missing.
	ReadOnly []string
	// Read are existing paths that stay readable although their parents are hidden.
	Read []string
	// Hide are hidden in addition to home directories and the usual files of secrets. They may be
	// missing.
	Hide []string
	// Network allows the network of the machine.
	Network bool
	// NoUnixSockets refuses unix sockets except connected pairs.
	NoUnixSockets bool
	// GitReadOnly keeps the repository of Dir read-only as a whole, and not only its hooks and
	// settings.
	GitReadOnly bool
	// DirReadOnly keeps Dir read-only, but what is in Write.
	DirReadOnly bool
}

// Mechanism enforces a policy.
type Mechanism string

// Mechanisms, the stronger one first.
const (
	Bubblewrap Mechanism = "bubblewrap"
	Landlock   Mechanism = "Landlock"
)

// Plan is a policy resolved on this machine. Paths are absolute and have no symlinks.
type Plan struct {
	By      Mechanism `json:"by"`
	Network bool      `json:"network,omitempty"`
	// NoUnixSockets refuses unix sockets except connected pairs.
	NoUnixSockets bool `json:"no_unix,omitempty"`
	// Dir is the working directory.
	Dir string `json:"dir"`
	// DirReadOnly keeps Dir read-only, if the mechanism is bubblewrap.
	DirReadOnly bool `json:"dir_read_only,omitempty"`
	// WhyWeaker, if set, is the reason why a stronger mechanism is not used.
	WhyWeaker string `json:"weaker,omitempty"`
	// Write are the writable files and directories. Below them, ReadOnly cannot be changed, and
	// Placeholders cannot be created.
	Write        []string `json:"write"`
	ReadOnly     []string `json:"keep,omitempty"`
	Placeholders []string `json:"absent,omitempty"`
	// Reopened are paths in directories of ReadOnly that are writable, for the policy names them.
	Reopened []string `json:"reopened,omitempty"`
	// Hidden are unreadable, except for parts of them in Read and Write; the innermost path decides.
	// Some may be missing.
	Hidden []string `json:"hidden,omitempty"`
	Read   []string `json:"read,omitempty"`
	// Links are the targets of symlinks in hidden directories that lead to readable ones, by name.
	Links map[string]string `json:"links,omitempty"`
	// OpenHomes are home directories of which only the secrets are hidden, since they contain more
	// than a home.
	OpenHomes []string `json:"open,omitempty"`
	// GitDirs are the elements of ReadOnly that are whole git directories.
	GitDirs []string `json:"git,omitempty"`
	// Pinned are writable directories that cannot be removed or renamed.
	Pinned []string `json:"pinned,omitempty"`
	// WorkTree is the git working tree that Dir is a proper part of, or "".
	WorkTree string `json:"tree,omitempty"`
	// Exposed are the elements of Hidden that the mechanism cannot hide.
	Exposed []string `json:"bare,omitempty"`
	// Unprotected are paths of a repository that symlinks keep from being protected.
	Unprotected []string `json:"loose,omitempty"`
	// Sockets are the sockets of other programs.
	Sockets []string `json:"sockets,omitempty"`
	// Caches are variables, as "NAME=value", of the user's caches in writable directories.
	Caches []string `json:"caches,omitempty"`
	// Temp is the directory for temporary files.
	Temp string `json:"temp"`
	// OwnTemp, if set, is the path by which Tidy removes Temp.
	OwnTemp string `json:"made,omitempty"`
	// Observed is the state of the machine that the plan depends on.
	Observed Observed `json:"seen"`
	// Entered is set when the process has restricted itself already.
	Entered bool `json:"entered,omitempty"`

	// MustStayAbsent are missing files that would redirect git to another repository.
	MustStayAbsent []string `json:"unmade,omitempty"`

	homes              []string // hidden home directories
	policy             Policy
	named              []string // the elements of the policy's Write, without symlinks
	submodules         int      // those that the plan protects, or leaves
	program            string   // that of the mechanism, if it has one
	readOnlyInWritable bool     // the policy has something kept where something may be changed
	socketDirs         []string // directories that are hidden in place of sockets in them
	// locks keep other plans from removing shared placeholders.
	locks []*os.File
}

// ErrUnsupported means that this system has no sandbox.
var ErrUnsupported = fmt.Errorf("%s has no sandbox: %w", systemName(), errors.ErrUnsupported)

func systemName() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return runtime.GOOS
}

// Error is the reason why a helper does not run in a sandbox.
type Error struct {
	// By is the mechanism, or "" if no mechanism could work.
	By  Mechanism
	Err error
}

func (e *Error) Error() string {
	if e.By == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %s", e.By, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Within reports whether name is dir or below it. Both are absolute and clean.
func Within(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// Observed is the state of the machine that a plan depends on. Bubblewrap takes names, which may
// refer to other files by then; Enter compares.
type Observed struct {
	// Files are the writable paths and the mounts below them, by name.
	Files map[string]File `json:"files,omitempty"`
	// Mounts are the mounts below writable paths.
	Mounts []Mount `json:"mounts,omitempty"`
	// Namespaces are those outside, as their symlinks in /proc read, by kind.
	Namespaces map[string]string `json:"namespaces,omitempty"`
}

// File identifies a file or directory.
type File struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Mount is a part of a file system and its mount point.
type Mount struct {
	Point string `json:"point"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Root  string `json:"root"`
}

// Files are the descriptors that Command passes to a program, which does not pass them on. Each may
// be nil.
type Files struct {
	// Life is closed when the program has ended.
	Life *os.File
	// Parent is a stream to the helper outside. Socket is the socket that the program serves.
	Parent, Socket *os.File
}
