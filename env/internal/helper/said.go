package helper

import (
	"strings"
	"sync"
)

// saidSize is how many bytes Said keeps.
const saidSize = 2 << 10

// Said keeps the end of what a helper writes to its standard error, for messages. The zero value is ready for use, by
// several goroutines at once.
type Said struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (s *Said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	if over := len(s.text) - saidSize; over > 0 {
		s.text = append(s.text[:0], s.text[over:]...)
	}
	return len(p), nil
}

// String returns it as text, without white space around it.
func (s *Said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(s.text)), "\uFFFD")
}
