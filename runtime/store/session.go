package store

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
)

// Names inside a session's folder.
const (
	JournalName = "journal.jsonl"
	outputsName = "outputs"
	backupsName = "backups"
)

// Session is the folder of one session. It is safe for concurrent use.
type Session struct {
	*Journal
	dir string

	mu      sync.Mutex
	outputs map[string]string // call id → file
	backups int               // how many there are
}

// Options are test seams of Create. The zero value is right for programs.
type Options struct {
	// NewID makes the ids of entries; nil numbers them: "1", "2" and so on.
	NewID func() string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Create makes the folder dir, which must not exist yet, with mode 0700, and an empty journal in
// it. Missing parents are made. An existing folder is fs.ErrExist.
func Create(dir string, opts Options) (*Session, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.NewID == nil {
		n := 0
		opts.NewID = func() string {
			n++
			return strconv.Itoa(n)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make the session folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the session folder: %w", err)
	}
	j, err := createJournal(filepath.Join(dir, JournalName), opts.NewID, opts.Now)
	if err != nil {
		return nil, fmt.Errorf("make the session journal: %w", err)
	}
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if err := syncFolder(folder); err != nil {
			return nil, errors.Join(fmt.Errorf("make the session folder durable: %w", err), j.Close())
		}
	}
	return &Session{Journal: j, dir: dir, outputs: map[string]string{}}, nil
}

// Dir is the folder of the session.
func (s *Session) Dir() string { return s.dir }

// Output is a file that keeps the output of one call.
type Output struct {
	*os.File
}

// Close makes the file durable and closes it.
func (o Output) Close() error { return errors.Join(syncFile(o.File), o.File.Close()) }

// Open opens the file for reading from its start.
func (o Output) Open() (io.ReadCloser, error) { return os.Open(o.Name()) }

// CreateOutput makes the file that keeps the output of the call id. The file's name is derived from
// id, which may be any text; a second output of the same id gets a file of its own, and OpenOutput
// finds the newest.
func (s *Session) CreateOutput(id string) (Output, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.dir, outputsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Output{}, fmt.Errorf("keep output: %w", err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%04d-%s", len(s.outputs)+1, safeName(id)))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	for n := 2; errors.Is(err, fs.ErrExist); n++ {
		f, err = os.OpenFile(fmt.Sprintf("%s-%d", name, n), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return Output{}, fmt.Errorf("keep output: %w", err)
	}
	s.outputs[id] = f.Name()
	return Output{f}, nil
}

// OpenOutput opens the newest output of the call id; fs.ErrNotExist if there is none.
func (s *Session) OpenOutput(id string) (io.ReadCloser, error) {
	s.mu.Lock()
	name, ok := s.outputs[id]
	s.mu.Unlock()
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: "output://" + id, Err: fs.ErrNotExist}
	}
	return os.Open(name)
}

// KeepBackup stores what the file name of an environment held, durably, and returns the name of the
// file on the host that has it. That is derived from name, which may be any text, and new each
// time.
func (s *Session) KeepBackup(name string, content io.Reader) (file string, err error) {
	dir := filepath.Join(s.dir, backupsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep backup: %w", err)
	}
	s.mu.Lock()
	s.backups++
	file = filepath.Join(dir, fmt.Sprintf("%04d-%s", s.backups, safeName(path.Base(name))))
	s.mu.Unlock()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("keep backup: %w", err)
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, Output{f}.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("keep backup: %w", err), os.Remove(file))
	}
	return file, nil
}

// syncFolder makes the names in a folder durable. Windows has no such call, and does not need it.
func syncFolder(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(f), f.Close())
}

// safeName keeps what is harmless in a file name on every system.
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
