package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// locks serialise the replacement of files: two writers of one file hold the same lock, writers of
// different files mostly different ones.
type locks [64]sync.Mutex

// lock locks the file path and returns how to unlock it. A folder that is known by several names is
// one.
func (l *locks) lock(path string) (unlock func()) {
	dir, base := filepath.Split(path)
	h := fnv.New32a()
	_, _ = io.WriteString(h, folderKey(dir)+"/"+base)
	m := &l[h.Sum32()%uint32(len(l))]
	m.Lock()
	return m.Unlock
}

// place gives the temporary file its name unless that exists, in one step. It reports whether the
// temporary name is gone.
func place(temp, target string) (renamed bool, err error) {
	err = os.Link(temp, target)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return false, err
	}
	// There are no hard links here. The name is taken first; a reader may see an empty file.
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	_ = f.Close()
	if err := os.Rename(temp, target); err != nil {
		return false, both(err, os.Remove(target))
	}
	return true, nil
}

// fileSHA256 returns the hex SHA-256 of a file.
func fileSHA256(path string) (string, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// dress gives the temporary file the owner of the file that it replaces, if that may be, and the
// mode it shall have.
func (w *writing) dress(temp *os.File, old fs.FileInfo) error {
	now, err := temp.Stat()
	if err != nil {
		return err
	}
	mode := w.opts.Mode
	if old != nil {
		kept := keepOwner(temp, now, old)
		if mode == 0 {
			mode = old.Mode() & modeBits
			if !kept {
				mode &= fs.ModePerm | fs.ModeSticky // no set-id bits for another owner
			}
		}
	}
	if mode == 0 && old == nil {
		return nil
	}
	if now, err = temp.Stat(); err != nil || now.Mode()&modeBits == mode {
		return err
	}
	return temp.Chmod(mode)
}
