package exchange

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds one event in bytes.
const maxEvent = 16 << 20

// eventReader turns a stream of server-sent events into one line "data: …" for each event, below
// its name where that is wanted. The libraries read those well, whereas of anything else one keeps
// all comments in memory, gives up after some hundred of them, takes an event of several data lines
// for several events, and has no limits.
type eventReader struct {
	src *bufio.Reader
	// names says that the line "event: …" of an event is kept.
	names bool
	// tooLong makes the error for an event above maxEvent.
	tooLong func() error
	// pending is what has not been read yet of the current event.
	pending []byte
	err     error
	begun   bool
}

func newEventReader(x *Exchange) *eventReader {
	return &eventReader{
		src:   bufio.NewReaderSize(x, 32<<10),
		names: x.endpoint.names,
		tooLong: func() error {
			return x.streamError(fmt.Sprintf("an event is longer than %d MiB",
				maxEvent>>20), nil)
		},
	}
}

// Read implements io.Reader.
func (r *eventReader) Read(p []byte) (int, error) {
	for len(r.pending) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var name, data []byte
		name, data, r.err = r.next()
		r.pending = framed(name, data)
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// next returns the name and the data of the next event that has data. An event that the end of the
// stream cuts off from its empty line is returned together with io.EOF; whether it is whole its
// content must show.
func (r *eventReader) next() (name, data []byte, err error) {
	for {
		line, err := r.line(len(name) + len(data))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
		if value, ok := valueOf(line, "event"); ok && r.names {
			name = value
		}
		if value, ok := valueOf(line, "data"); ok {
			if len(data) > 0 {
				// A line break between two parts of a JSON text is white space.
				data = append(data, ' ')
			}
			data = append(data, value...)
		}
		if len(line) == 0 && len(data) > 0 || err != nil {
			return name, bytes.TrimSpace(data), err
		}
		if len(line) == 0 {
			name = nil
		}
	}
}

// line returns the next line without its end. The event has used up used bytes of its limit.
func (r *eventReader) line(used int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.src.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+used > maxEvent {
			return nil, r.tooLong()
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !r.begun {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			r.begun = true
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), err
	}
}

// valueOf returns the value of a field if line is one of that name.
func valueOf(line []byte, field string) ([]byte, bool) {
	value, ok := bytes.CutPrefix(line, []byte(field))
	if !ok {
		return nil, false
	}
	value, ok = bytes.CutPrefix(value, []byte(":"))
	if !ok {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// framed writes an event as the library reads it.
func framed(name, data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	const errorStart = `{"error":`
	out := make([]byte, 0, len(name)+len(data)+32)
	if len(name) > 0 {
		out = append(append(append(out, "event: "...), name...), '\n')
	}
	out = append(out, "data: "...)
	if bytes.HasPrefix(data, []byte(errorStart)) {
		// The library waits for one more line after an event that begins like this, and loses an error
		// that is not of the form it knows. A space makes it an event like all others.
		out = append(out, '{', ' ')
		data = data[1:]
	}
	out = append(out, data...)
	return append(out, '\n', '\n')
}
