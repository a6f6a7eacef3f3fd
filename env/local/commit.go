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

// lock locks the file path and returns the function that unlocks it. Several names of one directory
// share a lock.
func (l *locks) lock(path string) (unlock func()) {
	dir, base := filepath.Split(path)
	h := fnv.New32a()
	_, _ = io.WriteString(h, dirKey(dir)+"/"+base)
	m := &l[h.Sum32()%uint32(len(l))]
	m.Lock()
	return m.Unlock
}

// renameNew atomically renames temp to target unless target exists. It reports whether temp has
// been renamed; otherwise both names may exist.
func renameNew(temp, target string) (renamed bool, err error) {
	err = os.Link(temp, target)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return false, err
	}
	// The file system has no hard links. Create the target first; a reader may see an empty file.
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

// applyMetadata sets the owner of the temporary file to that of the replaced file, if allowed, and
// its mode.
func (w *writing) applyMetadata(temp *os.File, old fs.FileInfo) error {
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
