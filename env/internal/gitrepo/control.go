package gitrepo

import (
	"slices"
	"strings"
	"unicode"
)

// controlNames are the names of the directories in which version control systems keep their data,
// with settings that make them run programs.
func controlNames() []string { return []string{DirName, ".hg", ".jj", ".sl", ".svn", ".bzr"} }

// IsControlName reports whether the base name is that of a directory of a version control system,
// in any letter case.
func IsControlName(name string) bool {
	return strings.HasPrefix(name, ".") && slices.ContainsFunc(controlNames(),
		func(c string) bool { return strings.EqualFold(c, name) })
}

// MayBeControlName reports whether some file system takes the base name for that of a directory of
// a version control system: file systems ignore letter case, trailing dots and spaces, text after a
// colon or invisible characters, and have short names.
func MayBeControlName(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return slices.ContainsFunc(controlNames(), func(c string) bool {
		return name == c || name == c[1:]+"~1"
	})
}

// Names in a git directory by which git recognizes it.
const (
	Head      = "HEAD"
	CommonDir = "commondir"
	Objects   = "objects"
	Refs      = "refs"
)

// IsGitDir reports whether git takes a directory for a git directory, bare ones included. Has
// reports which names the directory contains.
func IsGitDir(has func(name string) bool) bool {
	return has(Head) && (has(CommonDir) || has(Objects) && has(Refs))
}

// IsGitDirPart reports whether some file system takes the base name for one that IsGitDir needs.
func IsGitDirPart(name string) bool {
	return slices.ContainsFunc([]string{Head, CommonDir, Objects, Refs},
		func(p string) bool { return strings.EqualFold(p, name) })
}
