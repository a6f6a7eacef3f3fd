package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// errCutOff ends a response without a last frame, which marks it as incomplete.
var errCutOff = errors.New("the response is cut off")

// statusError is the status of a request that violates the protocol.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

const (
	errMalformed statusError = http.StatusBadRequest
	errOffset    statusError = http.StatusConflict
	errTooLong   statusError = http.StatusRequestEntityTooLarge
)

// handler responds to a request. Its error ends the response, unless it has ended it itself.
type handler func(r *http.Request, a *response) error

// routes returns the handler of a connection's requests.
func (p *peer) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"POST /exec/{id}":           p.exec,
		"DELETE /exec/{id}":         p.cancel,
		"POST /exec/{id}/stdin":     p.stdin,
		"POST /exec/{id}/resize":    p.resize,
		"POST /exec/{id}/interrupt": p.interrupt,
		"GET /op/{id}":              p.outcome,
		"POST /kill":                p.kill,
		"POST /close":               p.close,
		"GET /file":                 p.file(p.open),
		"GET /stat":                 p.file(p.stat),
		"GET /lstat":                p.file(p.lstat),
		"GET /link":                 p.file(p.link),
		"GET /dir":                  p.file(p.dir),
		"POST /read":                p.file(p.read),
		"POST /pack":                p.file(p.pack),
		"POST /walk":                p.file(p.walk),
		"POST /glob":                p.file(p.glob),
		"POST /grep":                p.file(p.grep),
		"PUT /file":                 p.change(p.write),
		"DELETE /file":              p.change(p.remove),
		"POST /tree":                p.change(p.unpack),
	} {
		mux.Handle(pattern, p.handle(h))
	}
	return mux
}

// handle returns an http.Handler of h.
func (p *peer) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.enter() {
			panic(http.ErrAbortHandler)
		}
		defer p.requests.Done()
		header := w.Header()
		header["Date"], header["Content-Type"] = nil, nil // no client reads them
		a := &response{s: p.s, w: w}
		defer a.release()
		err := catchPanic(func() error { return h(r, a) })
		var status statusError
		switch {
		case a.err != nil || errors.Is(err, errCutOff):
			panic(http.ErrAbortHandler)
		case errors.As(err, &status):
			if a.started {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(int(status))
		case !a.finished:
			if a.end(a.value, err) != nil {
				panic(http.ErrAbortHandler)
			}
		}
	})
}

// catchPanic calls f and returns a panic as an error, so that other requests and commands go on.
func catchPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// response writes the frames of a response. It collects them in a buffer until that is full or
// flush is called.
type response struct {
	s        *Server
	w        http.ResponseWriter
	slot     *slot // given up while it writes
	buf      *[]byte
	value    any   // of the last frame
	started  bool  // something has been written
	finished bool  // the last frame has been written
	err      error // of writing
}

// reserve returns room for the payload of a frame, at least least and at most limit bytes. commit
// adds the frame.
func (a *response) reserve(least, limit int) ([]byte, error) {
	if a.buf == nil {
		a.buf, _ = a.s.buffers.Get().(*[]byte)
	}
	b := *a.buf
	if cap(b)-len(b) < wire.FrameHeader+least {
		if err := a.write(); err != nil {
			return nil, err
		}
		return a.reserve(least, limit)
	}
	room := b[len(b)+wire.FrameHeader : cap(b)]
	return room[:min(limit, len(room))], nil
}

// commit adds the frame whose payload is the first n bytes of the room that reserve returned.
func (a *response) commit(kind wire.FrameKind, n int) {
	b := *a.buf
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	*a.buf = b[:len(b)+n]
}

// frame adds a frame.
func (a *response) frame(kind wire.FrameKind, payload []byte) error {
	if wire.FrameHeader+len(payload) <= responseBuffer {
		room, err := a.reserve(len(payload), len(payload))
		if err == nil {
			copy(room, payload)
			a.commit(kind, len(payload))
		}
		return err
	}
	if err := a.write(); err != nil {
		return err
	}
	return a.send(wire.AppendFrame(make([]byte, 0, wire.FrameHeader+len(payload)), kind, payload))
}

// record adds a frame with v as JSON. A record that is too large is an error; other frames may
// follow.
func (a *response) record(kind wire.FrameKind, v any) error {
	payload, err := wire.Encode(v)
	if err != nil {
		return err
	}
	return a.frame(kind, payload)
}

// end adds the last frame. The buffer is sent when the handler returns.
func (a *response) end(value any, err error) error {
	record := &wire.EndRecord{Error: wire.ToError(err)}
	if value != nil {
		encoded, encodeErr := json.Marshal(value)
		if encodeErr != nil {
			return encodeErr
		}
		record.Value = encoded
	}
	return a.finish(wire.FrameEnd, record, func() { record.Error = shorten(record.Error) })
}

// finish adds the last frame with record and sends everything. If record is too large, shorten is
// called once.
func (a *response) finish(kind wire.FrameKind, record any, shorten func()) error {
	a.finished = true
	payload, err := wire.Encode(record)
	if err != nil {
		shorten()
		if payload, err = wire.Encode(record); err != nil {
			return err
		}
	}
	if err := a.frame(kind, payload); err != nil {
		return err
	}
	return a.write()
}

// shorten keeps of an error the conditions that callers branch on and a little text.
func shorten(w *wire.Error) *wire.Error {
	if w == nil {
		return nil
	}
	err := w.Err()
	short := wire.EncodeError(err, 1)
	short.Text = short.Text[:min(len(short.Text), 1<<10)]
	return short
}

// write passes the collected frames to HTTP/2, which sends them when it chooses.
func (a *response) write() error {
	if a.err != nil || a.buf == nil || len(*a.buf) == 0 {
		return a.err
	}
	err := a.send(*a.buf)
	a.release()
	return err
}

func (a *response) send(frames []byte) error {
	a.started = true
	a.slot.pause()
	defer a.slot.resume()
	if _, err := a.w.Write(frames); err != nil {
		a.err = err
	}
	return a.err
}

// flush sends the collected frames at once.
func (a *response) flush() error {
	if err := a.write(); err != nil {
		return err
	}
	a.slot.pause()
	defer a.slot.resume()
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		a.err = err
	}
	return a.err
}

// release returns the buffer to the pool, unless HTTP/2 may still read it after a failed write.
func (a *response) release() {
	if a.buf != nil && a.err == nil {
		*a.buf = (*a.buf)[:0]
		a.s.buffers.Put(a.buf)
	}
	a.buf = nil
}

// decodeBody decodes the JSON of a request into v.
func decodeBody(r *http.Request, v any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxRequest+1))
	switch {
	case err != nil:
		return errCutOff // it did not arrive whole
	case len(body) > wire.MaxRequest:
		return errTooLong
	case json.Unmarshal(body, v) != nil:
		return errMalformed
	}
	return nil
}

// query is the query of a request.
type query struct{ values url.Values }

func parseQuery(r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, errMalformed
	}
	return query{values}, nil
}

func (q query) text(name string) string { return q.values.Get(name) }
func (q query) flag(name string) bool   { return q.values.Get(name) == "1" }

// number returns a number ≥ 0; 0 if it is absent.
func (q query) number(name string) (int64, error) {
	value := q.values.Get(name)
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, errMalformed
	}
	return n, nil
}

// pathID returns the id in the path of a request.
func pathID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !validID(id) {
		return "", errMalformed
	}
	return id, nil
}

// kill kills the processes of the environment.
func (p *peer) kill(*http.Request, *response) error {
	e, ok := p.s.environment().(killer)
	if !ok {
		return errors.ErrUnsupported
	}
	return e.Kill()
}

// close closes the environment.
func (p *peer) close(_ *http.Request, a *response) error {
	err := p.s.closeEnvironment()
	go p.s.disconnectLater(p)
	return err
}

// cause returns why the context of a request has ended.
func cause(ctx context.Context) error { return fmt.Errorf("%w: %w", errCutOff, context.Cause(ctx)) }
