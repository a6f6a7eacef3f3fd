// Package helper holds the helper, the program sandboxd, in the forms in which it comes with this module: compressed and
// embedded for each platform that it was built for, and what it is told when it starts.
//
// The folder bin is filled by "make build" with files named sandboxd-OS-ARCH-SHA256.gz, where the digest is that of the
// uncompressed program. It is empty in a fresh checkout and in a module that go get fetched; Find then says so.
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
	// maxSize bounds what a compressed helper may become.
	maxSize = 16 << 20
)

// MissingError says that there is no helper for a platform.
type MissingError struct {
	// OS and Arch are named as by the Go toolchain.
	OS, Arch string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no helper for %s/%s is built into this program; "+
		"\"make build\" in a checkout of github.com/sandboxagent/sandboxagent builds one with helpers for linux/amd64 and linux/arm64",
		e.OS, e.Arch)
}

// Unwrap makes the error fs.ErrNotExist.
func (e *MissingError) Unwrap() error { return fs.ErrNotExist }

// A Helper is an embedded helper. It is made by Find.
type Helper struct {
	files  fs.FS
	file   string
	name   string
	digest string
}

// Find returns the helper for a platform, which is named as by the Go toolchain. If there is none, the error is a
// *MissingError.
func Find(goos, goarch string) (*Helper, error) { return find(bin, goos, goarch) }

func find(files fs.FS, goos, goarch string) (*Helper, error) {
	entries, err := fs.ReadDir(files, "bin")
	if err != nil {
		return nil, err
	}
	start := prefix + goos + "-" + goarch + "-"
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		digest, mine := strings.CutPrefix(name, start)
		if sum, err := hex.DecodeString(digest); !ok || !mine || err != nil || len(sum) != sha256.Size {
			continue
		}
		return &Helper{files: files, file: "bin/" + e.Name(), name: name, digest: digest}, nil
	}
	return nil, &MissingError{OS: goos, Arch: goarch}
}

// Name returns a name for the program that tells its platform and its content: no two different helpers have the same.
func (h *Helper) Name() string { return h.name }

// Digest returns the SHA-256 of the program in hexadecimal.
func (h *Helper) Digest() string { return h.digest }

// Open returns the program. The caller closes it. A program that is not what its digest says ends with an error instead
// of io.EOF.
func (h *Helper) Open() (io.ReadCloser, error) {
	f, err := h.files.Open(h.file)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded helper %s: %w", h.name, err), f.Close())
	}
	return &content{helper: h, file: f, z: z, sum: newSum()}, nil
}

// content reads the program and checks it.
type content struct {
	helper *Helper
	file   fs.File
	z      *gzip.Reader
	sum    *sum
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.z.Read(p)
	c.sum.add(p[:n])
	switch {
	case c.sum.size > maxSize:
		return 0, fmt.Errorf("embedded helper %s: more than %d bytes", c.helper.name, maxSize)
	case errors.Is(err, io.EOF) && c.sum.hex() != c.helper.digest:
		return 0, fmt.Errorf("embedded helper %s: its content has another digest", c.helper.name)
	}
	return n, err
}

func (c *content) Close() error { return errors.Join(c.z.Close(), c.file.Close()) }
