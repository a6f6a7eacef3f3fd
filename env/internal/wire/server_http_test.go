package wire

import (
	"bytes"
	"net/http"
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
