package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Policy says what a confined program may do.
type Policy struct {
	// Dir is the working folder. It may be changed. It is neither the root of the file system nor a home folder.
	Dir string
	// Write are more files and folders that may be changed. They must exist.
	Write []string
	// Keep stays as it is, also where something is that may be changed. It need not exist.
	ReadOnly []string
	// Read is what may be read although it would be hidden. It must exist.
	Read []string
	// Hide is hidden in addition to the places where secrets are usually kept. It need not exist.
	Hide []string
	// Network is whether the network of the machine may be used.
	Network bool
}

// A Mechanism enforces a policy.
type Mechanism string

// Mechanisms, the stronger one first.
const (
	Bubblewrap Mechanism = "bubblewrap"
	Landlock   Mechanism = "Landlock"
)

// Plan is a policy in terms of this machine. All names are absolute and free of links.
type Plan struct {
	By      Mechanism `json:"by"`
	Network bool      `json:"network,omitempty"`
	// Dir is the working folder.
	Dir string `json:"dir"`
	// Weaker, if set, is why it is not a stronger mechanism.
	WhyWeaker string `json:"weaker,omitempty"`
	// Write are files and folders that may be changed, Keep those below them that may not, and Absent those that must not
	// come into being.
	Write        []string `json:"write"`
	ReadOnly     []string `json:"keep,omitempty"`
	Placeholders []string `json:"absent,omitempty"`
	// Hidden is what must not be read, but for Read. Some of it may not be there.
	Hidden []string `json:"hidden,omitempty"`
	Read   []string `json:"read,omitempty"`
	// Tree is the working tree of git that the working folder is a part of; empty if it is all of one, or none.
	WorkTree string `json:"tree,omitempty"`
	// Bare is what of Hidden the mechanism cannot hide where it is.
	Exposed []string `json:"bare,omitempty"`
	// Loose is what of a repository cannot be kept, since links lead there.
	Unprotected []string `json:"loose,omitempty"`
	// Sockets are those of other programs.
	Sockets []string `json:"sockets,omitempty"`
	// Caches are variables, as "NAME=value", that name caches of the user which may be changed.
	Caches []string `json:"caches,omitempty"`
	// Temp is the folder for temporary files.
	Temp string `json:"temp"`
	// Made, if set, is Temp under a name by which it is to be removed in the end.
	OwnTemp string `json:"made,omitempty"`
	// Seen is what of this machine the plan was made by.
	Observed Observed `json:"seen"`
	// Entered says that the process has confined itself already.
	Entered bool `json:"entered,omitempty"`

	// Unmade are files that were not there, and with which git would take another repository for this one.
	MustStayAbsent []string `json:"unmade,omitempty"`

	program            string // that of the mechanism, if it has one
	readOnlyInWritable bool   // the policy has something kept where something may be changed
	// locks are repositories whose placeholders for what is absent others must not remove meanwhile.
	locks []*os.File
}

// ErrNone means that this system has no sandbox.
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

// Error says why a program is not confined.
type Error struct {
	// By is the mechanism; empty where it is no matter of one.
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

// Inside reports whether name is dir or below it. Both are absolute and clean.
func Within(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

// Seen is what of this machine a plan was made by. Bubblewrap is told names, and names may stand for something else by
// then: what has become of them is compared from inside.
type Observed struct {
	// Files are what may be changed, and what is mounted below it, by their names.
	Files map[string]File `json:"files,omitempty"`
	// Mounts are those below what may be changed.
	Mounts []Mount `json:"mounts,omitempty"`
	// Namespaces are those outside, as links to them read, by their kinds.
	Namespaces map[string]string `json:"namespaces,omitempty"`
}

// File is which file or folder something is.
type File struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Mount is a part of a file system, and where it is seen.
type Mount struct {
	Point string `json:"point"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Root  string `json:"root"`
}

// Handed are files that a program gets that Command starts. What it starts itself does not get them. All may be nil.
type Files struct {
	// Life is closed when the program has ended, however that was.
	Life *os.File
	// Outside is a stream between the two sides, and Socket is for them to agree upon.
	Parent, Socket *os.File
}
