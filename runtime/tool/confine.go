package tool

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
)

// maxLinks bounds the symlinks that a name may lead through.
const maxLinks = 40

// root confines names to the working directory of an environment, also where symlinks lead out of
// it.
//
// It resolves a name before the file is used, because an environment has no call that does both: a
// process that replaces a directory by a symlink between the two can still redirect a write. So
// root stops a mistaken patch, but not a hostile program in the environment, which is the task of
// the environment's isolation.
type root struct {
	e env.Environment
	// dir is the working directory.
	dir string
	// fold reports Windows names: case is ignored, and \ is a separator.
	fold bool
}

func rootOf(e env.Environment) root {
	info := e.Info()
	return root{e: e, dir: path.Clean(info.WorkDir), fold: info.OS == "windows"}
}

// location is the file that a name leads to.
type location struct {
	// name is relative to the working directory and leads through no symlinks.
	name string
	// info describes the file; nil if it does not exist.
	info fs.FileInfo
}

// rel returns name relative to the working directory, without resolving symlinks.
func (r root) rel(name string) (string, *Error) {
	clean := name
	if r.fold {
		clean = strings.ReplaceAll(name, `\`, "/")
	}
	if name == "" || strings.ContainsRune(name, 0) {
		return "", errorf(KindValidation, "%s is not a file name", shown(name))
	}
	if path.IsAbs(clean) || r.hasDrive(clean) {
		below, ok := r.below(path.Clean(clean))
		if !ok {
			return "", r.outside(name)
		}
		clean = below
	}
	if r.fold && strings.Contains(clean, ":") {
		return "", errorf(KindValidation, "%s is not a file name here", shown(name))
	}
	if clean = path.Clean(clean); clean == ".." || strings.HasPrefix(clean, "../") {
		return "", r.outside(name)
	}
	return clean, nil
}

func (r root) hasDrive(name string) bool {
	return r.fold && len(name) >= 2 && name[1] == ':'
}

// below returns the absolute name clean relative to the working directory, if it is below it.
func (r root) below(clean string) (string, bool) {
	dir := strings.TrimSuffix(r.dir, "/")
	same := len(clean) >= len(dir) && clean[:len(dir)] == dir
	if r.fold && len(clean) >= len(dir) {
		same = strings.EqualFold(clean[:len(dir)], dir)
	}
	if !same {
		return "", false
	}
	rest := clean[len(dir):]
	if rest == "" {
		return ".", true
	}
	return strings.TrimLeft(rest, "/"), rest[0] == '/'
}

func (r root) outside(name string) *Error {
	return errorf(KindPermission, "%s leads out of the working directory %s; a patch changes only "+
		"files below it", shown(name), shown(r.dir))
}

// resolve returns the location of rel, which [root.rel] has returned. If follow is set, it also
// follows a symlink at the end.
func (r root) resolve(ctx context.Context, rel string, follow bool) (location, error) {
	at := ""
	todo := strings.Split(rel, "/")
	for links := 0; len(todo) > 0; {
		element := todo[0]
		todo = todo[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return location{}, r.outside(rel)
			}
			at = strings.TrimPrefix(path.Dir("/"+at), "/")
			continue
		}
		name := path.Join(at, element)
		info, err := r.e.Lstat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return r.missing(name, todo, rel)
		}
		if err != nil {
			return location{}, err
		}
		last := !slices.ContainsFunc(todo, func(s string) bool { return s != "" && s != "." })
		if info.Mode()&fs.ModeSymlink == 0 || last && !follow {
			at = name
			if last {
				return location{name: at, info: info}, nil
			}
			if !info.IsDir() {
				return location{}, errorf(KindOther, "resolve %s: %s is not a directory", shown(rel), shown(at))
			}
			continue
		}
		if links++; links > maxLinks {
			return location{}, errorf(KindOther, "resolve %s: too many symlinks", shown(rel))
		}
		target, err := r.e.ReadLink(ctx, name)
		if err != nil {
			return location{}, err
		}
		if path.IsAbs(target) || r.hasDrive(target) {
			below, ok := r.below(path.Clean(target))
			if !ok {
				return location{}, r.outside(rel)
			}
			at, target = "", below
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return location{}, errorf(KindOther, "%s is the working directory, not a file", shown(rel))
}

// missing returns the location of a name of which at is the first part that does not exist.
func (r root) missing(at string, todo []string, rel string) (location, error) {
	if slices.Contains(todo, "..") {
		return location{}, errorf(KindNotFound, "resolve %s: %s does not exist", shown(rel), shown(at))
	}
	return location{name: path.Join(append([]string{at}, todo...)...)}, nil
}

// checkSpelling reports an error if the environment has the existing file name under another
// spelling, because it ignores case or the form of characters. A patch would take the two names for
// two files, and a move from one to the other would remove the file.
func (r root) checkSpelling(ctx context.Context, name string) error {
	dir, base := path.Split(name)
	other := dir + swapCase(base)
	if other == name {
		other = swapCase(name)
	}
	ascii := strings.IndexFunc(name, func(c rune) bool { return c >= utf8.RuneSelf }) < 0
	if ascii {
		switch _, err := r.e.Lstat(ctx, other); {
		case other == name, errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
	}
	dir = "."
	for element := range strings.SplitSeq(name, "/") {
		entries, err := r.e.ReadDir(ctx, dir)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(entries, func(d fs.DirEntry) bool { return d.Name() == element }) {
			return errorf(KindNotFound, "%s exists in another spelling; list %s and write the name as it "+
				"is listed", shown(path.Join(dir, element)), shown(dir))
		}
		dir = path.Join(dir, element)
	}
	return nil
}

// swapCase returns s with its ASCII letters in the other case.
func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c ^ ' '
		}
		return c
	}, s)
}
