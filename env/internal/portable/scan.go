package portable

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// scanSize is how much of a stream is read at once.
	scanSize = 64 << 10
	// maxRecord bounds what follows a mark in its record.
	maxRecord = 64
	// maxNumber bounds the numbers in a record.
	maxNumber = 1 << 31
)

// newMark returns a word that nothing in the place can guess or hit by chance.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// A record is what a shell says about an operation, in the middle of the output of the programs that it runs. On the stream
// it is the mark of the operation, the kind and two numbers, with blanks between them, and a newline. It is shorter than
// what a system writes to a pipe in one piece, so that no other writer's bytes get in.
type record struct {
	kind byte
	a, b int
}

// scanner separates the records of one operation after the other from the bytes around them.
type scanner struct {
	r          io.Reader
	buf        []byte
	start, end int // what has been read and not given yet
	err        error
}

func newScanner(r io.Reader) *scanner { return &scanner{r: r, buf: make([]byte, scanSize)} }

// next returns the next bytes of the stream, which stay valid until the next call, or the next record with this mark. What
// breaks the form of a record is env.ErrProtocol. The end of the stream is io.ErrUnexpectedEOF: a shell that lives keeps it
// open.
func (s *scanner) next(mark string) (data []byte, rec record, err error) {
	for {
		window := s.buf[s.start:s.end]
		at := bytes.Index(window, []byte(mark))
		if at == 0 {
			if line := bytes.IndexByte(window, '\n'); line >= 0 && line <= len(mark)+maxRecord {
				s.start += line + 1
				rec, err = parseRecord(string(window[len(mark):line]))
				return nil, rec, err
			}
			if len(window) > len(mark)+maxRecord {
				return nil, record{}, fmt.Errorf("%w: a record without end", env.ErrProtocol)
			}
		} else {
			safe := at
			if at < 0 {
				safe = len(window) - overlap(window, mark)
			}
			if safe > 0 {
				s.start += safe
				return window[:safe], record{}, nil
			}
		}
		if s.err != nil {
			return s.last()
		}
		s.fill()
	}
}

// last gives what is left of a stream that has ended.
func (s *scanner) last() ([]byte, record, error) {
	if window := s.buf[s.start:s.end]; len(window) > 0 {
		s.start = s.end
		return window, record{}, nil
	}
	return nil, record{}, s.err
}

// fill reads once, behind what is there.
func (s *scanner) fill() {
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	n, err := s.r.Read(s.buf[s.end:])
	s.end += n
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	s.err = err
}

// overlap returns how many bytes at the end of window may be the beginning of mark.
func overlap(window []byte, mark string) int {
	for n := min(len(window), len(mark)-1); n > 0; n-- {
		if string(window[len(window)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}

// parseRecord parses what stands between a mark and the end of its line.
func parseRecord(s string) (record, error) {
	fields := strings.Split(s, " ")
	if len(fields) == 4 && fields[0] == "" && len(fields[1]) == 1 {
		a, errA := strconv.ParseUint(fields[2], 10, 32)
		b, errB := strconv.ParseUint(fields[3], 10, 32)
		if errA == nil && errB == nil && a < maxNumber && b < maxNumber {
			return record{kind: fields[1][0], a: int(a), b: int(b)}, nil
		}
	}
	return record{}, fmt.Errorf("%w: malformed record %q", env.ErrProtocol, s)
}
