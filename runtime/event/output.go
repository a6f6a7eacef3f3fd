package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
)

// InlineLimit is the largest output, in bytes, that an Output holds in memory.
const InlineLimit = 1 << 20

// Output is everything that a tool call produced, before it was cut for the model. Up to
// InlineLimit bytes it is held in memory, beyond that in a file of the session. The zero value is
// an empty output.
type Output struct {
	// Size is the number of bytes.
	Size int64
	// SHA256 is the hex digest of all bytes.
	SHA256 string
	// Inline holds all bytes if there are at most InlineLimit; nil otherwise.
	Inline []byte
	// File is the path on the host of the file that holds the bytes, if they are not inline.
	File string
	// OpenFile opens that file.
	OpenFile func() (io.ReadCloser, error)
}

// InlineOutput makes an Output that holds b.
func InlineOutput(b []byte) Output {
	sum := sha256.Sum256(b)
	return Output{Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:]), Inline: b}
}

// Open returns a reader of all bytes. An output that is in a file which nothing can open any more
// is fs.ErrNotExist.
func (o Output) Open() (io.ReadCloser, error) {
	if o.OpenFile != nil {
		return o.OpenFile()
	}
	if int64(len(o.Inline)) != o.Size {
		return nil, &fs.PathError{Op: "open", Path: o.File, Err: errors.Join(fs.ErrNotExist,
			errors.New("the output was not kept"))}
	}
	return io.NopCloser(bytes.NewReader(o.Inline)), nil
}
