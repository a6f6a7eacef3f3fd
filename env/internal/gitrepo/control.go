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
	name = fold(name)
	return slices.ContainsFunc(controlNames(), func(c string) bool {
		return name == c || name == c[1:]+"~1"
	})
}

// fold returns the lower case of a base name without the parts that some file system ignores. Of
// letters that some file system takes for one, such as s and ſ, it returns the first one.
func fold(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		first := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			first = min(first, f)
		}
		return unicode.ToLower(first)
	}, name)
	name, _, _ = strings.Cut(name, ":")
	return strings.TrimRight(name, ". ")
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

// GitDirPart returns the name that IsGitDir needs for which some file system takes the base name;
// empty if none does.
func GitDirPart(name string) string {
	switch fold(name) {
	case "head":
		return Head
	case CommonDir, Objects, Refs:
		return fold(name)
	}
	return ""
}
