package exchange

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// eventReader reads a stream of server-sent events. The readers of libraries keep all comments in
// memory, stop after some hundred of them, take an event of several data lines for several events,
// or have no limits.
type eventReader struct {
	src *bufio.Reader
	// tooLong makes the error for an event above maxEvent.
	tooLong func() error
	started bool
}

func newEventReader(x *Exchange) *eventReader {
	return &eventReader{
		src: bufio.NewReaderSize(x, 32<<10),
		tooLong: func() error {
			return x.tooLarge(fmt.Sprintf("an event is longer than %d MiB", maxEvent>>20),
				llm.ErrAnswerTooLarge)
		},
	}
}

// next returns the data of the next event that has data. The error io.EOF may come with an event
// whose closing empty line is missing: its content shows whether it is whole.
func (r *eventReader) next() ([]byte, error) {
	var data []byte
	for {
		line, err := r.line(len(data))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				// A line break between two parts of a JSON text is white space.
				data = append(data, ' ')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		if len(line) == 0 && len(data) > 0 || err != nil {
			return bytes.TrimSpace(data), err
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
		if !r.started {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			r.started = true
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), err
	}
}
