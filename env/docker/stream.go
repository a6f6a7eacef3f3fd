package docker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/docker/docker/api/types"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// The daemon sends output in frames: the number of the stream, three zeros, and the length in four
// bytes.
const (
	frameHeader = 8
	frameOut    = 1
	frameErr    = 2
	frameSystem = 3
)

// stream is stdin and stdout of a process in a container.
type stream struct {
	hijacked types.HijackedResponse
	stderr   *helper.StderrTail
	left     uint32 // bytes of the current stdout frame
	close    sync.Once
}

func newStream(hijacked types.HijackedResponse) *stream {
	return &stream{hijacked: hijacked, stderr: &helper.StderrTail{}}
}

// Read reads from stdout. Calls do not overlap.
func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		var header [frameHeader]byte
		if _, err := io.ReadFull(s.hijacked.Reader, header[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF // cut within a header
			}
			return 0, err
		}
		size := binary.BigEndian.Uint32(header[4:])
		switch header[0] {
		case frameOut:
			s.left = size
		case frameErr, frameSystem:
			if _, err := io.CopyN(s.stderr, s.hijacked.Reader, int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("%w: the daemon sent a frame of kind %d", env.ErrProtocol, header[0])
		}
	}
	n, err := s.hijacked.Reader.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n) //nolint:gosec // n is no more than left
	return n, err
}

// Write writes to stdin.
func (s *stream) Write(p []byte) (int, error) { return s.hijacked.Conn.Write(p) }

// Close closes the connection; the process reads EOF.
func (s *stream) Close() error {
	s.close.Do(s.hijacked.Close)
	return nil
}
