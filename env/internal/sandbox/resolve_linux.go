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

// systemDirs belong to the whole machine: none is a working directory, though one may contain some.
var systemDirs = []string{
	"/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/nix", "/opt",
	"/root", "/run", "/sbin", "/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/tmp",
}

// kernelDirs contain the kernel's data instead of files.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// resolvePolicy returns the part of p's plan that all mechanisms share.
func resolvePolicy(p Policy, homes []string, getenv func(string) string) (Plan, error) {
	plan := Plan{Network: p.Network, NoUnixSockets: p.NoUnixSockets, policy: p}
	dir, err := resolveExisting(p.Dir)
	if err != nil {
		return Plan{}, err
	}
	mounts, err := readMounts()
	if err != nil {
		return Plan{}, &Error{Err: err}
	}
	links, files := newResolver(), mounts.files()
	homes, err = checkDir(dir, homes, links, files)
	if err != nil {
		return Plan{}, err
	}
	plan.Dir, plan.Write = dir, append(plan.Write, dir)
	for _, name := range p.Write {
		name, err := resolveExisting(name)
		if err != nil {
			return Plan{}, err
		}
		if name == "/" {
			return Plan{}, fmt.Errorf("a sandbox cannot allow changes of /: %w", fs.ErrInvalid)
		}
		plan.named = append(plan.named, name)
	}
	plan.Write = append(plan.Write, plan.named...)
	plan.Write = outermost(plan.Write)
	plan.Caches = plan.sharedCaches(homes, getenv, links)
	for _, name := range plan.Write {
		if i := slices.IndexFunc(kernelDirs, func(k string) bool { return Within(name, k) }); i >= 0 {
			return Plan{}, fmt.Errorf(
				"%s is in %s, in which a sandbox cannot allow changes: %w",
				name,
				kernelDirs[i],
				fs.ErrInvalid,
			)
		}
	}
	for _, name := range p.ReadOnly {
		name = links.prefix(name)
		if slices.Contains(plan.Write, name) {
			return Plan{}, fmt.Errorf(
				"a sandbox cannot allow changes of %s: %w",
				name,
				fs.ErrInvalid,
			)
		}
		if plan.belowWritable(name) {
			plan.protectExisting(name)
			plan.readOnlyInWritable = true
		}
	}
	for _, name := range p.Read {
		name, err := resolveExisting(name)
		if err != nil {
			return Plan{}, err
		}
		plan.Read = append(plan.Read, name)
	}
	plan.Read = outermost(plan.Read)
	for _, name := range plan.Write {
		plan.protectDir(name)
	}
	plan.protectControlFiles(dir)
	plan.protectEnclosing(dir, homes)
	plan.protectWorkDir(p)
	plan.protectAliases(files)
	slices.Sort(plan.ReadOnly)
	plan.ReadOnly = slices.Compact(plan.ReadOnly)
	for _, name := range plan.named {
		if slices.ContainsFunc(plan.ReadOnly, func(dir string) bool {
			return name != dir && Within(name, dir)
		}) {
			plan.Reopened = append(plan.Reopened, name)
		}
	}
	plan.hide(p, homes, getenv, links, files)
	return plan, nil
}

// checkDir rejects a working directory in which a sandbox would protect little. It returns homes
// with their symlinks resolved.
func checkDir(dir string, homes []string, links resolver, files mountTable) ([]string, error) {
	homes = slices.Clone(homes)
	for i, home := range homes {
		homes[i] = links.prefix(home)
		names := []string{homes[i]}
		for _, a := range files.aliases(homes[i]) {
			if a.of == homes[i] {
				names = append(names, a.name)
			}
		}
		if j := slices.IndexFunc(names, func(name string) bool { return Within(name, dir) }); j >= 0 {
			which := "is"
			if dir != names[j] {
				which = "holds"
			}
			return nil, unsuitable(
				"%s %s the home directory %s, where a sandbox would protect little", dir, which, home,
			)
		}
	}
	if dir == "/" || slices.Contains(systemDirs, dir) {
		return nil, unsuitable(
			"%s belongs to the whole machine, so a sandbox that may change it protects nothing", dir,
		)
	}
	if slices.ContainsFunc(kernelDirs, func(k string) bool { return Within(dir, k) }) {
		return nil, unsuitable("a sandbox cannot allow changes in %s", dir)
	}
	return homes, nil
}

// unsuitable returns an *Error about a working directory in which a sandbox would protect little.
func unsuitable(format string, args ...any) error {
	return &Error{
		Err: fmt.Errorf(
			format+" (work in the directory of a project)",
			args...),
	}
}

// resolveExisting returns name without symlinks.
func resolveExisting(name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", &fs.PathError{
			Op:   "resolve",
			Path: name,
			Err:  fmt.Errorf("the name is not absolute: %w", fs.ErrInvalid),
		}
	}
	if !utf8.ValidString(name) { // plans are handed over as JSON
		return "", &Error{
			Err: fmt.Errorf("the name %q is not UTF-8, which a sandbox requires", name),
		}
	}
	real, err := filepath.EvalSymlinks(name)
	var path *fs.PathError
	if errors.As(err, &path) { // its path is that of the missing parent
		err = &fs.PathError{Op: "stat", Path: name, Err: path.Err}
	}
	return real, err
}

// outermost returns names sorted, without those below others.
func outermost(names []string) (out []string) {
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range names {
		if !slices.ContainsFunc(out, func(o string) bool { return Within(name, o) }) {
			out = append(out, name)
		}
	}
	return out
}

// exists reports whether name exists, also as a dangling symlink.
func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// belowWritable reports whether name is below a writable path.
func (p *Plan) belowWritable(name string) bool {
	return slices.ContainsFunc(p.Write, func(w string) bool { return name != w && Within(name, w) })
}

// protectAliases protects the files of a repository under their other names in writable
// directories.
func (p *Plan) protectAliases(files mountTable) {
	missing := slices.Clone(p.Placeholders)
	for _, name := range files.withAliases(p.ReadOnly) {
		if p.mayChange(name) && !slices.Contains(p.ReadOnly, name) {
			p.ReadOnly = append(p.ReadOnly, name)
		}
	}
	for _, name := range missing {
		for _, a := range files.aliases(name) {
			// Directories that mounts cover are among the aliases, and are skipped.
			if filepath.Base(a.name) == filepath.Base(name) && p.mayChange(a.name) &&
				!slices.Contains(p.Placeholders, a.name) {
				p.Placeholders = append(p.Placeholders, a.name)
			}
		}
	}
}

// protectWorkDir makes the working directory read-only if the policy says so. Nothing can be
// created in it then.
func (p *Plan) protectWorkDir(policy Policy) {
	if !policy.DirReadOnly || slices.Contains(p.named, p.Dir) {
		return
	}
	p.DirReadOnly = true
	p.ReadOnly = append(p.ReadOnly, p.Dir)
	for _, names := range []*[]string{&p.Placeholders, &p.MustStayAbsent, &p.Pinned} {
		*names = slices.DeleteFunc(*names, func(name string) bool { return Within(name, p.Dir) })
	}
}

// guardedDirs returns the directories between writable paths and read-only ones below them, and
// those that are pinned. Whoever could rename one could replace it.
func (p *Plan) guardedDirs() []string {
	return append(p.dirsBetween(slices.Concat(p.ReadOnly, p.Placeholders, p.Pinned)), p.Pinned...)
}

// dirsBetween returns the directories between writable paths and names below them, outer ones
// first.
func (p *Plan) dirsBetween(below []string) (names []string) {
	for _, name := range below {
		if !p.belowWritable(name) {
			continue // no command can rename anything in it
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
