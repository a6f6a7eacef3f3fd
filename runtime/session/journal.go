package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/durable"
)

// MaxLine is the longest line of a journal, in bytes, that Append writes and Read accepts.
const MaxLine = 256 << 20

// Entry is one line of a journal.
type Entry struct {
	Seq    int64           `json:"seq"`
	ID     string          `json:"id"`
	Parent string          `json:"parent"`
	Time   time.Time       `json:"time"`
	Type   string          `json:"type"`
	Data   json.RawMessage `json:"data"`
}

// Journal appends entries to a file. It is safe for concurrent use.
type Journal struct {
	newID func() string
	now   func() time.Time

	mu   sync.Mutex
	file *os.File
	last position
	err  error
}

// CorruptError is the position of damage in a journal.
type CorruptError struct {
	Path string
	// Line counts from 1; Offset is in bytes from the start.
	Line   int
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: line %d (byte %d) is damaged: %s", e.Path, e.Line, e.Offset, e.Reason)
}

// newJournal returns a journal that appends to f. Ids returns the IDs of entries, unless opts does.
func newJournal(f *os.File, opts Options, ids func() string) *Journal {
	j := &Journal{file: f, newID: opts.NewID, now: opts.Now}
	if j.newID == nil {
		j.newID = ids
	}
	if j.now == nil {
		j.now = time.Now
	}
	return j
}

// Append adds an entry with data as JSON. After an error every call returns that error, which is
// ErrInUse if another process has written to the file, though this one has the lock.
func (j *Journal) Append(typ string, data any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return j.fail(fmt.Errorf("journal entry %s: %w", typ, err))
	}
	e := Entry{
		Seq: j.last.seq + 1, ID: j.newID(), Parent: j.last.id, Time: j.now(), Type: typ, Data: raw,
	}
	line, err := encodeLine(e)
	if err != nil {
		return j.fail(fmt.Errorf("journal entry %s: %w", typ, err))
	}
	if len(line) > MaxLine {
		return j.fail(fmt.Errorf("journal entry %s: %d bytes are more than %d", typ, len(line), MaxLine))
	}
	info, err := j.file.Stat()
	if err == nil && info.Size() != j.last.offset {
		err = ErrInUse
	}
	if err == nil {
		_, err = j.file.Write(line)
	}
	if err != nil {
		return j.fail(fmt.Errorf("write the session journal: %w", err))
	}
	j.last = position{e.Seq, e.ID, j.last.offset + int64(len(line))}
	return nil
}

// Sync makes all appended entries durable. After an error every call returns that error.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if err := durable.File(j.file); err != nil {
		return j.fail(fmt.Errorf("sync the session journal: %w", err))
	}
	return nil
}

func (j *Journal) fail(err error) error {
	j.err = err
	return err
}

// Close syncs and closes the file. Later calls of Append give fs.ErrClosed.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, fs.ErrClosed) {
		return nil
	}
	first := j.err
	if first == nil {
		first = durable.File(j.file)
	}
	if err := j.file.Close(); first == nil {
		first = err
	}
	j.err = fmt.Errorf("session journal: %w", fs.ErrClosed)
	return first
}

// checksum has no variable for the table, which would slow down every start of the program; package
// crc32 creates it once.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

const crcField = `,"crc":"`

func encodeLine(e Entry) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	sum := checksum(b)
	b = append(b, crcField...)
	return fmt.Appendf(b, "%08x\"}\n", sum), nil
}

func decodeLine(line []byte) (Entry, error) {
	at := bytes.LastIndex(line, []byte(crcField))
	if at < 0 {
		return Entry{}, errors.New("it has no checksum")
	}
	valid := fmt.Sprintf("%s%08x\"}", crcField, checksum(line[:at]))
	if string(line[at:]) != valid {
		return Entry{}, errors.New("its checksum does not match")
	}
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// damagedEnd returns an error for the end of a journal, without a line end, if that is not the
// start of an entry: then the end of the line of an entry is damaged.
func damagedEnd(rest []byte) error {
	var line json.RawMessage
	in := json.NewDecoder(bytes.NewReader(rest))
	if err := in.Decode(&line); err != nil || in.InputOffset() == int64(len(rest)) {
		return nil
	}
	if _, err := decodeLine(line); err != nil {
		return nil
	}
	return errors.New("other bytes follow its entry")
}

// Read yields the entries of the journal at path in order. A last line that is cut is ignored; a
// damaged line ends the sequence with a *CorruptError.
func Read(path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer f.Close() //nolint:errcheck // it was only read
		readEntries(f, path, yield)
	}
}

// position is the end of an entry: its number and ID, and the offset in bytes of the next line.
type position struct {
	seq    int64
	id     string
	offset int64
}

// readEntries returns the end of the last entry that it has yielded.
func readEntries(r io.Reader, path string, yield func(Entry, error) bool) (last position) {
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		var e Entry
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF):
			if err = damagedEnd(line); err == nil {
				return last
			}
		case err != nil:
			yield(Entry{}, fmt.Errorf("read %s, line %d: %w", path, n, err))
			return last
		default:
			e, err = decodeLine(line[:len(line)-1])
			if err == nil && (e.Seq != last.seq+1 || e.Parent != last.id) {
				err = fmt.Errorf("it does not follow entry %d", last.seq)
			}
		}
		if err != nil {
			yield(Entry{}, &CorruptError{
				Path: path, Line: n, Offset: last.offset, Reason: err.Error(),
			})
			return last
		}
		last = position{e.Seq, e.ID, last.offset + int64(len(line))}
		if !yield(e, nil) {
			return last
		}
	}
}

// readLine returns a line with its end. If the input ends before one, it returns the rest and
// io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case len(line) > MaxLine:
			return nil, fmt.Errorf("the line is longer than %d bytes", MaxLine)
		}
	}
}
