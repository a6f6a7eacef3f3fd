package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/proctree"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// confinement is a Confinement with absolute names without symlinks, and its directory for
// temporary files.
type confinement struct {
	env.Confinement
	temp string
}

// confine resolves the confinement of a command; nil for nil.
func (e *Environment) confine(c *env.Confinement) (*confinement, error) {
	if c == nil {
		return nil, nil
	}
	if g := sandbox.Confinements(); g.Strength == env.Absent {
		return nil, fmt.Errorf("commands cannot be confined: %s: %w", g.By, errors.ErrUnsupported)
	}
	var firstErr error
	resolve := func(name string) string {
		full, err := e.path(name)
		if err == nil {
			full, err = filepath.EvalSymlinks(full)
		}
		if err != nil && firstErr == nil {
			firstErr = pathError("confine", name, err)
		}
		return full
	}
	var absolute env.Confinement
	for _, name := range c.Write {
		absolute.Write = append(absolute.Write, resolve(name))
	}
	for _, name := range c.Read {
		absolute.Read = append(absolute.Read, resolve(name))
	}
	if c.Hide != "" {
		absolute.Hide = resolve(c.Hide)
	}
	if firstErr != nil {
		return nil, firstErr
	}
	temp, err := e.tempOf(absolute)
	if err != nil {
		return nil, err
	}
	return &confinement{absolute, temp}, nil
}

// tempOf returns the directory for temporary files of the commands of a confinement.
func (e *Environment) tempOf(c env.Confinement) (string, error) {
	lists := [][]string{c.Write, {c.Hide}, c.Read}
	var parts []string
	for _, list := range lists {
		parts = append(parts, strings.Join(list, "\x00"))
	}
	key := strings.Join(parts, "\x00\x00")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return "", fs.ErrClosed
	}
	if dir := e.temps[key]; dir != "" {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	parent, _ := lookupVar(e.base.list, "TMPDIR")
	dir, err := os.MkdirTemp(cmp.Or(parent, os.TempDir()), "sandboxagent-confined-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	if e.temps == nil {
		e.temps = make(map[string]string)
	}
	e.temps[key] = dir
	return dir, nil
}

// vars returns the variables that name the directory for temporary files.
func (c *confinement) vars() []string {
	if c == nil {
		return nil
	}
	return sandbox.TempVars(c.temp)
}

// confineError is why a command could not be confined. It was not started.
type confineError struct{ err error }

func (e *confineError) Error() string { return "confine: " + e.err.Error() }
func (e *confineError) Unwrap() error { return e.err }

// start calls start so that the process that it starts is confined. A nil c confines nothing. An
// error of the confinement is a *confineError.
func (c *confinement) start(
	start func() (*proctree.Process, error),
) (p *proctree.Process, err error) {
	if c == nil {
		return start()
	}
	failed := sandbox.StartConfined(c.Confinement, c.temp, func() { p, err = start() })
	if failed != nil {
		return nil, &confineError{failed}
	}
	return p, err
}

// removeTemps removes the directories for temporary files of confined commands.
func (e *Environment) removeTemps() (err error) {
	for _, dir := range e.temps {
		if os.RemoveAll(dir) == nil {
			continue
		}
		// A command has made a directory that its user cannot change.
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(name, 0o700)
			}
			return nil
		})
		err = cmp.Or(os.RemoveAll(dir), err)
	}
	return err
}
