package clienttest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// Flood is an answer that does not end, and the bound that ends it.
type Flood struct {
	// Start is the start of the stream, and Next the piece number i of the rest.
	Start string
	Next  func(i int) string
	Err   error
	// Text is part of the message.
	Text string
}

const (
	// maxHeld is what a client may hold of an answer, in bytes: the decoded form beside the text.
	maxHeld = 3 * llm.MaxAnswer
	// maxSent bounds the bytes of a server until the client leaves: the bound, and bytes on the way.
	// Much of a compressed answer is on the way.
	maxSent = llm.MaxAnswer + 32<<20
)

// floods are floods in every wire format.
func floods() map[string]Flood {
	line := strings.Repeat("x", 64<<10)
	values := strings.Repeat("{},", 16<<10)
	return map[string]Flood{
		"comments": {
			Next: func(int) string { return ": " + line + "\n\n" },
			Err:  llm.ErrAnswerTooLarge, Text: "the answer is longer than 32 MiB",
		},
		"line": {
			Start: "data: ", Next: func(int) string { return line },
			Err: llm.ErrAnswerTooLarge, Text: "an event is longer than 16 MiB",
		},
		"values": {
			Next: func(i int) string {
				list := strings.Repeat(values, 32)
				return SSE(`{"type":"x","choices":[` + list + `{}],"candidates":[` + list + `{}]}`)
			},
			Err: llm.ErrAnswerTooLarge, Text: "an event has more than 262144 values",
		},
	}
}

// A client ends an answer beyond a bound, and holds a bounded part of it, whatever the server
// sends.
func testFlood(t *testing.T, w Wire) {
	for _, table := range []map[string]Flood{floods(), w.Floods} {
		for name, flood := range table {
			t.Run(name, func(t *testing.T) {
				s := &flooder{flood: flood}
				w.checkFlood(t, s, flood, http.StatusOK)
			})
		}
	}
	text := w.Floods["text"]
	t.Run("compressed", func(t *testing.T) {
		w.checkFlood(t, &flooder{flood: text, compressed: true}, text, http.StatusOK)
	})
	for name, status := range map[string]int{"error": 500, "no stream": 200} {
		for _, compressed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compressed: %t", name, compressed), func(t *testing.T) {
				s := &flooder{flood: text, compressed: compressed, status: status, kind: "application/json"}
				w.checkFlood(t, s, Flood{}, status)
			})
		}
	}
}

// checkFlood fails the test unless the client ends the answer of s with the error of want, without
// an attempt more, and has held no more than maxHeld.
func (w Wire) checkFlood(t *testing.T, s *flooder, want Flood, status int) {
	t.Helper()
	srv := httptest.NewServer(s)
	c := w.Client(t, Config{APIKey: Key, BaseURL: srv.URL, HTTPClient: srv.Client()})
	if want.Err != nil {
		c = atOnce(c, 3)
	}
	before := held()
	_, err := llm.Complete(t.Context(), c, w.Request())
	after := held() - before
	srv.Close()
	runtime.KeepAlive(err)
	if want.Err != nil {
		w.checkError(t, err, llm.KindAnswerTooLarge, status, want.Text)
	}
	if err == nil || want.Err != nil && !errors.Is(err, want.Err) {
		t.Errorf("got %v, want %v", err, want.Err)
	}
	t.Logf("sent %d MiB in %d requests, held %d MiB, at most %d MiB", s.sent>>20, s.requests,
		after>>20, (s.held-before)>>20)
	if s.requests != 1 || s.sent > maxSent && !s.compressed {
		t.Errorf("the server sent %d MiB in %d answers", s.sent>>20, s.requests)
	}
	if peak := max(after, s.held-before); peak > maxHeld {
		t.Errorf("%d MiB were held", peak>>20)
	}
}

// held returns the bytes that are in use on the heap.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// flooder answers with a flood until the client leaves.
type flooder struct {
	flood      Flood
	compressed bool
	status     int
	kind       string

	mu       sync.Mutex
	requests int
	// sent counts bytes before compression. held is the highest use of the heap of this process, which
	// has the client, while the client reads.
	sent, held int64
}

func (s *flooder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	_, _ = io.Copy(io.Discard, r.Body)
	kind := s.kind
	if kind == "" {
		kind = "text/event-stream"
	}
	rw.Header().Set("Content-Type", kind)
	if s.compressed {
		rw.Header().Set("Content-Encoding", "gzip")
	}
	if s.status != 0 {
		rw.WriteHeader(s.status)
	}
	next := s.flood.Next
	if s.compressed {
		next = bomb(s.flood.Next)
	}
	if _, err := io.WriteString(rw, s.packed(s.flood.Start)); err != nil {
		return
	}
	measured := int64(0)
	for i := 0; r.Context().Err() == nil && s.sent <= 2*maxSent; i++ {
		piece := next(i)
		if _, err := io.WriteString(rw, piece); err != nil {
			return
		}
		if s.compressed {
			s.sent += bombSize
		} else {
			s.sent += int64(len(piece))
		}
		if s.sent >= measured+8<<20 {
			s.held = max(s.held, held())
			measured = s.sent
		}
	}
}

func (s *flooder) packed(text string) string {
	if !s.compressed {
		return text
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// bombSize is the least size of a decoded piece of a bomb.
const bombSize = 1 << 20

// bomb returns pieces that become bombSize bytes of a flood.
func bomb(next func(i int) string) func(int) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for size, i := 0, 0; size < bombSize; i++ {
		n, _ := io.WriteString(z, next(i))
		size += n
	}
	_ = z.Close()
	return func(int) string { return b.String() }
}

// longCall returns a call whose arguments have that many bytes.
func longCall(length int) llmtest.Call {
	const start, end = `{"command":"`, `"}`
	return llmtest.Call{
		ID: "a", Name: "shell",
		Arguments: start + strings.Repeat("x", length-len(start)-len(end)) + end,
	}
}
