package tool

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// maxLinks is how many links a name may lead through.
const maxLinks = 40

// root confines names to the working directory of an environment, also where links lead out of it.
//
// It looks before the file is used, because an environment has no call that does both: a process
// that turns a folder into a link between the two can still lead a write outside. Root keeps a
// mistaken patch in its place. It does not keep a hostile program in the environment in its place;
// that is the task of the environment's isolation.
type root struct {
	e env.Environment
	// dir is the working directory.
	dir string
	// fold says that names are Windows names: any case, and \ is a separator.
	fold bool
}

func rootOf(e env.Environment) root {
	info := e.Info()
	return root{e: e, dir: path.Clean(info.WorkDir), fold: info.OS == "windows"}
}

// place is where a name leads.
type place struct {
	// name is relative to the working directory and leads through no links.
	name string
	// entry is what is there; nil if there is nothing.
	entry fs.DirEntry
}

// rel returns name relative to the working directory, without looking at links.
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

// below returns the part of the absolute name clean that lies below the working directory.
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

// resolve returns where rel leads, which is a name that [root.rel] has returned. If follow is set,
// a link at the end is followed too.
func (r root) resolve(ctx context.Context, rel string, follow bool) (place, error) {
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
				return place{}, r.outside(rel)
			}
			at = strings.TrimPrefix(path.Dir("/"+at), "/")
			continue
		}
		entry, err := r.lookup(ctx, at, element)
		if err != nil {
			return place{}, err
		}
		if entry == nil {
			return r.missing(path.Join(at, element), todo, rel)
		}
		last := !slices.ContainsFunc(todo, func(s string) bool { return s != "" && s != "." })
		if entry.Type()&fs.ModeSymlink == 0 || last && !follow {
			at = path.Join(at, element)
			if last {
				return place{name: at, entry: entry}, nil
			}
			if !entry.IsDir() {
				return place{}, errorf(KindOther, "%s cannot be reached: %s is not a folder", shown(rel),
					shown(at))
			}
			continue
		}
		if links++; links > maxLinks {
			return place{}, errorf(KindOther, "%s leads through too many links", shown(rel))
		}
		target, err := r.readLink(ctx, at, element)
		if err != nil {
			return place{}, err
		}
		if path.IsAbs(target) || r.hasDrive(target) {
			below, ok := r.below(path.Clean(target))
			if !ok {
				return place{}, r.outside(rel)
			}
			at, target = "", below
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return place{}, errorf(KindOther, "%s is the working directory, not a file", shown(rel))
}

// missing is the place of a name of which at is the first part that does not exist.
func (r root) missing(at string, todo []string, rel string) (place, error) {
	if slices.Contains(todo, "..") {
		return place{}, errorf(KindNotFound, "%s cannot be reached: %s does not exist", shown(rel),
			shown(at))
	}
	return place{name: path.Join(append([]string{at}, todo...)...)}, nil
}

// lookup returns what is called element in the folder dir; nil if nothing is.
func (r root) lookup(ctx context.Context, dir, element string) (fs.DirEntry, error) {
	if dir == "" {
		dir = "."
	}
	entries, err := r.e.ReadDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() == element {
			return entry, nil
		}
	}
	// Where names that differ in case or in form are one file, the listing has another spelling than
	// the caller. Whether that is a link would be guesswork.
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink != 0 && r.e.Info().OS != "linux" && strings.EqualFold(entry.Name(),
			element) {
			return nil, r.spelling(dir, element)
		}
	}
	switch _, err := r.e.Stat(ctx, path.Join(dir, element)); {
	case err == nil:
		return nil, r.spelling(dir, element)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // Nothing there is an answer, not a failure.
	default:
		return nil, err
	}
}

func (r root) spelling(dir, element string) *Error {
	return errorf(KindNotFound, "%s exists here in another spelling; list %s and write it as it is "+
		"there", shown(path.Join(dir, element)), shown(dir))
}

// readLink returns the target of the link called element in the folder dir, with slashes.
func (r root) readLink(ctx context.Context, dir, element string) (target string, err error) {
	if dir == "" {
		dir = "."
	}
	archive, err := r.e.CopyOut(ctx, dir, element)
	if err != nil {
		return "", err
	}
	defer func() { _ = archive.Close() }() // Only its beginning is wanted.
	header, err := tar.NewReader(archive).Next()
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path.Join(dir, element), err)
	}
	if header.Typeflag != tar.TypeSymlink {
		return "", errorf(KindEditConflict, "%s was changed by somebody else in the meantime",
			shown(path.Join(dir, element)))
	}
	if r.fold {
		return strings.ReplaceAll(header.Linkname, `\`, "/"), nil
	}
	return header.Linkname, nil
}
