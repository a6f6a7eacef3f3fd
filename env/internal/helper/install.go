package helper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	folder = "sandboxagent"
	// unusedTime is after how long a helper of another version is deleted.
	unusedTime = 30 * 24 * time.Hour
)

// Installed is a helper in the file system, open and verified.
type Installed struct {
	file *os.File
}

// Install returns the helper as a file that can be executed. The file is kept in the folder sandboxagent in cache, or in
// the user's cache directory if cache is empty, under a name that holds its digest. It is made at the first use, and
// verified at each; one that has been tampered with is replaced. The caller closes what Install returns.
func (h *Helper) Install(cache string) (*Installed, error) {
	if cache == "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return nil, fmt.Errorf("there is no cache directory for the helper: %w", err)
		}
	}
	dir := filepath.Join(cache, folder)
	if i, err := h.verified(dir); err == nil {
		return i, nil
	}
	// Whatever is wrong with the file, if there is one, it is made anew.
	if err := h.extract(dir); err != nil {
		return nil, fmt.Errorf("install helper in %s: %w", dir, err)
	}
	i, err := h.verified(dir)
	if err != nil {
		return nil, fmt.Errorf("install helper in %s: it was changed at once: %w", dir, err)
	}
	return i, nil
}

// verified opens the file if it holds the helper and nobody else may write to it.
func (h *Helper) verified(dir string) (_ *Installed, err error) {
	name := filepath.Join(dir, h.name)
	f, err := openPlain(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o700 || !ours(info) {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrPermission)
	}
	s := newSum()
	if _, err := io.Copy(s, io.LimitReader(f, maxSize)); err != nil {
		return nil, err
	}
	if s.hex() != h.digest {
		return nil, fmt.Errorf("%s: the content has another digest", name)
	}
	return &Installed{f}, nil
}

// extract makes the file. Several processes may do so at once.
func (h *Helper) extract(dir string) (err error) {
	name := filepath.Join(dir, h.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	r, err := h.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	tmp, err := os.CreateTemp(dir, h.name+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, r)
	if err == nil {
		err = tmp.Chmod(0o700)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), name); err != nil {
		return err
	}
	removeUnused(dir, name)
	return nil
}

// removeUnused deletes what earlier versions have left. Who still needs one of them makes it again.
func removeUnused(dir, keep string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // they are in nobody's way
	}
	for _, e := range entries {
		old := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err == nil && old != keep && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > unusedTime {
			_ = os.Remove(old)
		}
	}
}

// Name returns the name of the file.
func (i *Installed) Name() string { return i.file.Name() }

// Exec returns the path by which to execute the helper. Where the system has one, it leads to the very file that was
// verified, whatever has become of its name; it is then good only until Close, and only in a child that this process
// forks.
func (i *Installed) Exec() string { return execPath(i.file) }

// File returns the open file, which Close closes.
func (i *Installed) File() *os.File { return i.file }

// Close closes the file. A helper that runs goes on.
func (i *Installed) Close() error { return i.file.Close() }

// sum is a digest and a length.
type sum struct {
	hash hash.Hash
	size int64
}

func newSum() *sum { return &sum{hash: sha256.New()} }

func (s *sum) add(p []byte) {
	s.size += int64(len(p))
	_, _ = s.hash.Write(p) // never fails
}

func (s *sum) Write(p []byte) (int, error) {
	s.add(p)
	return len(p), nil
}

func (s *sum) hex() string { return hex.EncodeToString(s.hash.Sum(nil)) }
