package wire

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
)

// recorder is where a reply of its own goes.
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

func (r *recorder) reply() *reply { return &reply{s: NewServer(ServerConfig{}), w: r} }

// TestErrorsBounded: an error of any size and depth fits into a frame.
func TestErrorsBounded(t *testing.T) {
	const long = 100 << 10
	err := errors.New(strings.Repeat("\x01", long))
	for range 2 * maxErrorDepth {
		err = &fs.PathError{Op: strings.Repeat("<", long), Path: strings.Repeat("\xff", long), Err: err}
	}
	a := &recorder{}
	if err := a.reply().end(nil, err); err != nil {
		t.Fatal(err)
	}
	frames := &frameReader{r: &a.Buffer}
	_, payload, err := frames.next()
	if err != nil {
		t.Fatal(err)
	}
	var end endRecord
	if err := decode(payload, &end); err != nil || end.Error.err() == nil || len(end.Error.err().Error()) > 1<<10 {
		t.Errorf("%v: %.100s", err, payload)
	}
}
