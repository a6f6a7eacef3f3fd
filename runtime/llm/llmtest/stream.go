package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// sseEvent is one event of a stream.
type sseEvent struct {
	name string
	data []byte
	// at is the point of the stream for faults; empty for most events.
	at Point
	// surplus is true after the event that completes the answer.
	surplus bool
}

// filled returns the reply with the defaults of its empty fields.
func (r Reply) filled(req *Request) Reply {
	calls := make([]Call, len(r.Calls))
	size := len(r.Text) + len(r.Reasoning)
	for i, c := range r.Calls {
		if c.ID == "" && !c.NoID {
			c.ID = fmt.Sprintf("call_%d_%d", req.Number, i)
		}
		calls[i] = c
		size += len(c.Name) + len(c.Arguments)
	}
	r.Calls = calls
	if r.Usage == (llm.Usage{}) {
		r.Usage = llm.Usage{
			Input: int64(len(req.Body)/4 + 1), Output: int64(size/4 + 1),
			Reasoning: int64(len(r.Reasoning) / 4),
		}
	}
	if r.Model == "" {
		r.Model = req.Model
	}
	if r.Finish == "" {
		r.Finish = llm.FinishStop
		if len(calls) > 0 {
			r.Finish = llm.FinishToolCalls
		}
	}
	return r
}

// pieces splits s between characters.
func pieces(s string) []string {
	size := max(12, len(s)/64)
	var out []string
	start := 0
	for i := range s {
		if i-start >= size {
			out = append(out, s[start:i])
			start = i
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// stream writes the events of one answer.
type stream struct {
	server   *Server
	protocol protocol
	w        http.ResponseWriter
	r        *http.Request
	fault    Fault
}

// send writes the events, with the faults.
func (s *stream) send(events []sseEvent) {
	f := s.fault
	events, action := s.upTo(events)
	var frames [][]byte
	length := 0
	for i, e := range events {
		if f.NoDone && e.surplus {
			continue
		}
		frame := s.frame(e, i)
		frames = append(frames, frame)
		length += len(frame)
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	if f.Gzip {
		h.Set("Content-Encoding", "gzip")
	}
	if f.Length != 0 {
		h.Set("Content-Length", strconv.Itoa(max(length+f.Length, 0)))
	}
	s.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(s.w).Flush()
	for i, frame := range frames {
		if i > 0 && !s.server.wait(s.r.Context(), f.Pace) {
			return
		}
		if !s.write(frame) {
			return
		}
	}
	action()
}

// upTo returns the events up to the point of the fault, the last one cut in the middle if the point
// is inside an event, and the action after them.
func (s *stream) upTo(events []sseEvent) ([]sseEvent, func()) {
	f := s.fault
	action, at := func() {}, f.End
	switch {
	case f.Cut != "":
		action, at = func() { hangUp(s.w) }, f.Cut
	case f.Hang != "":
		action, at = s.hang, f.Hang
	case f.Fail != "":
		at = f.Fail
	}
	if at == "" {
		return events, action
	}
	seen := 0
	for i, e := range events {
		if e.at != at {
			continue
		}
		seen++
		if at == AtArguments && seen == 1 {
			continue
		}
		kept := events[:i:i]
		if f.Fail != "" {
			return append(kept, s.protocol.failure(f)), action
		}
		if at == AtText || at == AtArguments {
			kept = append(kept, sseEvent{name: e.name, data: e.data[:len(e.data)/2], at: "half"})
		}
		return kept, action
	}
	return events, action
}

func (s *stream) hang() {
	select {
	case <-s.r.Context().Done():
	case <-s.server.quit:
	}
}

// frame returns the bytes of the event number.
func (s *stream) frame(e sseEvent, number int) []byte {
	var b strings.Builder
	if s.fault.Comments {
		b.WriteString(": keep-alive\n\n")
		fmt.Fprintf(&b, "id: %d\nretry: 10\nunknown\nunknown: field\n", number)
	}
	if e.name != "" {
		fmt.Fprintf(&b, "event: %s\n", e.name)
	}
	b.WriteString("data: ")
	b.Write(e.data)
	if e.at != "half" {
		b.WriteString("\n\n")
	}
	text := b.String()
	if s.fault.CRLF {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return []byte(text)
}

// write sends a frame immediately. It returns false if the client has disconnected.
func (s *stream) write(frame []byte) bool {
	size := len(frame)
	if s.fault.OneByte {
		size = 1
	}
	for len(frame) > 0 {
		n := min(size, len(frame))
		if _, err := s.w.Write(frame[:n]); err != nil {
			return false
		}
		if err := http.NewResponseController(s.w).Flush(); err != nil {
			return false
		}
		frame = frame[n:]
	}
	return true
}

// mustJSON encodes a value of this package, which never fails.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(`{"error":{"message":"llmtest: the answer cannot be written"}}`)
	}
	return bytes.TrimSpace(b.Bytes())
}
