package session

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/internal/durable"
)

const objectsName = "objects"

// MaxObjects bounds the sum of the sizes of a session's objects, in bytes.
const MaxObjects = 1 << 30

// ErrFull means that the objects of a session would have more than MaxObjects bytes.
var ErrFull = fmt.Errorf("the stored files of the session would have more than %d MiB",
	MaxObjects>>20)

// PutObject stores, durably, the content of a file under its SHA-256, in hex digits, unless it is
// stored already. The error is ErrFull if it has no place.
func (d *Disk) PutObject(sha256 string, size int64, content io.Reader) error {
	name := objectFile(d.dir, sha256)
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := d.reserve(size); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "new-")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, durable.File(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store a file: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// OpenObject opens a stored content. A missing one is fs.ErrNotExist.
func (d *Disk) OpenObject(sha256 string) (*os.File, error) { return openObject(d.dir, sha256) }

// OpenObject is Disk.OpenObject of a session that is not open.
func (r *Record) OpenObject(sha256 string) (*os.File, error) { return openObject(r.Dir, sha256) }

func openObject(dir, sha256 string) (*os.File, error) {
	if raw, err := hex.DecodeString(sha256); err != nil || len(raw) != 32 {
		return nil, fmt.Errorf("object %q: %w", sha256, fs.ErrNotExist)
	}
	return os.Open(objectFile(dir, sha256))
}

func objectFile(dir, sha256 string) string { return filepath.Join(dir, objectsName, sha256) }

// reserve counts the bytes of a new object.
func (d *Disk) reserve(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects < 0 {
		d.objects = 0
		entries, _ := os.ReadDir(filepath.Join(d.dir, objectsName)) // a missing one has none
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				d.objects += info.Size()
			}
		}
	}
	if d.objects+size > MaxObjects {
		return ErrFull
	}
	d.objects += size
	return nil
}
