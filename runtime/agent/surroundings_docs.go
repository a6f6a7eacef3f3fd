package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

const (
	// docsLimit bounds the project's instructions in the system prompt, in bytes.
	docsLimit = 32 << 10
	// maxDocLinks bounds the symlinks on the way to one file with instructions.
	maxDocLinks = 40
)

// projectDirs returns those of dirs, a chain of directories from the outermost down to the working
// directory, that are in the project: from the innermost one with a .git on, else the last one.
// Git's own root of the working tree is a setting of the repository, which can be any directory.
func projectDirs(ctx context.Context, e env.FileReader, dirs []string) []string {
	for i, dir := range slices.Backward(dirs) {
		if _, err := e.Lstat(ctx, path.Join(dir, ".git")); err == nil {
			return dirs[i:]
		}
	}
	return dirs[len(dirs)-1:]
}

// addDocs adds to the instructions of s those in the directories below s.WorkDir down to dir, which
// is that of a sub-agent.
func addDocs(
	ctx context.Context, e env.FileReader, s profile.Surroundings, names []string, dir string,
) (docs []profile.Doc, skipped []string) {
	rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(s.WorkDir, "/")+"/")
	if !ok {
		return s.Docs, nil
	}
	left := docsLimit
	for _, d := range s.Docs {
		left -= len(d.Text)
	}
	var dirs []string
	at := s.WorkDir
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		dirs = append(dirs, at)
	}
	docs, skipped = readDocs(ctx, e, s.WorkDir, dirs, names, left)
	return slices.Concat(s.Docs, docs), skipped
}

// readDocs reads the project's instructions in dirs, in this order, at most left bytes in all. They
// are regular files in the tree root; skipped has a line for each file that is not.
func readDocs(
	ctx context.Context, e env.FileReader, root string, dirs, names []string, left int,
) (docs []profile.Doc, skipped []string) {
	if left <= 0 {
		return nil, nil
	}
	found := make([]doc, 0, len(dirs)*len(names))
	for _, dir := range dirs {
		for _, name := range names {
			found = append(found, doc{name: path.Join(dir, name)})
		}
	}
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { found[i].find(ctx, e, root) })
	}
	wg.Wait()
	for _, d := range found {
		if d.err != nil {
			skipped = append(skipped, fmt.Sprintf("%s is not read as instructions: %v", d.name, d.err))
		}
	}
	found = slices.DeleteFunc(found, func(d doc) bool { return d.file == "" })
	files := make([]string, len(found))
	for i, d := range found {
		files[i] = d.file
	}
	contents, err := env.ReadFiles(ctx, e, files, docsLimit)
	if err != nil {
		return nil, skipped
	}
	for i, c := range contents {
		b, err := c.Data, c.Err
		if errors.Is(err, env.ErrTooLarge) {
			b, err = readUpTo(ctx, e, c.Name, left)
		}
		if err != nil || len(strings.TrimSpace(string(b))) == 0 {
			continue
		}
		text := strings.ToValidUTF8(string(b), "\uFFFD")
		cut := len(b) > left
		if cut {
			text = strings.ToValidUTF8(string(b[:left]), "") + "\n" + docsCutText(docsLimit)
		}
		docs = append(docs, profile.Doc{Path: found[i].name, Text: text})
		if left -= len(b); cut || left <= 0 {
			break
		}
	}
	return docs, skipped
}

// doc is a name under which a project may have instructions.
type doc struct {
	name string
	// file is the regular file that the name leads to; empty if it is missing or refused.
	file string
	// err is the reason of a refusal.
	err error
}

// find sets file or err. It follows symlinks itself: everything that it passes must be in the
// directory root, since the content goes to the provider of the model, and outside of .git, whose
// settings may have credentials.
func (d *doc) find(ctx context.Context, e env.FileReader, root string) {
	if _, err := e.Lstat(ctx, d.name); err != nil {
		return
	}
	rest, _ := below(root, d.name)
	at := root
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && at == root:
			d.err = errOutside(root)
			return
		case name == "..":
			at = path.Dir(at)
			continue
		case strings.EqualFold(name, ".git"):
			d.err = errors.New("it is a symlink into .git")
			return
		}
		next := path.Join(at, name)
		info, err := e.Lstat(ctx, next)
		if err != nil {
			d.err = err
			return
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := e.ReadLink(ctx, next)
			if links++; err == nil && links > maxDocLinks {
				err = errors.New("it leads through too many symlinks")
			}
			parts, inside := strings.Split(target, "/"), true
			if path.IsAbs(target) || strings.Contains(target, ":") {
				parts, inside = below(root, target)
				at = root
			}
			if err == nil && !inside {
				err = errOutside(root)
			}
			if err != nil {
				d.err = err
				return
			}
			rest = slices.Concat(parts, rest)
		case len(rest) == 0 && info.Mode().IsRegular():
			d.file = next
			return
		case info.IsDir() && len(rest) > 0:
			at = next
		default:
			d.err = env.ErrNotRegular
			return
		}
	}
	d.err = env.ErrNotRegular // it is a symlink to a directory
}

func errOutside(root string) error {
	return fmt.Errorf("it is a symlink, or behind one, that leads out of %s", root)
}

// below returns the parts of the absolute path name below the directory root.
func below(root, name string) (parts []string, ok bool) {
	rel, ok := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
	return strings.Split(rel, "/"), ok
}

// readUpTo reads at most limit+1 bytes, so that the caller can detect a longer file.
func readUpTo(ctx context.Context, e env.FileReader, name string, limit int) ([]byte, error) {
	f, err := e.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}
