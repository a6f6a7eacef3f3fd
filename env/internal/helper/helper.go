// Package helper finds the program of the helper, sandboxd, for a platform, and defines the
// configuration that a client sends to a helper at its start.
//
// # Finding
//
// [Source.Resolve] returns the first of these that runs on the platform:
//
//  1. the file that the caller names, and then nothing else
//  2. the embedded helper; "make build" embeds linux/amd64 and linux/arm64, and
//     "make build HELPERS=linux/riscv64" others
//  3. the running program, if the caller has arguments with which it serves as a helper
//  4. a helper that the Go toolchain builds from the source of this module into the user's cache
//
// Embedded helpers are files named sandboxd-OS-ARCH-SHA256.gz in the directory bin, where the
// digest is that of the uncompressed program. A fresh checkout, and a module that go get fetched,
// has none.
package helper

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

//go:embed all:bin
var bin embed.FS

const (
	prefix = "sandboxd-"
	suffix = ".gz"
	// maxSize bounds an uncompressed helper.
	maxSize = 16 << 20
)

// MissingError reports that no helper for a platform was found. It is fs.ErrNotExist.
type MissingError struct {
	// OS and Arch are named as by the Go toolchain.
	OS, Arch string
	// Errs are why the running program does not serve as one, and why none could be built, as far as
	// that was tried.
	Errs []error
}

func (e *MissingError) Error() string { return e.Text("name the file of one") }

// Text returns the message of the error with the caller's way to name a file.
func (e *MissingError) Text(remedy string) string {
	text := fmt.Sprintf("no helper for %s/%s is embedded in this program (embed one: "+
		"\"make build HELPERS=%[1]s/%[2]s\" in a checkout of %[3]s; or %[4]s)",
		e.OS, e.Arch, modulePath, remedy)
	for _, err := range e.Errs {
		text += "; " + err.Error()
	}
	return text
}

// Unwrap returns fs.ErrNotExist and Errs.
func (e *MissingError) Unwrap() []error { return append([]error{fs.ErrNotExist}, e.Errs...) }

// Program is a program that serves as a helper. Find, File and Source.Resolve return it.
type Program struct {
	// Name is a file name with the platform and the digest.
	Name string
	// Digest is the SHA-256 of the program in hexadecimal.
	Digest string
	// Args make the program serve as a helper; they go before all other arguments.
	Args []string
	// Open returns the content, which the caller closes. An embedded program with another digest
	// ends with an error instead of io.EOF.
	Open func() (io.ReadCloser, error)
}

// Find returns the embedded helper for a platform, which is named as by the Go toolchain. If none
// is embedded, the error is a *MissingError.
func Find(goos, goarch string) (*Program, error) { return find(bin, goos, goarch) }

func find(files fs.FS, goos, goarch string) (*Program, error) {
	entries, err := fs.ReadDir(files, "bin")
	if err != nil {
		return nil, err
	}
	start := prefix + goos + "-" + goarch + "-"
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		digest, matches := strings.CutPrefix(name, start)
		if sum, err := hex.DecodeString(digest); !ok || !matches || err != nil ||
			len(sum) != sha256.Size {
			continue
		}
		return embedded(files, "bin/"+e.Name(), name, digest), nil
	}
	return nil, &MissingError{OS: goos, Arch: goarch}
}

// embedded returns the helper in a compressed file.
func embedded(files fs.FS, file, name, digest string) *Program {
	return &Program{Name: name, Digest: digest, Open: func() (io.ReadCloser, error) {
		f, err := files.Open(file)
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("embedded helper %s: %w", name, err), f.Close())
		}
		return &content{name: name, digest: digest, file: f, z: z, sum: newSum()}, nil
	}}
}

// content reads an embedded program and verifies it.
type content struct {
	name, digest string
	file         fs.File
	z            *gzip.Reader
	sum          *sum
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.z.Read(p)
	c.sum.add(p[:n])
	switch {
	case c.sum.size > maxSize:
		return 0, fmt.Errorf("embedded helper %s: more than %d bytes", c.name, maxSize)
	case errors.Is(err, io.EOF) && c.sum.hex() != c.digest:
		return 0, fmt.Errorf("embedded helper %s: its content has another digest", c.name)
	}
	return n, err
}

func (c *content) Close() error { return errors.Join(c.z.Close(), c.file.Close()) }
