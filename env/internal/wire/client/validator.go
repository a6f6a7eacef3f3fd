package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// frameValidator passes on the HTTP/2 frames of a server, and returns env.ErrProtocol for a frame
// that breaks the rules. net/http returns the reason only to requests in progress, and logs frames
// that no request is waiting for.
type frameValidator struct {
	framer   *http2.Framer
	valid    bytes.Buffer // one frame at most, validated and not read yet
	requests atomic.Uint32
	settings bool // the server's have arrived
	acked    bool // the server has acknowledged the client's
}

// newFrameValidator returns a validator of the frames in r.
func newFrameValidator(r io.Reader) *frameValidator {
	v := &frameValidator{}
	v.framer = http2.NewFramer(io.Discard, io.TeeReader(r, &v.valid))
	v.framer.SetMaxReadFrameSize(wire.ReadFrame)
	v.framer.SetReuseFrames()
	return v
}

// Read implements io.Reader.
func (v *frameValidator) Read(p []byte) (int, error) {
	if v.valid.Len() == 0 {
		if err := v.next(); err != nil {
			return 0, err
		}
	}
	return v.valid.Read(p)
}

// next reads a frame.
func (v *frameValidator) next() error {
	f, err := v.framer.ReadFrame()
	var broken http2.ConnectionError
	var stream http2.StreamError
	switch {
	case errors.As(err, &stream): // ends one request, which net/http sees to
		return nil
	case errors.As(err, &broken), errors.Is(err, http2.ErrFrameTooLarge):
		return fmt.Errorf("%w: HTTP/2: %w", env.ErrProtocol, err)
	case err != nil:
		return err
	}
	h := f.Header()
	if !v.expected(f) {
		return fmt.Errorf("%w: HTTP/2: unexpected %v", env.ErrProtocol, h)
	}
	return nil
}

// expected reports whether a server may send f at this point.
func (v *frameValidator) expected(f http2.Frame) bool {
	h := f.Header()
	settings, ok := f.(*http2.SettingsFrame)
	if !ok && !v.settings {
		return false
	}
	switch f.(type) {
	case *http2.SettingsFrame:
		again := settings.IsAck() && v.acked // the client sends its settings once
		v.settings, v.acked = true, v.acked || settings.IsAck()
		return !again && settings.ForeachSetting(http2.Setting.Valid) == nil
	case *http2.DataFrame, *http2.HeadersFrame:
		return h.StreamID < 2*v.requests.Load() // each request opens the next odd stream
	case *http2.PushPromiseFrame, *http2.PriorityFrame, *http2.UnknownFrame:
		return false
	}
	return true
}
