package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// Policy says what a confined program may do.
type Policy struct {
	// Dir is the working folder. It may be changed. It is neither the root of the file system nor a home folder.
	Dir string
	// Write are more files and folders that may be changed. They must exist.
	Write []string
	// Keep stays as it is, also where something is that may be changed. It need not exist.
	Keep []string
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
	// SandboxExec is that of macOS.
	SandboxExec Mechanism = "sandbox-exec"
)

// Plan is a policy in terms of this machine. All names are absolute and free of links.
type Plan struct {
	By      Mechanism `json:"by"`
	Network bool      `json:"network,omitempty"`
	// Dir is the working folder.
	Dir string `json:"dir"`
	// Weaker, if set, is why it is not a stronger mechanism.
	Weaker string `json:"weaker,omitempty"`
	// Write are files and folders that may be changed, Keep those below them that may not, and Absent those that must not
	// come into being.
	Write  []string `json:"write"`
	Keep   []string `json:"keep,omitempty"`
	Absent []string `json:"absent,omitempty"`
	// Hidden is what must not be read, but for Read. Some of it may not be there.
	Hidden []string `json:"hidden,omitempty"`
	Read   []string `json:"read,omitempty"`
	// Tree is the working tree of git that the working folder is a part of; empty if it is all of one, or none.
	Tree string `json:"tree,omitempty"`
	// Bare is what of Hidden the mechanism cannot hide where it is.
	Bare []string `json:"bare,omitempty"`
	// Loose is what of a repository cannot be kept, since links lead there.
	Loose []string `json:"loose,omitempty"`
	// Sockets are those of other programs.
	Sockets []string `json:"sockets,omitempty"`
	// Caches are variables, as "NAME=value", that name caches of the user which may be changed.
	Caches []string `json:"caches,omitempty"`
	// Temp is the folder for temporary files.
	Temp string `json:"temp"`
	// Made, if set, is Temp under a name by which it is to be removed in the end.
	Made string `json:"made,omitempty"`
	// Seen is what of this machine the plan was made by.
	Seen Seen `json:"seen"`
	// Entered says that the process has confined itself already.
	Entered bool `json:"entered,omitempty"`

	// Unmade are files that were not there, and with which git would take another repository for this one.
	Unmade []string `json:"unmade,omitempty"`

	program string // that of the mechanism, if it has one
	held    bool   // the policy has something kept where something may be changed
	// locks are repositories whose placeholders for what is absent others must not remove meanwhile.
	locks []*os.File
}

// ErrNone is why nothing is confined on a system without a mechanism.
var ErrNone = fmt.Errorf("there is no sandbox for %s: %w", runtime.GOOS, errors.ErrUnsupported)

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

// system are folders that belong to the whole machine: no project is one of them, though some are below.
var system = []string{
	"/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/nix", "/opt", "/root", "/run", "/sbin", "/srv", "/tmp", "/usr",
	"/usr/local", "/var", "/var/lib", "/var/tmp", "/Users", "/Applications", "/Library", "/System", "/private", "/private/etc", "/private/tmp",
	"/private/var", "/private/var/tmp", "/Volumes",
}

// kernel are folders in which there are no files, but the kernel.
var kernel = []string{"/proc", "/sys", "/dev"}

// resolve returns the plan of p, without what only one mechanism needs. homes and getenv tell where secrets are kept.
func resolve(p Policy, homes []string, getenv func(string) string) (Plan, error) {
	plan := Plan{Network: p.Network}
	dir, err := existing(p.Dir)
	if err != nil {
		return Plan{}, err
	}
	homes = slices.Clone(homes)
	for i, home := range homes {
		homes[i] = place(home)
		if Inside(homes[i], dir) {
			which := "is"
			if dir != homes[i] {
				which = "holds"
			}
			return Plan{}, noProject("%s %s the home folder %s, and a sandbox there would leave the files open that programs start with", dir, which, home)
		}
	}
	if dir == "/" || slices.Contains(system, dir) {
		return Plan{}, noProject("%s belongs to the whole machine, and a sandbox there would leave open what it is for", dir)
	}
	if slices.ContainsFunc(kernel, func(k string) bool { return Inside(dir, k) }) {
		return Plan{}, noProject("a sandbox lets nothing be changed in %s", dir)
	}
	plan.Dir, plan.Write = dir, append(plan.Write, dir)
	for _, name := range p.Write {
		name, err := existing(name)
		if err != nil {
			return Plan{}, err
		}
		if name == "/" {
			return Plan{}, fmt.Errorf("a sandbox in which / may be changed is none: %w", fs.ErrInvalid)
		}
		plan.Write = append(plan.Write, name)
	}
	plan.Write = outermost(plan.Write)
	plan.Caches = plan.lent(homes, getenv)
	for _, name := range plan.Write {
		if i := slices.IndexFunc(kernel, func(k string) bool { return Inside(name, k) }); i >= 0 {
			return Plan{}, fmt.Errorf("%s is in %s, in which a sandbox lets nothing be changed: %w", name, kernel[i], fs.ErrInvalid)
		}
	}
	for _, name := range p.Keep {
		name = place(name)
		if slices.Contains(plan.Write, name) {
			return Plan{}, fmt.Errorf("%s has to stay as it is: a sandbox in which it may be changed is none: %w", name, fs.ErrInvalid)
		}
		if plan.below(name) {
			plan.keep(name)
			plan.held = true
		}
	}
	for _, name := range p.Read {
		name, err := existing(name)
		if err != nil {
			return Plan{}, err
		}
		plan.Read = append(plan.Read, name)
	}
	plan.Read = outermost(plan.Read)
	for _, name := range append(secrets(homes, getenv), p.Hide...) {
		if name = place(name); hideable(name) {
			plan.Hidden = append(plan.Hidden, name)
		}
	}
	plan.Hidden = slices.DeleteFunc(outermost(plan.Hidden), func(name string) bool {
		return name == "/" || slices.ContainsFunc(plan.Read, func(r string) bool { return Inside(name, r) })
	})
	for _, name := range plan.Write {
		plan.protect(name)
	}
	plan.surround(dir, homes)
	return plan, nil
}

// noProject tells that a sandbox would be of little use in a folder.
func noProject(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format+"; work in a folder of a project, or without a sandbox", args...)}
}

// existing returns name without links.
func existing(name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", &fs.PathError{Op: "confine", Path: name, Err: fmt.Errorf("the name is not absolute: %w", fs.ErrInvalid)}
	}
	if !utf8.ValidString(name) { // plans are handed over as JSON
		return "", &Error{Err: fmt.Errorf("the name %q is no UTF-8, and a sandbox takes no others", name)}
	}
	real, err := realName(name)
	var path *fs.PathError
	if errors.As(err, &path) { // which is that of what is missing on the way there
		err = &fs.PathError{Op: "stat", Path: name, Err: path.Err}
	}
	return real, err
}

// place returns a name without links, as far as there is something of the name.
func place(name string) string {
	for dir, rest := name, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := realName(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return name
		}
	}
}

// hideable reports whether a name is that of a file or a folder, or of neither yet: HISTFILE may be /dev/null.
func hideable(name string) bool {
	info, err := os.Lstat(name)
	return !slices.ContainsFunc(kernel, func(k string) bool { return Inside(name, k) }) && (err != nil || info.IsDir() || info.Mode().IsRegular())
}

// Inside reports whether name is dir or below it. Both are absolute and clean.
func Inside(name, dir string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

// outermost returns names in order, without those below others.
func outermost(names []string) (out []string) {
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range names {
		if !slices.ContainsFunc(out, func(o string) bool { return Inside(name, o) }) {
			out = append(out, name)
		}
	}
	return out
}

// exists reports whether there is something of a name, be it a link that leads nowhere.
func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func isFolder(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// below reports whether a name is below one that may be changed.
func (p *Plan) below(name string) bool {
	return slices.ContainsFunc(p.Write, func(w string) bool { return name != w && Inside(name, w) })
}

// pinned returns the folders between those that may be changed and what is to stay as it is in them: whoever could rename
// one could put another in its place.
func (p *Plan) pinned() []string { return p.between(slices.Concat(p.Keep, p.Absent)) }

// between returns the folders between those that may be changed and names below them, the outer ones first.
func (p *Plan) between(below []string) (names []string) {
	for _, name := range below {
		if !p.below(name) {
			continue // nobody can rename anything there
		}
		for dir := filepath.Dir(name); !slices.Contains(p.Write, dir); dir = filepath.Dir(dir) {
			if !slices.Contains(names, dir) {
				names = append(names, dir)
			}
		}
	}
	slices.Sort(names)
	return names
}
