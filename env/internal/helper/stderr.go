package helper

import (
	"strings"
	"sync"
)

// stderrSize is how many bytes StderrTail keeps.
const stderrSize = 2 << 10

// StderrTail is an io.Writer that keeps the last 2 KiB of the stderr of a process, for errors. The
// zero value is empty and ready for use. Calls may be concurrent.
type StderrTail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (s *StderrTail) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	if over := len(s.text) - stderrSize; over > 0 {
		s.text = append(s.text[:0], s.text[over:]...)
	}
	return len(p), nil
}

// String returns the bytes kept as valid UTF-8, without white space around them.
func (s *StderrTail) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(s.text)), "\uFFFD")
}
