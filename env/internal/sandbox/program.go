package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is the program of a helper.
type Program struct {
	Path string // by which it is executed
	Name string // for messages
	Args []string
	File *os.File // nil until it is opened
}

// ProgramAt returns the program at a path.
func ProgramAt(path string, args []string) (_ *Program, err error) {
	p := &Program{Path: path, Name: path, Args: args}
	if strings.Contains(path, "/") { // the helper works in another directory
		p.Path, err = filepath.Abs(path)
	}
	return p, err
}

// Open opens the program for reading.
func (p *Program) Open() (err error) {
	if p.File != nil {
		return nil
	}
	if p.Path, err = exec.LookPath(p.Path); err == nil {
		p.File, err = os.Open(p.Path)
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

// Close closes the file. Started processes are not affected.
func (p *Program) Close() {
	if p.File != nil {
		_ = p.File.Close()
	}
}

// Argv returns p.Args followed by more.
func (p *Program) Argv(more ...string) []string {
	return append(p.Args[:len(p.Args):len(p.Args)], more...)
}

// failed adds the displayed name to an error of a start, and removes the path.
func (p *Program) failed(err error) error {
	var path *fs.PathError
	var exe *exec.Error
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &exe):
		err = exe.Err
	}
	return fmt.Errorf("start %s: %w", p.Name, err)
}
