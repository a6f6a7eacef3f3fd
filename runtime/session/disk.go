package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/dirlock"
	"github.com/sandboxagent/sandboxagent/internal/durable"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Names in the directory of a session.
const (
	JournalName = "journal.jsonl"
	outputsName = "outputs"
	backupsName = "backups"
)

// Disk is a Store in a directory of the host.
type Disk struct {
	*Journal
	dir  string
	lock *dirlock.Lock

	mu      sync.Mutex
	outputs map[string]string // call ID → file
	backups int               // the number of backups that exist
	objects int64             // bytes of all objects; negative until they are counted
}

var _ Store = (*Disk)(nil)

// Options are test seams of Create and Open. Programs use the zero value.
type Options struct {
	// NewID returns the ids of entries; nil numbers them: "1", "2" and so on.
	NewID func() string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// ErrInUse means that another process works on the session.
var ErrInUse = errors.New("another process works on the session")

// Create creates the directory dir with mode 0700, its missing parents, and an empty journal in it.
// For an existing directory the error is fs.ErrExist.
func Create(dir string, opts Options) (*Disk, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("create the session directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the session directory: %w", err)
	}
	return newDisk(dir, func(d *Disk) error {
		const flags = os.O_CREATE | os.O_EXCL | os.O_WRONLY | os.O_APPEND
		f, err := os.OpenFile(filepath.Join(dir, JournalName), flags, 0o600)
		if err != nil {
			return fmt.Errorf("create the session journal: %w", err)
		}
		n := 0
		d.Journal = newJournal(f, opts, func() string {
			n++
			return strconv.Itoa(n)
		})
		for _, name := range []string{dir, filepath.Dir(dir)} {
			if err := durable.Dir(name); err != nil {
				return errors.Join(fmt.Errorf("sync the session directory: %w", err), f.Close())
			}
		}
		return nil
	})
}

// Open opens the session in the directory dir to go on with it, and removes the incomplete last
// line that a crash has left. The error is ErrInUse while another process has it open. Entries have
// IDs of the form N.ID, where this is the N-th time that the session is open.
func Open(dir string, opts Options) (*Disk, *Record, error) {
	var r *Record
	d, err := newDisk(dir, func(d *Disk) error {
		f, err := os.OpenFile(filepath.Join(dir, JournalName), os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		if r, err = load(f, dir, nil); err == nil && r.Torn > 0 {
			err = errors.Join(f.Truncate(r.last.offset), durable.File(f))
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
		n := r.last.seq
		d.Journal = newJournal(f, opts, func() string {
			n++
			return fmt.Sprintf("%d.%d", r.writers+1, n)
		})
		d.last = r.last
		for id, name := range r.outputs {
			d.outputs[id] = filepath.Join(dir, outputsName, name)
		}
		kept, _ := os.ReadDir(filepath.Join(dir, backupsName)) // createFile skips names that exist
		d.backups = len(kept)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open the session %s: %w", filepath.Base(dir), err)
	}
	return d, r, nil
}

// newDisk locks the directory and calls open, which sets the journal.
func newDisk(dir string, open func(d *Disk) error) (*Disk, error) {
	lock, err := dirlock.Acquire(dir)
	switch {
	case errors.Is(err, dirlock.ErrHeld):
		return nil, ErrInUse
	case err != nil:
		return nil, fmt.Errorf("lock the session: %w", err)
	}
	d := &Disk{dir: dir, lock: lock, outputs: map[string]string{}, objects: -1}
	if err := open(d); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// InUse reports whether a process has the session in the directory dir open.
func InUse(dir string) bool {
	return dirlock.Held(dir)
}

// Remove removes the session in the directory dir, damaged or not, with those of its sub-agents.
// The error is ErrInUse while a process has it open.
func Remove(dir string) error {
	d, err := newDisk(dir, func(*Disk) error { return nil })
	if err != nil {
		return fmt.Errorf("remove the session %s: %w", filepath.Base(dir), err)
	}
	if runtime.GOOS == "windows" { // which removes no open file
		err = d.lock.Close()
	} else {
		defer d.lock.Close() //nolint:errcheck // its file is removed
	}
	entries, rerr := os.ReadDir(filepath.Dir(dir))
	err = errors.Join(err, rerr)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(dir)+"-agent_") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(dir), e.Name())))
		}
	}
	gone := dir + CopySuffix // RemoveUnfinished removes the rest if the program dies
	if rerr := errors.Join(os.RemoveAll(gone), os.Rename(dir, gone)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return errors.Join(err, os.RemoveAll(gone))
}

// Close closes the journal and lets other processes open the session.
func (d *Disk) Close() error { return errors.Join(d.Journal.Close(), d.lock.Close()) }

// Dir implements Store.
func (d *Disk) Dir() string { return d.dir }

// Spool implements Store.
func (d *Disk) Spool() tool.Spool { return spool{d} }

// Backups implements Store.
func (d *Disk) Backups() tool.Backups { return backups{d} }

// OpenOutput opens the newest output of the call id.
func (d *Disk) OpenOutput(id string) (io.ReadCloser, error) {
	d.mu.Lock()
	name, ok := d.outputs[id]
	d.mu.Unlock()
	if !ok {
		return nil, noOutput(id)
	}
	return os.Open(name)
}

type spool struct{ d *Disk }

// Create derives the file's name from id, which may be any text. A second output of an id gets
// another file.
func (s spool) Create(id string) (tool.SpoolFile, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := createFile(filepath.Join(d.dir, outputsName), len(d.outputs)+1, id)
	if err != nil {
		return nil, fmt.Errorf("store output: %w", err)
	}
	d.outputs[id] = f.Name()
	return output{f}, nil
}

type output struct{ *os.File }

// Close syncs and closes the file.
func (o output) Close() error { return errors.Join(durable.File(o.File), o.File.Close()) }

// Open opens the file for reading from its start.
func (o output) Open() (io.ReadCloser, error) { return os.Open(o.Name()) }

type backups struct{ d *Disk }

// Keep writes content, durably, to a new file whose name it derives from name, which may be any
// text.
func (b backups) Keep(name string, content io.Reader) (file string, err error) {
	d := b.d
	d.mu.Lock()
	d.backups++
	n := d.backups
	d.mu.Unlock()
	f, err := createFile(filepath.Join(d.dir, backupsName), n, path.Base(name))
	if err != nil {
		return "", fmt.Errorf("store backup: %w", err)
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, output{f}.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("store backup: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// createFile creates dir and a new file in it, named by the number n and the characters of id that
// every system accepts.
func createFile(dir string, n int, id string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%04d-%s", n, safeName(id)))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	for n := 2; errors.Is(err, fs.ErrExist); n++ {
		f, err = os.OpenFile(fmt.Sprintf("%s-%d", name, n), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	return f, err
}

func safeName(id string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, id)
	return safe[:min(len(safe), 64)]
}
