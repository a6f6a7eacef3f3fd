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
	"sync"
	"sync/atomic"
	"time"
)

const (
	cacheName = "sandboxagent"
	// unusedTime is after how long a helper of another version is removed.
	unusedTime = 30 * 24 * time.Hour
)

// Installed is a helper in the file system, open and verified.
type Installed struct {
	file *os.File
}

// cacheDir returns the directory sandboxagent in cache, or in the user's cache directory if cache
// is empty.
func cacheDir(cache string) (string, error) {
	if cache == "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("find a cache directory for the helper: %w", err)
		}
	}
	return filepath.Join(cache, cacheName), nil
}

// Install returns the helper as a file that can be executed. The file is kept in the directory
// sandboxagent in cache, or in the user's cache directory if cache is empty, under its Name. The
// first use creates it; each use verifies it and replaces one with another digest. The caller
// closes the result.
func (p *Program) Install(cache string) (*Installed, error) {
	dir, err := cacheDir(cache)
	if err != nil {
		return nil, err
	}
	if i, err := p.verified(dir); err == nil {
		return i, nil
	}
	// A file with any defect is created anew.
	if err := p.extract(dir); err != nil {
		return nil, fmt.Errorf("install helper in %s: %w", dir, err)
	}
	i, err := p.verified(dir)
	if err != nil {
		return nil, fmt.Errorf("install helper in %s: another process changed it: %w", dir, err)
	}
	return i, nil
}

// Preparation verifies the stored file of a helper ahead, for one environment.
type Preparation struct {
	verified func() (*Installed, error)
	taken    atomic.Bool
}

// Prepare starts to verify the file that Install would find. It stores none.
func (p *Program) Prepare(cache string) *Preparation {
	prepared := &Preparation{verified: sync.OnceValues(func() (*Installed, error) {
		dir, err := cacheDir(cache)
		if err != nil {
			return nil, err
		}
		return p.verified(dir)
	})}
	go prepared.Wait()
	return prepared
}

// Installed waits for the file and returns it to the first caller only. It returns nil to others,
// and if the file is missing or has a defect.
func (p *Preparation) Installed() *Installed {
	if p.taken.Swap(true) {
		return nil
	}
	i, _ := p.verified() // Install reports its own error
	return i
}

// Wait waits for the end of the verification.
func (p *Preparation) Wait() { _, _ = p.verified() }

// verified opens the file if it holds the helper and only this user may write to it.
func (p *Program) verified(dir string) (*Installed, error) {
	name := filepath.Join(dir, p.Name)
	f, err := openOwned(name)
	if err != nil {
		return nil, err
	}
	s := newSum()
	if _, err = io.Copy(s, io.LimitReader(f, maxSize)); err == nil && s.hex() != p.Digest {
		err = fmt.Errorf("%s: the content has another digest", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Installed{f}, nil
}

// openOwned opens a program that belongs to this user and that nobody else may read, write or
// execute.
func openOwned(name string) (*os.File, error) {
	f, err := openPlain(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm() != 0o700 || !owned(info)) {
		err = fmt.Errorf("%s: %w", name, fs.ErrPermission)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// extract creates the file. Several processes may do so at once.
func (p *Program) extract(dir string) (err error) {
	name := filepath.Join(dir, p.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	r, err := p.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	tmp, err := os.CreateTemp(dir, p.Name+".tmp-")
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

// removeUnused removes the programs of earlier versions, which create them again when they need
// them.
func removeUnused(dir, keep string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it is tried again the next time
	}
	for _, e := range entries {
		old := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err == nil && old != keep && strings.HasPrefix(e.Name(), prefix) &&
			time.Since(info.ModTime()) > unusedTime {
			_ = os.RemoveAll(old) // it is tried again the next time
		}
	}
}

// Name returns the name of the file.
func (i *Installed) Name() string { return i.file.Name() }

// Exec returns the path to execute. On Linux it refers to the open file that was verified, whatever
// file has its name by now; it is then valid only until Close, and only in a child that this
// process forks.
func (i *Installed) Exec() string { return execPath(i.file) }

// File returns the open file, which Close closes.
func (i *Installed) File() *os.File { return i.file }

// Close closes the file. A running helper continues.
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
