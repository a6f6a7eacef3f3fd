package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// mountTable are the mounts of a process. A file system that is mounted at several places gives its
// files several names, of which a sandbox has to hide, or protect, all.
type mountTable []*mountinfo.Info

// alias is another name of a file or directory.
type alias struct{ name, of string }

// place is a file or directory of a file system, whatever its names are.
type place struct {
	major, minor int
	path         string
}

// readMounts returns the mounts of this process.
func readMounts() (mountTable, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("the mounts of this machine: %w", err)
	}
	return all, nil
}

// files returns the mounts that have files, of which some file system is mounted more than once.
func (t mountTable) files() (found mountTable) {
	type device struct{ major, minor int }
	seen, repeated := make(map[device]bool), false
	for _, m := range t {
		kernel := func(k string) bool { return Within(m.Mountpoint, k) }
		if !filepath.IsAbs(m.Root) || slices.ContainsFunc(kernelDirs, kernel) {
			continue
		}
		found = append(found, m)
		on := device{m.Major, m.Minor}
		repeated = repeated || seen[on]
		seen[on] = true
	}
	if !repeated {
		return nil // no file has two names
	}
	return found
}

// of returns the mount that name, which has no symlinks, is in, or nil.
func (t mountTable) of(name string) (found *mountinfo.Info) {
	for {
		var next *mountinfo.Info
		for _, m := range t {
			inside := found == nil && (m.Parent == m.ID || t.byID(m.Parent) == nil) ||
				found != nil && m.Parent == found.ID && m.ID != found.ID
			if inside && Within(name, m.Mountpoint) &&
				(next == nil || len(m.Mountpoint) < len(next.Mountpoint)) {
				next = m // the mount at the outermost directory covers what is mounted below it
			}
		}
		if next == nil {
			return found
		}
		found = next
	}
}

func (t mountTable) byID(id int) *mountinfo.Info {
	if i := slices.IndexFunc(t, func(m *mountinfo.Info) bool { return m.ID == id }); i >= 0 {
		return t[i]
	}
	return nil
}

// inside returns the path of name in the file system of m.
func inside(m *mountinfo.Info, name string) string {
	return filepath.Join(m.Root, strings.TrimPrefix(name, m.Mountpoint))
}

// aliases returns the other names of name, and those of the directories below it. Names count even
// where another mount covers them: Landlock grants rights to directories, and one that is granted
// in spite of a covered entry is granted under its other names too, with that entry.
func (t mountTable) aliases(name string) (all []alias) {
	m := t.of(name)
	if m == nil {
		return nil
	}
	var shown []string // points of mounts that show name
	var covered []alias
	places := []place{{m.Major, m.Minor, inside(m, name)}}
	for i := 0; i < len(places); i++ {
		at := places[i]
		for _, m := range t {
			path := filepath.Join(m.Mountpoint, strings.TrimPrefix(at.path, m.Root))
			switch {
			case m.Major != at.major || m.Minor != at.minor:
			case !Within(at.path, m.Root):
				if i == 0 && Within(m.Root, at.path) {
					below := strings.TrimPrefix(m.Root, at.path)
					all = append(all, alias{m.Mountpoint, filepath.Join(name, below)})
				}
			default:
				if i == 0 {
					all = append(all, alias{path, name})
				} else {
					covered = append(covered, alias{path, name})
				}
				shown = append(shown, m.Mountpoint)
				// The directory that m covers is, for Landlock, a parent of name too.
				c := t.byID(m.Parent)
				for c != nil && c != t.byID(c.Parent) && c.Mountpoint == m.Mountpoint {
					c = t.byID(c.Parent)
				}
				if c != nil && c.Mountpoint != m.Mountpoint {
					next := place{c.Major, c.Minor, inside(c, m.Mountpoint)}
					if !slices.Contains(places, next) {
						places = append(places, next)
					}
				}
			}
		}
	}
	all = append(all, slices.DeleteFunc(covered, func(a alias) bool {
		return slices.Contains(shown, a.name)
	})...)
	return slices.DeleteFunc(all, func(a alias) bool { return Within(name, a.name) })
}

// names returns the names of a file, whatever covers them.
func (t mountTable) names(at place) (names []string) {
	for _, m := range t {
		if m.Major == at.major && m.Minor == at.minor && Within(at.path, m.Root) {
			names = append(names, filepath.Join(m.Mountpoint, strings.TrimPrefix(at.path, m.Root)))
		}
	}
	return names
}

// withAliases returns names and their aliases.
func (t mountTable) withAliases(names []string) []string {
	all := slices.Clone(names)
	for _, name := range names {
		for _, a := range t.aliases(name) {
			all = append(all, a.name)
		}
	}
	return all
}
