package server

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// recorder records a response.
type recorder struct {
	bytes.Buffer
	header http.Header
	fails  error
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              {}

func (r *recorder) Write(p []byte) (int, error) {
	if r.fails != nil {
		return 0, r.fails
	}
	return r.Buffer.Write(p)
}

func (r *recorder) reply() *response { return &response{s: New(Config{}), w: r} }

// TestErrorsBounded: an error of any size and depth fits into a frame.
func TestErrorsBounded(t *testing.T) {
	const long = 100 << 10
	err := errors.New(strings.Repeat("\x01", long))
	for range 2 * wire.MaxErrorDepth {
		err = &fs.PathError{Op: strings.Repeat("<", long), Path: strings.Repeat("\xff", long), Err: err}
	}
	a := &recorder{}
	if err := a.reply().end(nil, err); err != nil {
		t.Fatal(err)
	}
	frames := &wire.FrameReader{R: &a.Buffer}
	_, payload, err := frames.Next()
	if err != nil {
		t.Fatal(err)
	}
	var end wire.EndRecord
	if err := wire.Decode(payload, &end); err != nil || end.Error.Err() == nil ||
		len(end.Error.Err().Error()) > 1<<10 {
		t.Errorf("%v: %.100s", err, payload)
	}
}
