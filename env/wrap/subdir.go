package wrap

import (
	"context"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// Subdir makes dir the working directory of e and rejects names outside of it. Names are relative
// to dir; a name that leads out of it is a *fs.PathError that wraps ErrOutside, and for the
// directory of a command a *StartError that wraps that. Dir is absolute or relative to e's working
// directory. It cannot be removed.
//
// Where e has the guarantee ConfinedCommands, commands change files in dir only, and of e's working
// directory read nothing but dir; elsewhere a command may do whatever e permits. Otherwise Subdir
// prevents mistakes, not attacks: it checks names as text. A symlink below dir may lead out of it,
// and ReadLink returns such a target.
//
// The returned environment owns e: its Close closes e.
func Subdir(e env.Environment, dir string) env.Environment {
	info := e.Info()
	c := &subdir{inner: e, windows: info.OS == "windows"}
	c.dir = c.slashes(dir)
	if !c.absolute(c.dir) {
		c.dir = c.slashes(info.WorkDir) + "/" + c.dir
	}
	c.dir = c.clean(c.dir)
	c.confines = info.Strength(env.ConfinedCommands) != env.Absent
	if info.WorkDir != "/" {
		c.hide = info.WorkDir
	}
	return c
}

type subdir struct {
	inner env.Environment
	// dir is absolute and clean.
	dir     string
	windows bool
	// confines: e obeys Command.Confine, with hide as its Hide.
	confines bool
	hide     string
}

var (
	_ env.Environment = (*subdir)(nil)
	_ search.Searcher = (*subdir)(nil)
	_ env.MultiReader = (*subdir)(nil)
)

func (c *subdir) slashes(name string) string {
	if c.windows {
		return strings.ReplaceAll(name, `\`, "/")
	}
	return name
}

func (c *subdir) absolute(name string) bool {
	return path.IsAbs(name) || c.windows && len(name) >= 2 && name[1] == ':'
}

// clean is path.Clean, but on Windows keeps the two slashes before a server's name and the one of a
// drive's root.
func (c *subdir) clean(name string) string {
	clean := path.Clean(name)
	switch {
	case !c.windows:
	case strings.HasPrefix(name, "//") && clean != "/":
		clean = "/" + clean
	case len(clean) == 2 && clean[1] == ':':
		clean += "/"
	}
	return clean
}

// below returns the rest of the clean absolute name after dir; false if it is not below dir.
func (c *subdir) below(name string) (string, bool) {
	dir := strings.TrimSuffix(c.dir, "/")
	if len(name) < len(dir) {
		return "", false
	}
	head, rest := name[:len(dir)], name[len(dir):]
	if head != dir && (!c.windows || !strings.EqualFold(head, dir)) {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), rest == "" || rest[0] == '/'
}

// name returns e's name of a name below dir. An empty one is dir itself in calls that accept it.
func (c *subdir) name(op, name string) (string, error) {
	if name == "" {
		switch op {
		case "chdir", "walk", "grep", "glob":
			return c.dir, nil
		}
		return "", nil // which e rejects
	}
	full := c.slashes(name)
	if !c.absolute(full) {
		full = c.dir + "/" + full
	}
	clean := c.clean(full)
	if _, ok := c.below(clean); !ok {
		return "", &fs.PathError{Op: op, Path: name, Err: env.ErrOutside}
	}
	if strings.HasSuffix(full, "/") && !strings.HasSuffix(clean, "/") {
		clean += "/" // it must be a directory
	}
	return clean, nil
}

func (c *subdir) Info() env.Info {
	info := c.inner.Info()
	info.WorkDir = c.dir
	return info
}

func (c *subdir) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	dir, err := c.name("chdir", cmd.Dir)
	if err != nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: err}
	}
	cmd.Dir = dir
	if cmd.Confine, err = c.confine(cmd.Confine); err != nil {
		return env.Result{}, &env.StartError{Argv: cmd.Argv, Err: err}
	}
	return c.inner.Exec(ctx, cmd)
}

// confine returns the confinement of a command of which given is requested.
func (c *subdir) confine(given *env.Confinement) (*env.Confinement, error) {
	switch {
	case given == nil && !c.confines:
		return nil, nil
	case given == nil:
		return &env.Confinement{Write: []string{c.dir}, Hide: c.hide}, nil
	}
	own := env.Confinement{Hide: c.hide}
	for _, list := range []struct {
		to   *[]string
		from []string
	}{{&own.Write, given.Write}, {&own.Read, given.Read}} {
		for _, name := range list.from {
			full, err := c.name("confine", name)
			if err != nil {
				return nil, err
			}
			*list.to = append(*list.to, full)
		}
	}
	if given.Hide == "" {
		own.Read = append(own.Read, c.dir)
	} else if full, err := c.name("confine", given.Hide); err != nil {
		return nil, err
	} else if c.hide == "" {
		own.Hide = full
	}
	return &own, nil
}

func (c *subdir) Open(ctx context.Context, name string) (fs.File, error) {
	full, err := c.name("open", name)
	if err != nil {
		return nil, err
	}
	return c.inner.Open(ctx, full)
}

func (c *subdir) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	full, err := c.name("stat", name)
	if err != nil {
		return nil, err
	}
	return c.inner.Stat(ctx, full)
}

func (c *subdir) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	full, err := c.name("lstat", name)
	if err != nil {
		return nil, err
	}
	return c.inner.Lstat(ctx, full)
}

// ReadLink returns the target as the symlink holds it, also one outside of dir.
func (c *subdir) ReadLink(ctx context.Context, name string) (string, error) {
	full, err := c.name("readlink", name)
	if err != nil {
		return "", err
	}
	return c.inner.ReadLink(ctx, full)
}

func (c *subdir) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	full, err := c.name("readdir", name)
	if err != nil {
		return nil, err
	}
	return c.inner.ReadDir(ctx, full)
}

func (c *subdir) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	full, err := c.name("write", name)
	if err != nil {
		return env.Written{}, err
	}
	return c.inner.WriteFile(ctx, full, r, opts)
}

func (c *subdir) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	full, err := c.name("remove", name)
	if err != nil {
		return err
	}
	if rest, below := c.below(full); below && strings.Trim(rest, "/") == "" {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrInvalid}
	}
	return c.inner.Remove(ctx, full, opts)
}

func (c *subdir) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	full, err := c.name("copyin", dir)
	if err != nil {
		return err
	}
	return c.inner.CopyIn(ctx, full, archive)
}

func (c *subdir) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	full, err := c.name("copyout", dir)
	if err != nil {
		return nil, err
	}
	return c.inner.CopyOut(ctx, full, names...)
}

func (c *subdir) Close() error { return c.inner.Close() }

func (c *subdir) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	full, err := c.name("walk", root)
	if err != nil {
		return err
	}
	return search.Walk(ctx, c.inner, full, opts, fn)
}

// Grep reports names relative to dir if opts.Path is relative.
func (c *subdir) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	given := c.slashes(opts.Path)
	full, err := c.name("grep", opts.Path)
	if err != nil {
		return search.GrepStats{}, err
	}
	opts.Path = full
	return search.Grep(ctx, c.inner, opts, func(m search.GrepMatch) error {
		if !c.absolute(given) {
			if rel, ok := c.below(c.slashes(m.Name)); ok {
				m.Name = rel
			}
		}
		return fn(m)
	})
}

func (c *subdir) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	full, err := c.name("glob", opts.Dir)
	if err != nil {
		return nil, err
	}
	opts.Dir = full
	return search.Glob(ctx, c.inner, opts)
}

func (c *subdir) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	list := make([]env.FileContent, len(names))
	var full []string
	var indexes []int
	for i, name := range names {
		list[i].Name = name
		n, err := c.name("open", name)
		if err != nil {
			list[i].Err = err
			continue
		}
		full, indexes = append(full, n), append(indexes, i)
	}
	got, err := env.ReadFiles(ctx, c.inner, full, limit)
	if err != nil {
		return nil, err
	}
	for j, f := range got {
		list[indexes[j]].Data, list[indexes[j]].Err = f.Data, f.Err
	}
	return list, nil
}
