package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// Helper names programs that may serve as the helper. [Helper.Resolve] takes the first of these:
//
//  1. Binary, and then nothing else
//  2. a helper that is embedded in this program; "make build" in a checkout embeds some, and a
//     module that go get fetched has none
//  3. Program
//  4. a helper that the Go toolchain builds from the source of this module
//
// A program is its own helper with sandboxd.Self() as its Helper, and sandboxd.Main() as the first
// statement of its main. The zero value suits a machine with the Go toolchain.
type Helper struct {
	// Binary is a file with a helper: cmd/sandboxd, or a program that calls sandboxd.Main. It must be
	// static and for the platform of the environment, except on this machine.
	Binary string
	// Program is such a file too, often the running program. It is used if it is static and for the
	// platform of the environment; on this machine always.
	Program string
	// Args are the arguments with which Binary and Program serve as the helper. Its own follow them.
	Args []string
	// NoBuild keeps the Go toolchain from building a helper.
	NoBuild bool
	// Cache is the directory for helpers that were built; empty means the user's cache directory.
	Cache string
}

// Resolve returns the helper for a platform, which is named as by the Go toolchain. If it finds
// none, the error is a *MissingHelperError. A build takes up to 5 minutes, less with an earlier end
// of ctx.
func (h Helper) Resolve(ctx context.Context, goos, goarch string) (*Program, error) {
	// A host or an image names it, and it becomes a part of file names and of a command in a message.
	if !isName(goos) || !isName(goarch) {
		return nil, fmt.Errorf("no helper is for a platform named %.80q", goos+"/"+goarch)
	}
	if h.Binary != "" {
		p, err := helper.File(h.Binary, goos, goarch, h.Args...)
		return (*Program)(p), err
	}
	p, err := helper.Find(goos, goarch)
	if !errors.Is(err, helper.ErrNotEmbedded) {
		return (*Program)(p), err
	}
	missing := &MissingHelperError{OS: goos, Arch: goarch, Errs: []error{err}}
	if h.Program != "" {
		if p, err = helper.File(h.Program, goos, goarch, h.Args...); err == nil {
			return (*Program)(p), nil
		}
		missing.Errs = append(missing.Errs, err)
	}
	if !h.NoBuild {
		if p, err = helper.Build(ctx, h.Cache, goos, goarch); err == nil {
			return (*Program)(p), nil
		}
		missing.Errs = append(missing.Errs, fmt.Errorf("build one: %w", err))
	}
	return nil, missing
}

// isName reports whether text may name an operating system or a processor.
func isName(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// MissingHelperError reports that no helper for a platform was found. It is fs.ErrNotExist.
type MissingHelperError struct {
	// OS and Arch are the platform, named as by the Go toolchain.
	OS, Arch string
	// Errs has an error for each way to get a helper that failed.
	Errs []error
}

func (e *MissingHelperError) Error() string {
	const command = "github.com/sandboxagent/sandboxagent/cmd/sandboxd"
	hint := fmt.Sprintf("set Helper.Binary to a program built by \"CGO_ENABLED=0 GOOS=%s GOARCH=%s "+
		"go build %s\"", e.OS, e.Arch, command)
	if e.OS == runtime.GOOS && e.Arch == runtime.GOARCH {
		hint = "make this program its helper: call sandboxd.Main() first in main, set Helper to " +
			"sandboxd.Self(), and build with \"CGO_ENABLED=0 go build\"; or " + hint
	}
	causes := strings.ReplaceAll(errors.Join(e.Errs...).Error(), "\n", "; ")
	return fmt.Sprintf("no helper for %s/%s: %s (%s)", e.OS, e.Arch, causes, hint)
}

// Unwrap returns fs.ErrNotExist and Errs.
func (e *MissingHelperError) Unwrap() []error { return append([]error{fs.ErrNotExist}, e.Errs...) }

// Program is an executable file that serves as the helper. Helper.Resolve returns it.
type Program struct {
	// Name is a file name with the platform and the digest.
	Name string
	// Digest is the SHA-256 of the file in hexadecimal.
	Digest string
	// Args are the arguments with which the file serves as the helper. Its own follow them.
	Args []string
	// Open returns the content, which the caller closes.
	Open func() (io.ReadCloser, error)
}

// maxProgram bounds the size of a helper, in bytes.
const maxProgram = 128 << 20

// Content returns the content of the program.
func (p *Program) Content() ([]byte, error) {
	r, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(r, maxProgram+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("helper: %w", err)
	case len(content) > maxProgram:
		return nil, fmt.Errorf("helper: more than %d bytes", maxProgram)
	}
	return content, nil
}

// WriteFile writes the program to a file that can be executed at once, also if other goroutines
// start processes: one that inherited the open file would make it a busy one.
func (p *Program) WriteFile(name string) error {
	content, err := p.Content()
	if err != nil {
		return err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, content, 0o700)
}

// ExitGone is the exit code of Program.Dial if no helper listens on the socket: the environment has
// ended.
const ExitGone = 3

// Serve returns the command line that serves an environment on stdin and stdout. Name is the path
// of the program. With a socket, which is a path or "@name", the helper serves later clients on it,
// and outlives its streams by ttl; without one the socket and ttl are empty.
func (p *Program) Serve(name, socket string, ttl time.Duration) []string {
	argv := append([]string{name}, p.Args...)
	argv = append(argv, "serve")
	if socket != "" {
		argv = append(argv, "--socket", socket, "--ttl", ttl.String())
	}
	return argv
}

// Dial returns the command line that connects stdin and stdout to the socket of a helper. Further
// arguments are those of the command "sandboxd dial".
func (p *Program) Dial(name, socket string, args ...string) []string {
	argv := append([]string{name}, p.Args...)
	return append(append(argv, "dial", "--socket", socket), args...)
}
