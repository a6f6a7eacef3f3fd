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

// Output is the whole output of a tool call, which the model may see shortened. Outputs of more
// than InlineLimit bytes are in a file of the session, others in memory. The zero value is an empty
// output.
type Output struct {
	// Size is the number of bytes.
	Size int64
	// SHA256 is the hex digest of all bytes.
	SHA256 string
	// Inline has all bytes of an output in memory.
	Inline []byte
	// File is the path on the host of an output in a file.
	File string
	// OpenFile opens that file.
	OpenFile func() (io.ReadCloser, error)
}

// InlineOutput returns an Output of b.
func InlineOutput(b []byte) Output {
	sum := sha256.Sum256(b)
	return Output{Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:]), Inline: b}
}

// Open returns a reader of all bytes. For an output without bytes and without OpenFile, the error
// is fs.ErrNotExist.
func (o Output) Open() (io.ReadCloser, error) {
	if o.OpenFile != nil {
		return o.OpenFile()
	}
	if int64(len(o.Inline)) != o.Size {
		return nil, &fs.PathError{Op: "open", Path: o.File, Err: errors.Join(fs.ErrNotExist,
			errors.New("the output was not stored"))}
	}
	return io.NopCloser(bytes.NewReader(o.Inline)), nil
}
