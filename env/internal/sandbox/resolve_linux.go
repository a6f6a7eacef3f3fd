package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

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
