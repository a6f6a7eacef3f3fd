package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sandboxagent/sandboxagent/env"
)

// FrameKind is the kind of a frame.
type FrameKind byte

// Kinds of frames.
const (
	FrameStdout  FrameKind = 1 // output of a command
	FrameStderr  FrameKind = 2
	FrameResult  FrameKind = 3 // ExecResult; the last frame of a command's response
	FrameRecords FrameKind = 4 // a JSON array of records
	FrameData    FrameKind = 5 // content
	FrameEnd     FrameKind = 6 // EndRecord; the last frame of every other response
)

const (
	// FrameHeader is the size of the kind and the length in front of a payload.
	FrameHeader = 5
	// MaxFrame bounds the payload of a frame: ReadFrame less room for headers.
	MaxFrame = 256<<10 - 1<<10
)

// AppendFrame appends a frame to b.
func AppendFrame(b []byte, kind FrameKind, payload []byte) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// Encode returns v as JSON that fits into a frame, also as the only element of a list.
func Encode(v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err == nil && len(payload) > MaxFrame-len("[]") {
		err = fmt.Errorf("record of %d bytes exceeds the size of a frame", len(payload))
	}
	return payload, err
}

// FrameReader reads frames. Its errors are env.ErrProtocol for a malformed frame,
// io.ErrUnexpectedEOF for a stream that ends without a last frame, and the stream's.
type FrameReader struct {
	R      io.Reader
	header [FrameHeader]byte
	buf    []byte
	over   bool // the last frame has been read
}

// Next returns the next frame. The payload is valid until the next call. After the last frame it
// returns io.EOF; data behind that is env.ErrProtocol.
func (f *FrameReader) Next() (FrameKind, []byte, error) {
	kind, size, err := f.Head()
	if err != nil {
		return 0, nil, err
	}
	payload, err := f.Payload(size)
	return kind, payload, err
}

// Head reads the header of the next frame. The caller then reads the payload with Payload, or in
// parts from the stream.
func (f *FrameReader) Head() (FrameKind, int, error) {
	n, err := io.ReadFull(f.R, f.header[:])
	switch {
	case f.over && errors.Is(err, io.EOF):
		return 0, 0, io.EOF
	case f.over && n > 0:
		return 0, 0, fmt.Errorf("%w: data behind the last frame", env.ErrProtocol)
	case errors.Is(err, io.EOF):
		return 0, 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, 0, err
	}
	kind, size := FrameKind(f.header[0]), binary.BigEndian.Uint32(f.header[1:])
	if kind < FrameStdout || kind > FrameEnd {
		return 0, 0, fmt.Errorf("%w: frame of kind %d", env.ErrProtocol, kind)
	}
	if size > MaxFrame {
		return 0, 0, fmt.Errorf("%w: frame of %d bytes", env.ErrProtocol, size)
	}
	f.over = kind == FrameEnd || kind == FrameResult
	return kind, int(size), nil
}

// Payload reads the payload of the frame whose header was read. It is valid until the next call.
func (f *FrameReader) Payload(size int) ([]byte, error) {
	if size > cap(f.buf) {
		f.buf = make([]byte, size)
	}
	payload := f.buf[:size]
	if _, err := io.ReadFull(f.R, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return payload, nil
}

// Decode decodes JSON of the other side into v. JSON that is malformed or does not fit is
// env.ErrProtocol.
func Decode(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %w", env.ErrProtocol, err)
	}
	return nil
}
