package portable

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/sandboxagent/sandboxagent/env"
)

// Codes with which an operation of the library ends.
const (
	codeOK = iota
	codeNotExist
	codePermission
	codeIsDir
	codeNotDir
	codeNotRegular
	codeExist
	codeChanged
	codeLoop
	codeOther
	_
	codeNameTooLong
)

// errCode returns the error that a code means. What only the messages of a tool tell is taken from them; they are in
// English, but every system has its own.
func errCode(code int, text string) error {
	switch code {
	case codeNotExist:
		return fs.ErrNotExist
	case codePermission:
		return fs.ErrPermission
	case codeIsDir:
		return env.ErrIsDir
	case codeNotDir:
		return env.ErrNotDir
	case codeNotRegular:
		return env.ErrNotRegular
	case codeExist:
		return fs.ErrExist
	case codeChanged:
		return env.ErrChanged
	case codeLoop:
		return syscall.ELOOP
	case codeNameTooLong:
		return syscall.ENAMETOOLONG
	}
	for _, known := range []struct {
		message string
		err     error
	}{
		{"No space left on device", env.ErrNoSpace},
		{"Disk quota exceeded", env.ErrNoSpace},
		{"Read-only file system", syscall.EROFS},
		{"Directory not empty", syscall.ENOTEMPTY},
		{"Permission denied", fs.ErrPermission},
		{"Operation not permitted", fs.ErrPermission},
		{"Device or resource busy", syscall.EBUSY},
		{"File name too long", syscall.ENAMETOOLONG},
	} {
		if strings.Contains(text, known.message) {
			return known.err
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line = strings.Map(printable, line); line != "" {
		return errors.New(line)
	}
	return errors.New("the tools of the place could not do it")
}

// pathError returns err as a *fs.PathError about name as the caller wrote it.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// resolve returns the absolute name of a file, without slashes at its end.
func (e *Environment) resolve(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", fs.ErrInvalid
	}
	if name[0] != '/' {
		name = strings.TrimSuffix(e.info.WorkDir, "/") + "/" + name
	}
	if trimmed := strings.TrimRight(name, "/"); trimmed != "" {
		return trimmed, nil
	}
	return "/", nil
}
