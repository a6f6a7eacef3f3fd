package snapshot

import (
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
)

// binary writes both complete contents: the new one to apply and the old one to revert.
func (p *patchWriter) binary(old, now patchSide) error {
	fmt.Fprintln(p.w, "GIT binary patch")
	for _, side := range []patchSide{now, old} {
		fmt.Fprintf(p.w, "literal %d\n", side.size)
		enc := &base85Writer{w: p.w}
		z := zlib.NewWriter(enc)
		if side.mode != 0 {
			if _, err := io.Copy(z, side.open()); err != nil {
				return err
			}
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return err
		}
		fmt.Fprintln(p.w)
	}
	return nil
}

const (
	base85Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" +
		"!#$%&()*+-;<=>?@^_`{|}~"
	// base85Line is the number of bytes per line.
	base85Line = 52
)

// base85Writer writes bytes as the lines of a binary patch: a letter for the number of bytes in the
// line, A to Z for 1 to 26 and a to z for 27 to 52, then five digits for each four bytes, the last
// padded with zeros.
type base85Writer struct {
	w    io.Writer
	line [base85Line]byte
	n    int
	out  [2 + base85Line/4*5]byte
}

func (e *base85Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := copy(e.line[e.n:], p)
		e.n += n
		written += n
		p = p[n:]
		if e.n == base85Line {
			if err := e.Close(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// Close writes the rest as the last line.
func (e *base85Writer) Close() error {
	if e.n == 0 {
		return nil
	}
	out := e.out[:0]
	if e.n <= 26 {
		out = append(out, 'A'+byte(e.n-1))
	} else {
		out = append(out, 'a'+byte(e.n-27))
	}
	clear(e.line[e.n:])
	for i := 0; i < e.n; i += 4 {
		v := binary.BigEndian.Uint32(e.line[i:])
		var digits [5]byte
		for j := len(digits) - 1; j >= 0; j-- {
			digits[j] = base85Digits[v%85]
			v /= 85
		}
		out = append(out, digits[:]...)
	}
	e.n = 0
	_, err := e.w.Write(append(out, '\n'))
	return err
}
