// Package helper finds the program of the helper, sandboxd, for a platform, and defines the
// configuration that a client sends to a helper at its start. remote.Helper has the order in which
// it is looked for.
//
// Embedded helpers are files named sandboxd-OS-ARCH-SHA256.gz in the directory bin, where the
// digest is that of the uncompressed program. "make build" embeds those for linux/amd64 and
// linux/arm64, and "make build HELPERS=linux/riscv64" others. A fresh checkout, and a module that
// go get fetched, has none.
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

// ErrNotEmbedded reports that no helper for a platform is embedded in this program.
var ErrNotEmbedded = errors.New("none is embedded in this program")

// Program is a program that serves as a helper. Find and File return it.
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
// is embedded, the error is ErrNotEmbedded.
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
	return nil, ErrNotEmbedded
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
