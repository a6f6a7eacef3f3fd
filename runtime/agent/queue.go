package agent

import (
	"strings"
	"sync"
)

// queue holds messages until the loop takes them. It is safe for concurrent use.
type queue struct {
	mu       sync.Mutex
	messages []string
}

func (q *queue) add(message string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = append(q.messages, message)
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages) == 0
}

// text returns all messages.
func (q *queue) text() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.Join(q.messages, "\n")
}

// takeAll empties the queue.
func (q *queue) takeAll() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.messages
	q.messages = nil
	return all
}

// take removes the first message.
func (q *queue) take() (message string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) == 0 {
		return "", false
	}
	message = q.messages[0]
	q.messages = q.messages[1:]
	return message, true
}
