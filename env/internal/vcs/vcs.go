// Package vcs knows the folders in which version control programs keep what belongs to them, with
// settings that make them run programs.
package vcs

import (
	"slices"
	"strings"
	"unicode"
)

func folders() []string { return []string{".git", ".hg", ".jj", ".sl", ".svn", ".bzr"} }

// IsFolder reports whether name, which is a name without slashes, is that of such a folder. Case
// does not count.
func IsFolder(name string) bool {
	return strings.HasPrefix(name, ".") && slices.ContainsFunc(folders(),
		func(f string) bool { return strings.EqualFold(f, name) })
}

// MayBeFolder reports whether some file system takes name, which is a name without slashes, for
// that of such a folder. There are those that ignore case, dots and blanks at the end, what follows
// a colon, and characters that cannot be seen, and those that have short names besides.
func MayBeFolder(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return slices.ContainsFunc(folders(), func(f string) bool {
		return name == f ||
			name == f[1:]+"~1"
	})
}
