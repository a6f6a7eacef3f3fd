package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// write writes a file that prepares a case. It must work.
func (c *caseT) write(name, data string) {
	c.writeMode(name, data, 0)
}

func (c *caseT) writeMode(name, data string, mode fs.FileMode) {
	if _, err := c.put(name, data, env.WriteOptions{Mode: mode}); err != nil {
		c.fatalf("WriteFile of %q, which the case needs: %v", name, err)
	}
}

// put writes a file.
func (c *caseT) put(name, data string, opts env.WriteOptions) (env.Written, error) {
	return c.e.WriteFile(c.ctx, name, strings.NewReader(data), opts)
}

// get reads a file.
func (c *caseT) get(name string) (string, error) {
	f, err := c.e.Open(c.ctx, name)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), errors.Join(err, f.Close())
}

// read reads a file; a failure is empty content.
func (c *caseT) read(name string) string {
	s, err := c.get(name)
	if err != nil {
		c.errorf("reading %q: %v", name, err)
	}
	return s
}

// wantFile records a failure unless the file name holds want.
func (c *caseT) wantFile(what, name, want string) {
	got, err := c.get(name)
	if err != nil {
		c.errorf("%s: reading %q: %v", what, name, err)
		return
	}
	c.equal(what, got, want)
}

// wantMode records a failure unless the file name has this mode. Type bits count, too.
func (c *caseT) wantMode(what, name string, want fs.FileMode) {
	info, err := c.e.Stat(c.ctx, name)
	if err != nil {
		c.errorf("%s: Stat: %v", what, err)
		return
	}
	if info.Mode() != want {
		c.errorf("%s: %q has mode %v, want %v", what, name, info.Mode(), want)
	}
}

// wantNames records a failure unless the directory dir has exactly these entries.
func (c *caseT) wantNames(what, dir string, want ...string) {
	entries, err := c.e.ReadDir(c.ctx, dir)
	if err != nil {
		c.errorf("%s: ReadDir: %v", what, err)
		return
	}
	var got []string
	for _, d := range entries {
		got = append(got, d.Name())
	}
	if !slices.Equal(got, want) {
		c.errorf("%s: the directory holds %.300q, want %.300q", what, got, want)
	}
}

// wantPathError records a failure unless err is a *fs.PathError for name that wraps one of targets.
func (c *caseT) wantPathError(what string, err error, name string, targets ...error) {
	var pathError *fs.PathError
	switch {
	case err == nil:
		c.errorf("%s: no error, want one that wraps %q", what, targets)
	case !errors.As(err, &pathError):
		c.errorf("%s: error %v (%T), want a *fs.PathError", what, err, err)
	case !strings.HasSuffix(pathError.Path, name):
		c.errorf("%s: the error names %q, want %q", what, pathError.Path, name)
	case len(targets) > 0 && !slices.ContainsFunc(targets,
		func(t error) bool { return errors.Is(err, t) }):
		c.errorf("%s: error %v, want one that wraps %q", what, err, targets)
	}
}

// A fileMethod is a method that takes the name of a file.
type fileMethod struct {
	name string
	call func(ctx context.Context, e env.Environment, name string) error
}

// fileMethods are all methods that take a name.
var fileMethods = []fileMethod{
	{"Open", func(ctx context.Context, e env.Environment, name string) error {
		f, err := e.Open(ctx, name)
		if err == nil {
			_ = f.Close()
		}
		return err
	}},
	{"Stat", func(ctx context.Context, e env.Environment, name string) error {
		_, err := e.Stat(ctx, name)
		return err
	}},
	{"Lstat", func(ctx context.Context, e env.Environment, name string) error {
		_, err := e.Lstat(ctx, name)
		return err
	}},
	{"ReadLink", func(ctx context.Context, e env.Environment, name string) error {
		_, err := e.ReadLink(ctx, name)
		return err
	}},
	{"ReadDir", func(ctx context.Context, e env.Environment, name string) error {
		_, err := e.ReadDir(ctx, name)
		return err
	}},
	{"WriteFile", func(ctx context.Context, e env.Environment, name string) error {
		_, err := e.WriteFile(ctx, name, strings.NewReader("x"), env.WriteOptions{})
		return err
	}},
	{"Remove", func(ctx context.Context, e env.Environment, name string) error {
		return e.Remove(ctx, name, env.RemoveOptions{})
	}},
	{"Remove recursively", func(ctx context.Context, e env.Environment, name string) error {
		return e.Remove(ctx, name, env.RemoveOptions{Recursive: true})
	}},
	{"CopyIn", func(ctx context.Context, e env.Environment, name string) error {
		return e.CopyIn(ctx, name, bytes.NewReader(pack(tarFile("a", "x"))))
	}},
	{"CopyOut", func(ctx context.Context, e env.Environment, name string) error {
		r, err := e.CopyOut(ctx, name)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}},
}

// symlink makes a symlink.
func (c *caseT) symlink(target, name string) {
	c.unix()
	c.shIn("", `ln -s -- "$1" "$2"`, target, name)
}

// methods returns the methods names.
func methods(names ...string) []fileMethod {
	var found []fileMethod
	for _, m := range fileMethods {
		if slices.Contains(names, m.name) {
			found = append(found, m)
		}
	}
	if len(found) != len(names) {
		panic(fmt.Sprintf("envtest: a method of %q does not exist", names))
	}
	return found
}
