package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/dirlock"
	"github.com/sandboxagent/sandboxagent/internal/durable"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Names in the directory of a batch.
const (
	TasksName    = "tasks.jsonl"
	ResultsName  = "results.jsonl"
	AttemptsName = "attempts.jsonl"
	attemptsDir  = "tasks"
)

// Record is the result of a task: a line of results.jsonl, or of attempts.jsonl.
type Record struct {
	TaskID string `json:"task_id"`
	// Attempt counts the attempts at the task from 1, also those that gave no result.
	Attempt int               `json:"attempt"`
	Labels  map[string]string `json:"labels,omitempty"`
	Started time.Time         `json:"started"`
	Ended   time.Time         `json:"ended"`
	// OpenMS is the part of the time until the environment was open, in milliseconds.
	OpenMS int64 `json:"open_ms"`
	event.Result
}

// attemptOf identifies an attempt. Its number is another's, too, where the directories of attempts
// were removed.
type attemptOf struct {
	task   string
	number int
	began  int64
}

// of returns the attempt of a record.
func (r *Record) of() attemptOf { return attemptOf{r.TaskID, r.Attempt, r.Started.UnixNano()} }

// Passed reports whether the task is done.
func (r *Record) Passed() bool { return r.ExitCode == 0 }

// ErrInUse means that another process works on the batch.
var ErrInUse = errors.New("another process works on the batch")

// ErrOtherTasks means that a directory has the results of other tasks.
var ErrOtherTasks = errors.New("the directory has results of other tasks")

// lock locks a directory.
func lock(dir string) (*dirlock.Lock, error) {
	l, err := dirlock.Acquire(dir)
	if errors.Is(err, dirlock.ErrHeld) {
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return l, nil
}

// InUse reports whether a process works on the batch in dir.
func InUse(dir string) bool { return dirlock.Held(dir) }

// Tasks returns the tasks of the batch in dir.
func Tasks(dir string) ([]Task, error) {
	f, err := os.Open(filepath.Join(dir, TasksName))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return ReadTasks(f)
}

// Results returns the results of the batch in dir, in their order. The last line may be
// incomplete: it is ignored. After an error the sequence ends.
func Results(dir string) iter.Seq2[*Record, error] { return recordsOf(dir, ResultsName) }

// Attempts is Results for the attempts that are not the results of their tasks.
func Attempts(dir string) iter.Seq2[*Record, error] { return recordsOf(dir, AttemptsName) }

func recordsOf(dir, name string) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		err := readFile(dir, name, func(r *Record, _ []byte) bool { return yield(r, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// readFile calls found with each record of a file, which may be missing, and its line until that
// returns false.
func readFile(dir, name string, found func(*Record, []byte) bool) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	_, err = readRecords(f, name, found)
	return err
}

// readRecords calls found with each record of a file of that name and its line until that returns
// false. It returns the length of all complete lines before that.
func readRecords(
	r io.Reader, name string, found func(*Record, []byte) bool,
) (length int64, err error) {
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return length, nil
		}
		if err != nil {
			return length, err
		}
		record := new(Record)
		if err := json.Unmarshal(line, record); err != nil || record.TaskID == "" {
			return length, fmt.Errorf("%s: line %d is no result; mend or remove it", name, n)
		}
		if !found(record, line) {
			return length, nil
		}
		length += int64(len(line))
	}
}

// records is an open file of records.
type records struct {
	mu sync.Mutex
	f  *os.File
	// length is that of all complete lines; failed is the error of a line that is not.
	length int64
	failed error
}

// openRecords opens a file of records in dir, removes an incomplete last line, and calls found
// with each record.
func openRecords(dir, name string, found func(*Record)) (*records, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	length, err := readRecords(f, name, func(r *Record, _ []byte) bool { found(r); return true })
	if err == nil {
		err = errors.Join(f.Truncate(length), durable.File(f), durable.Dir(dir))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &records{f: f, length: length}, nil
}

// add appends a record, which is durable then. After an error it accepts nothing more.
func (s *records) add(r *Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = s.f.Write(append(line, '\n'))
	}
	if err == nil {
		err = durable.File(s.f)
	}
	if err != nil {
		s.failed = errors.Join(fmt.Errorf("store the result of %s: %w", r.TaskID, err),
			s.f.Truncate(s.length))
		return s.failed
	}
	s.length += int64(len(line)) + 1
	return nil
}

// forget moves the results for which gone returns true from the results of the batch in dir to its
// attempts. The caller has the lock.
func forget(dir string, gone func(*Record) bool) error {
	var kept, attempts bytes.Buffer
	have := make(map[attemptOf]bool) // a crash may have left some in both files
	err := readFile(dir, AttemptsName, func(r *Record, line []byte) bool {
		have[r.of()] = true
		attempts.Write(line)
		return true
	})
	if err != nil {
		return err
	}
	moved := false
	err = readFile(dir, ResultsName, func(r *Record, line []byte) bool {
		switch {
		case !gone(r):
			kept.Write(line)
			return true
		case !have[r.of()]:
			attempts.Write(line)
		}
		moved = true
		return true
	})
	if err != nil || !moved {
		return err
	}
	if err := replace(dir, AttemptsName, attempts.Bytes()); err != nil {
		return err
	}
	return replace(dir, ResultsName, kept.Bytes())
}

// replace writes a file of dir, completely or not at all. An error may also be that this is not
// durable.
func replace(dir, name string, data []byte) (err error) {
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = durable.File(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return durable.Dir(dir)
}

// storeTasks stores the tasks of a new batch in dir, or compares them with those that it has.
func storeTasks(dir string, tasks []Task) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	for _, t := range tasks {
		if err := enc.Encode(t); err != nil {
			return err
		}
	}
	have, err := os.ReadFile(filepath.Join(dir, TasksName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replace(dir, TasksName, data.Bytes())
	case err != nil:
		return err
	case !slices.Equal(have, data.Bytes()):
		return fmt.Errorf("%s: %w", dir, ErrOtherTasks)
	}
	return nil
}

// newAttempt makes the directory of the next attempt at a task.
func newAttempt(dir, id string) (number int, name string, err error) {
	parent := filepath.Join(dir, attemptsDir, id)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return 0, "", err
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return 0, "", err
	}
	for number = len(entries) + 1; ; number++ {
		name = filepath.Join(parent, fmt.Sprint(number))
		if err := os.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
			return number, name, err
		}
	}
}

// AttemptDir returns the directory of the attempt of a record of the batch in dir.
func AttemptDir(dir string, r *Record) string {
	return filepath.Join(dir, attemptsDir, r.TaskID, fmt.Sprint(r.Attempt))
}

// Collected is a result that another process has made.
type Collected struct {
	TaskID string
	// Earlier are attempts of that process before the one that gave the result. Only their records
	// are left.
	Earlier []*Record
	// Restore writes the files of the attempt to an empty directory and returns the record.
	Restore func(dir string) (*Record, error)
}

// Collect adds results of other processes to the batch in dir, which may be new: those of tasks
// that have none there. Each is stored as the next attempt at its task. After an error those
// before it stay. It returns the totals of the batch. The errors are those of Run.
func Collect(
	dir string, tasks []Task, from iter.Seq2[Collected, error],
) (_ Totals, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Totals{}, err
	}
	l, err := lock(dir)
	if err != nil {
		return Totals{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := storeTasks(dir, tasks); err != nil {
		return Totals{}, err
	}
	done := make(map[string]bool)
	results, err := openRecords(dir, ResultsName, func(r *Record) { done[r.TaskID] = true })
	if err != nil {
		return Totals{}, err
	}
	defer func() { err = errors.Join(err, results.f.Close()) }()
	began := make(map[string]bool) // attempts by task and time: a crash has left those of no result
	key := func(r *Record) string { return r.TaskID + r.Started.Format(time.RFC3339Nano) }
	attempts, err := openRecords(dir, AttemptsName, func(r *Record) { began[key(r)] = true })
	if err != nil {
		return Totals{}, err
	}
	defer func() { err = errors.Join(err, attempts.f.Close()) }()
	for c, err := range from {
		if err != nil {
			return Totals{}, err
		}
		if done[c.TaskID] {
			continue
		}
		for _, r := range c.Earlier {
			r.TaskID = c.TaskID
			if began[key(r)] {
				continue
			}
			if r.Attempt, _, err = newAttempt(dir, c.TaskID); err == nil {
				err = attempts.add(r)
			}
			if err != nil {
				return Totals{}, err
			}
		}
		number, name, err := newAttempt(dir, c.TaskID)
		if err != nil {
			return Totals{}, err
		}
		r, err := c.Restore(name)
		if err != nil {
			return Totals{}, fmt.Errorf("store the result of %s: %w", c.TaskID, err)
		}
		r.TaskID, r.Attempt = c.TaskID, number
		if err := results.add(r); err != nil {
			return Totals{}, err
		}
		done[c.TaskID] = true
	}
	return Summarize(dir)
}
