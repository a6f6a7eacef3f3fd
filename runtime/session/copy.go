package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Copy creates a session in the new directory dir with the entries of r: until a point, or all with
// point 0. Change gets the data of its entries TypeStarted and TypeResumed, with the ID of the new
// session, and may change them. The outputs and objects come along, backups do not. After an error
// dir is removed.
func (r *Record) Copy(dir string, point int64, change func(*Started)) (err error) {
	d, err := Create(dir, Options{})
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, d.Close()); err != nil {
			err = errors.Join(fmt.Errorf("copy the session %s: %w", r.ID, err), os.RemoveAll(dir))
		}
	}()
	var last int64
	for e, err := range Read(filepath.Join(r.Dir, JournalName)) {
		if err != nil {
			return err
		}
		if point > 0 && !r.isBefore(e, point) {
			continue
		}
		data, err := changedEntry(e, filepath.Base(dir), change)
		if err == nil {
			err = d.Append(e.Type, data)
		}
		if err != nil {
			return err
		}
		last++
	}
	if point > 0 {
		if err := d.Append(TypeRolledBack, RolledBack{To: last}); err != nil {
			return err
		}
	}
	for _, name := range []string{outputsName, objectsName} {
		if err := copyFiles(filepath.Join(dir, name), filepath.Join(r.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// isBefore reports whether an entry belongs to the session at a point.
func (r *Record) isBefore(e Entry, point int64) bool {
	if e.Type == TypeSnapshot {
		var s Snapshot
		at, ok := int64(0), false
		if json.Unmarshal(e.Data, &s) == nil {
			at, ok = r.pointOf[s.Call]
		}
		return ok && at <= point
	}
	return e.Seq <= point && !isDead(r.rollbacks, e.Seq)
}

// changedEntry returns the data of an entry for another session.
func changedEntry(e Entry, id string, change func(*Started)) (any, error) {
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
	return errors.Join(err, syncFile(out), out.Close())
}
