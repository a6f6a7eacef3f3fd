package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/dirlock"
	"github.com/sandboxagent/sandboxagent/internal/durable"
)

// CopySuffix ends the name of a directory in which a copy is made: List does not list it, and
// RemoveUnfinished removes it.
const CopySuffix = ".copy"

// RemoveUnfinished removes from the sessions in the directory dir what killed programs have left,
// if it was not changed since before and is not in use: directories whose names end in CopySuffix,
// sessions without an entry, and sub-agents of sessions that do not exist.
func RemoveUnfinished(dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		info, ierr := e.Info()
		switch {
		case !e.IsDir() || errors.Is(ierr, fs.ErrNotExist): // no session, or gone meanwhile
		case ierr != nil:
			err = errors.Join(err, ierr)
		case info.ModTime().Before(before) && !InUse(at) && isUnfinished(at):
			err = errors.Join(err, os.RemoveAll(at))
		}
	}
	return err
}

func isUnfinished(dir string) bool {
	if strings.HasSuffix(dir, CopySuffix) {
		return true
	}
	for e, err := range Read(filepath.Join(dir, JournalName)) {
		var s Started
		switch {
		case errors.Is(err, fs.ErrNotExist): // without one, Create has made the lock at most
			entries, rerr := os.ReadDir(dir)
			return rerr == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
				return e.Name() != dirlock.Name
			})
		case err != nil, e.Type != TypeStarted, json.Unmarshal(e.Data, &s) != nil, s.Parent == "":
			return false
		}
		_, err = os.Stat(filepath.Join(filepath.Dir(dir), s.Parent))
		return errors.Is(err, fs.ErrNotExist)
	}
	return true
}

// CopyOptions are options of Copy.
type CopyOptions struct {
	// Point is the last entry that is copied, one of Points; zero copies all.
	Point int64
	// Change may change the data of the entries TypeStarted and TypeResumed, which have the ID of the
	// copy; nil leaves them.
	Change func(*Started)
	// Lost, unless it is empty, is why the copy has no contents of changed files: see Snapshot.
	Lost string
	// Finish adds to the copy in a directory; nil adds nothing.
	Finish func(dir string) error
}

// Copy creates a session in the new directory dir with the entries of r and their times, and an
// entry TypeCopied. The outputs and objects
// come along, backups do not. The directory appears when all is there; after an error it does not
// exist. RemoveUnfinished, or the next copy to dir, removes that of a copy that was interrupted.
func (r *Record) Copy(dir string, o CopyOptions) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("copy the session %s to %s: %w", r.ID, dir, fs.ErrExist)
	}
	at := dir + CopySuffix
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	if err = r.copyTo(at, filepath.Base(dir), o); err == nil && o.Finish != nil {
		err = o.Finish(at)
	}
	if err == nil {
		err = os.Rename(at, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy the session %s: %w", r.ID, err), os.RemoveAll(at))
	}
	return nil
}

func (r *Record) copyTo(dir, id string, o CopyOptions) (err error) {
	var at time.Time // of the entry that is copied
	d, err := Create(dir, Options{Now: func() time.Time { return at }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var last int64
	for e, err := range Read(filepath.Join(r.Dir, JournalName)) {
		if err != nil {
			return err
		}
		if o.Point > 0 && !r.isBefore(e, o.Point) {
			continue
		}
		at = e.Time
		data, err := changedEntry(e, id, o)
		if err == nil {
			err = d.Append(e.Type, data)
		}
		if err != nil {
			return err
		}
		last++
	}
	at = time.Now()
	if o.Point > 0 {
		if err := d.Append(TypeRolledBack, RolledBack{To: last}); err != nil {
			return err
		}
	}
	if err := d.Append(TypeCopied, Copied{From: r.ID}); err != nil {
		return err
	}
	names := []string{outputsName}
	if o.Lost == "" {
		names = append(names, objectsName)
	}
	for _, name := range names {
		if err := copyFiles(filepath.Join(dir, name), filepath.Join(r.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// isBefore reports whether an entry belongs to the session at a point.
func (r *Record) isBefore(e Entry, point int64) bool {
	if e.Type == TypeSnapshot {
		return slices.ContainsFunc(r.snapshots, func(s recordedSnapshot) bool {
			return s.seq == e.Seq && s.point <= point
		})
	}
	return e.Seq <= point && !isDead(r.rollbacks, e.Seq)
}

// changedEntry returns the data of an entry for another session.
func changedEntry(e Entry, id string, o CopyOptions) (any, error) {
	change := o.Change
	if change == nil {
		change = func(*Started) {}
	}
	switch e.Type {
	case TypeStarted:
		var s Started
		err := json.Unmarshal(e.Data, &s)
		s.ID = id
		change(&s)
		return s, err
	case TypeResumed:
		var s Resumed
		err := json.Unmarshal(e.Data, &s)
		s.ID = id
		change(&s.Started)
		return s, err
	case TypeSnapshot:
		if o.Lost != "" {
			var s Snapshot
			err := json.Unmarshal(e.Data, &s)
			if s.Lost == "" && len(s.Changes) > 0 {
				s.Lost = o.Lost
			}
			return s, err
		}
	}
	return e.Data, nil
}

// copyFiles copies the files of a directory, which may be missing, to a new one.
func copyFiles(to, from string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyFile(filepath.Join(to, e.Name()), filepath.Join(from, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, durable.File(out), out.Close())
}
